#!/usr/bin/env python3
"""Writes the tables of docs/soap.md: the delta simulation beside the full one, and what the search finds.

    scripts/measure_soap.py [--bin build/release] [--effort normal] [--proposals 10000] [--only deltas|found]

Needs a Release build with benchmarks; about ten minutes of one core.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

from docs_tables import replace, version

NAME = pathlib.Path(__file__).stem
SOURCE = pathlib.Path(__file__).resolve().parent.parent
PAGE = SOURCE / "docs" / "soap.md"
FIXTURES = SOURCE / "fixtures" / "hlo"
DELTA_MODELS = ["vgg19", "resnet50", "t5_6_6", "bert48"]
FOUND_MODELS = ["vgg19", "resnet50", "t5_6_6", "unet"]
CLUSTERS = ["config-a", "config-b"]


def deltas(folder, proposals):
    rows = ["| model | operators | devices | tasks | proposals | accepted | compared | different | full ms | delta ms | speed-up | taken per task |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for model in DELTA_MODELS:
        # Where there are more devices a proposal takes longer, and says as much.
        for devices, share in ((4, 1), (16, 10), (64, 10)):
            done = subprocess.run([f"{folder}/bench/bench-soap", FIXTURES / f"{model}.hlo.gz", "--devices", str(devices), "--proposals",
                                   str(proposals // share), "--every", "20"], capture_output=True, text=True)
            if done.returncode not in (0, 1):
                sys.exit(f"measure_soap.py: bench-soap ended with {done.returncode}: {done.stderr}")
            rows.append("| " + " | ".join(done.stdout.splitlines()[-1].split()) + " |")
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def strategy(folder, model, cluster, effort, *options):
    done = subprocess.run([f"{folder}/automap-search", "soap", FIXTURES / f"{model}.hlo.gz", "--cluster", cluster, "--effort", effort,
                           *options, "--json", "--quiet"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"measure_soap.py: automap-search soap ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def found(folder, effort):
    rows = ["| model | cluster | devices | data parallel ms | expert ms | found ms | of data parallel | of expert | fullest device, GiB | as one mesh ms | "
            "proposals | s | found by |", "|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for model in FOUND_MODELS:
        for cluster in CLUSTERS:
            plan, mesh = (strategy(folder, model, cluster, effort, "--placement", placement) for placement in ("range", "mesh"))
            cells = [model, cluster, plan["devices"], f"{plan['data_parallel_ms']:.3g}", f"{plan['expert_ms']:.3g}", f"{plan['step_ms']:.3g}",
                     f"{plan['data_parallel_ms'] / plan['step_ms']:.2f}", f"{plan['expert_ms'] / plan['step_ms']:.2f}",
                     f"{plan['memory']['bytes'] / 2**30:.2g}", f"{mesh['step_ms']:.3g}", plan["proposals"], f"{plan['planning_ms'] / 1000:.1f}",
                     plan["planner"].removeprefix("mcmc from ")]
            rows.append("| " + " | ".join(map(str, cells)) + " |")
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(SOURCE / "build" / "release"))
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--proposals", type=int, default=10000)
    parser.add_argument("--only", choices=("deltas", "found"))
    options = parser.parse_args()
    for name in ("automap-search", "bench/bench-soap"):
        if not os.access(f"{options.bin}/{name}", os.X_OK):
            sys.exit(f"measure_soap.py: {options.bin}/{name} is missing: build it first")
    note = f"{version(f'{options.bin}/automap-search')}; load {os.getloadavg()[0]:.2f} when it began."
    text = PAGE.read_text(encoding="utf-8")
    if options.only != "found":
        text = replace(text, NAME, "deltas", [note, "", *deltas(options.bin, options.proposals)])
    if options.only != "deltas":
        text = replace(text, NAME, "found", [note, "", *found(options.bin, options.effort)])
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
