#!/usr/bin/env python3
"""The table of docs/training.md, "Many machines": training by one and by two processes, runs in turn, with the load beside them.

    scripts/measure_ranks.py [--bin build/release] [--episodes 6000] [--turns 3]

All processes run on this machine and speak over its loopback interface.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import socket
import statistics
import subprocess
import tempfile

# (name, processes, threads of each)
SETUPS = [("1 process, 1 thread", 1, 1), ("1 process, 2 threads", 1, 2), ("2 processes, 1 thread each", 2, 1)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def train(binary, out, episodes, processes, threads):
    """(document of rank 0, its log, CPU seconds of all)"""
    port, running = free_port(), []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for rank in range(processes):
        env = dict(os.environ)
        if processes > 1:
            env.update(RANK=str(rank), WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        running.append(subprocess.Popen(
            [binary / "automap-train", "--out", out, "--episodes", str(episodes), "--threads", str(threads), "--deterministic",
             "--evaluate-small", "6", "--evaluate-middle", "0", "--evaluate-deep", "0", "--json"],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    texts = [process.communicate() for process in running]
    assert all(process.returncode == 0 for process in running), texts
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return json.loads(texts[0][0]), texts[0][1], after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "build" / "release")
    parser.add_argument("--episodes", type=int, default=6000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    rates, cpu, load, traffic, policies = {}, {}, {}, "", set()
    for _ in range(options.turns):
        for name, processes, threads in SETUPS:
            with tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / "run"
                document, log, seconds = train(options.bin, out, options.episodes, processes, threads)
                policies.add((out / "policy.bin").read_bytes())
            rates.setdefault(name, []).append(document["episodes_per_s"])
            cpu.setdefault(name, []).append(seconds * 1e3 / document["episodes"])
            load.setdefault(name, []).append(os.getloadavg()[0])
            found = re.search(r"\d+ ranks, .*", log)
            traffic = found.group(0) if found else traffic
    assert len(policies) == 1, "the runs gave different policies"
    print(f"{options.turns} turns of {options.episodes} episodes, medians; {os.cpu_count()} processors; every run gave the same policy\n")
    print("| | episodes/s | CPU ms per episode, all processes | load of the machine |\n|---|---|---|---|")
    for name, _, _ in SETUPS:
        print(f"| {name} | {statistics.median(rates[name]):.0f} | {statistics.median(cpu[name]):.2f} | "
              f"{min(load[name]):.1f} to {max(load[name]):.1f} |")
    print("\n" + traffic)


if __name__ == "__main__":
    main()
