#!/usr/bin/env python3
"""Writes the tables of docs/heuristics.md: every heuristic on the fixtures' models, and assistants where times are not as predicted.

    scripts/measure_heuristics.py [--bin build/release] [--check]

--check compares the page's loads and steps, which do not depend on the machine, with what the program finds.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys

from docs_tables import replace

NAME = pathlib.Path(__file__).stem
SOURCE = pathlib.Path(__file__).resolve().parent.parent
PAGE = SOURCE / "docs" / "heuristics.md"
MODELS = ["vgg19", "resnet50", "unet", "t5_6_6", "bert48"]
# (cluster, devices of it)
CLUSTERS = [("config-a", 8), ("config-a", 16), ("a100-4x8", 32)]
ASSISTED = ["vgg19", "resnet50", "unet", "t5_6_6"]
ASSISTED_DEVICES = [8, 16]  # of config-a: one server, two


def plan(program, model, cluster, devices, *options):
    command = [program, "heuristics", f"fixtures/hlo/{model}.hlo.gz", "--cluster", cluster, "--devices", str(devices), *options,
               "--json", "--quiet"]
    return json.loads(subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=True).stdout)


def ms(value):
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def size(count):
    return f"{count / 2**20:.3g}" if count < 100 * 2**20 else f"{count / 2**20:.0f}"


def candidates(program):
    rows = None
    for model in MODELS:
        for cluster, devices in CLUSTERS:
            found = plan(program, model, cluster, devices)
            names = [row["heuristic"] for row in found["candidates"]]
            if rows is None:
                rows = ["| model | cluster | devices | tasks | " + " | ".join(names) +
                        " | bound | cut, MiB | imbalance | step, ms | one device, ms | s |", "|" + "---|" * (len(names) + 10)]
            chosen = found["candidates"][names.index(found["planner"])]
            loads = [f"**{ms(row['load_ms'])}**" if row is chosen else ms(row["load_ms"]) if row["fits"] else "-"
                     for row in found["candidates"]]
            rows.append("| " + " | ".join([
                model, cluster, str(devices), str(len(found["tasks"])), *loads, ms(found["lower_bound_ms"]), size(chosen["cut_bytes"]),
                f"{100 * chosen['imbalance']:.0f} %", ms(chosen["step_ms"]), ms(found["candidates"][-1]["step_ms"]),
                f"{sum(row['planning_ms'] for row in found['candidates']) / 1000:.2f}"]) + " |")
    return rows


def assistants(program):
    rows = None
    for devices, model in itertools.product(ASSISTED_DEVICES, ASSISTED):
        scenarios = plan(program, model, "config-a", devices, "--assistants")["assistants"]["scenarios"]
        noises = sorted({row["noise"] for row in scenarios})
        if rows is None:
            rows = ["| model | devices | slow | static, ms | " + " | ".join(f"noise {noise:g}" for noise in noises) + " | tasks moved |",
                    "|" + "---|" * (len(noises) + 5)]
        for slow in sorted({row["slow"] for row in scenarios}):
            of_slow = [row for row in scenarios if row["slow"] == slow]
            cells = [" / ".join(f"{row[key] / row['static_ms']:.2f}" for key in ("assisted_ms", "oracle_ms", "feedback_ms"))
                     for row in of_slow]
            static, moved = [row["static_ms"] for row in of_slow], [row["moved_tasks"] for row in of_slow]
            rows.append("| " + " | ".join([model, str(devices), f"{slow:g}", f"{ms(static[0])} to {ms(static[-1])}", *cells,
                                           f"{moved[0]:.0f} to {moved[-1]:.0f}"]) + " |")
    return rows


def without_seconds(text):
    """Seconds are the last column of the first table: they differ from machine to machine."""
    return [line.rsplit("|", 2)[0] if any(f"| {cluster} |" in line for cluster, _ in CLUSTERS) else line
            for line in text.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default=str(SOURCE / "build" / "release"))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    program = str(pathlib.Path(options.bin).resolve() / "automap-search")
    old = PAGE.read_text(encoding="utf-8")
    text = replace(old, NAME, "candidates", candidates(program))
    text = replace(text, NAME, "assistants", assistants(program))
    if options.check:
        wrong = [line for line in without_seconds(text) if line not in without_seconds(old)]
        print("\n".join(wrong) or f"{PAGE.name} is as found")
        sys.exit(1 if wrong else 0)
    PAGE.write_text(text, encoding="utf-8")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
