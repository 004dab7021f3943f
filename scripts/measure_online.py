#!/usr/bin/env python3
"""Writes the tables of docs/online-search.md: the online search beside other planners on the same problems (the paper's Table 7).

    scripts/measure_online.py [--bin build/release] [--time 8s] [--seeds 3] [--quick]

Every search gets the same time; the load of the machine is printed. --quick: one model and one seed, to the screen.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

from docs_tables import replace, version

NAME = pathlib.Path(__file__).stem
SOURCE = pathlib.Path(__file__).resolve().parent.parent
PAGE = SOURCE / "docs" / "online-search.md"
MODELS = ["bert48", "t5_6_6", "t5_24_24"]
CLUSTERS = ["config-b", "config-c"]
# Name, what is asked, by what plans are judged.
PROBLEMS = [
    ("paper", ["--replicas", "fractional", "--gradient-sync", "after", "--micro-batches", "16", "--objective", "value"], "step_ms"),
    ("whole", ["--micro-batches", "16", "--micro-batch", "32", "--objective", "simulated", "--explore", "off"], "simulated_step_ms"),
]
ONLINE = [
    ("shipped policy, radius 3", ["--from", "shipped", "--radius", "3"]),
    ("shipped policy", ["--from", "shipped"]),
    ("scratch, radius 3", ["--from", "scratch", "--radius", "3"]),
    ("scratch", ["--from", "scratch"]),
]


def plan(program, model, cluster, asked, *options):
    result = subprocess.run([program, SOURCE / "fixtures" / "hlo" / f"{model}.hlo.gz", "--cluster", cluster, "--max-width", "1",
                             *asked, *options, "--json", "--quiet"], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{model} on {cluster} {' '.join(options)}: {result.stderr}")
    return json.loads(result.stdout)


def percent(values):
    mean = f"{100 * statistics.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ({100 * min(values):.2f} – {100 * max(values):.2f})"


def measure(program, seconds, seeds, models, asked, length):
    """One row a model and cluster: what each planner comes to, over the shortest plan of all."""
    rows = []
    for model in models:
        for cluster in CLUSTERS:
            others = {
                "one-shot policy": plan(program, model, cluster, asked, "--planner", "policy"),
                "local search": plan(program, model, cluster, asked, "--planner", "local-search", "--effort", "thorough",
                                     "--time-limit", seconds),
                "exact": plan(program, model, cluster, asked, "--planner", "exact"),
                "auto": plan(program, model, cluster, asked, "--planner", "auto"),
            }
            online = {name: [plan(program, model, cluster, asked, "--planner", "online", *options, "--time-limit", seconds,
                                  "--seed", str(seed)) for seed in range(1, seeds + 1)] for name, options in ONLINE}
            least = min([p[length] for p in others.values()] + [p[length] for runs in online.values() for p in runs])
            row = [model, cluster, f"{least:.4g}"]
            for p in others.values():
                row.append(f"{100 * (p[length] / least - 1):.2f} in {p['planning_ms'] / 1e3:.2g} s")
            for runs in online.values():
                last = [r["online"]["steps"][-1] for r in runs if r["online"]["steps"]]
                when = (f"after {statistics.median(s['seconds'] for s in last):.2g} s, play "
                        f"{statistics.median(s['play'] for s in last):.0f}" if last else "without a play")
                row.append(f"{percent([r[length] / least - 1 for r in runs])} {when}")
            rows.append(row)
            print("| " + " | ".join(row) + " |", flush=True)
    head = ["model", "cluster", "shortest, ms", "one-shot policy", "local search", "exact", "auto"] + [name for name, _ in ONLINE]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(row) + " |" for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=SOURCE / "build" / "release")
    parser.add_argument("--time", default="8s")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=[name for name, _, _ in PROBLEMS], help="one table")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    program = args.bin / "automap-infer"
    if args.quick:
        measure(program, "1s", 1, MODELS[1:2], *PROBLEMS[0][1:])
        return
    load = os.getloadavg()[0]
    built = version(program)
    text = PAGE.read_text()
    for name, asked, length in PROBLEMS:
        if args.only not in (None, name):
            continue
        rows = measure(program, args.time, args.seeds, MODELS, asked, length)
        note = f"{built}; {args.time} for each search, seeds 1 to {args.seeds}, load {load:.2f} when it began."
        text = replace(text, NAME, name, [note, "", *rows])
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
