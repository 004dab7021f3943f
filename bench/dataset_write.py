#!/usr/bin/env python3
"""Writing datasets against the disk: dd and automap-datagen on the same disk in one run, with the load of the machine.

    bench/dataset_write.py [--rows 1000000] [--bin build/release] [--folder DIR] [--repeat 3]

dd writes as many bytes as the dataset has, once through the page cache with conv=fdatasync (as automap-datagen does, which
syncs every shard) and once with oflag=direct. Rows are those of `paper` (uniform, normal, binomial) and of `mixed`, all with
m = 512 instructions. Best wall time of the repeats; CPU time is the program's own, user and system.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROW_BYTES = 3 * 128 * 4


def measured(command):
    """(wall s, CPU s, peak MB) of a command."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - start
    errors = process.stderr.read()
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {errors}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def load():
    return os.getloadavg()[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bin", type=Path, default=Path(__file__).resolve().parent.parent / "build" / "release")
    parser.add_argument("--folder", default=None, help="where to write; default: the folder for temporary files")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    megabytes = arguments.rows * ROW_BYTES / 1e6
    lines = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        rows512 = {"rows": {"instructions": 512}}
        (folder / "mixed.json").write_text(json.dumps(rows512))
        (folder / "paper.json").write_text(json.dumps({**rows512, "families": {"uniform": {}, "normal": {}, "binomial": {}}}))
        datagen = [arguments.bin / "automap-datagen", "--rows", str(arguments.rows), "--seed", "1", "-q", "-o", folder / "data"]
        blocks = f"count={max(1, round(megabytes / 1.048576))}"
        dd = ["dd", "if=/dev/zero", f"of={folder / 'raw'}", "bs=1M", blocks, "status=none"]
        runs = [("dd conv=fdatasync", [*dd, "conv=fdatasync"]), ("dd oflag=direct", [*dd, "oflag=direct"]),
                ("datagen, 3 families", [*datagen, "--config", folder / "paper.json"]),
                ("datagen, mixed", [*datagen, "--config", folder / "mixed.json"]),
                ("datagen, mixed, --threads 1", [*datagen, "--config", folder / "mixed.json", "--threads", "1"])]
        for title, command in runs:
            best = None
            for _ in range(arguments.repeat):
                shutil.rmtree(folder / "data", ignore_errors=True)
                (folder / "raw").unlink(missing_ok=True)
                before = load()
                wall, cpu, peak = measured([str(part) for part in command])
                if best is None or wall < best[0]:
                    best = (wall, cpu, peak, before)
            wall, cpu, peak, before = best
            rows = f"{arguments.rows / cpu / 1e6:.2f}" if title.startswith("datagen") else ""
            lines.append((title, f"{wall:.2f}", f"{megabytes / wall:.0f}", f"{cpu:.2f}", rows, f"{peak:.0f}", f"{before:.1f}"))
    header = ("what", "wall s", "MB/s", "CPU s", "M rows/CPU-s", "peak MB", "load before")
    print(f"{arguments.rows} rows, {megabytes:.0f} MB, {os.cpu_count()} processors, best of {arguments.repeat}\n")
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for line in lines:
        print("| " + " | ".join(line) + " |")
    by = {re.sub(r"\W+", " ", line[0]): float(line[2]) for line in lines}
    print(f"\nmixed / dd conv=fdatasync: {by['datagen mixed'] / by['dd conv fdatasync']:.2f}")


if __name__ == "__main__":
    main()
