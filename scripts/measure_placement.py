#!/usr/bin/env python3
"""Writes the tables of docs/placement.md: every planner on the workloads of msr-fiddle/dnn-partitioning in AUTOMAP_CORPUS.

    scripts/measure_placement.py [--bin build/release] [--time 60s] [--check]

--check compares the values that do not depend on time (exact programme, orders) with what docs/placement.md says.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

from docs_tables import replace

NAME = pathlib.Path(__file__).stem
SOURCE = pathlib.Path(__file__).resolve().parent.parent
PAGE = SOURCE / "docs" / "placement.md"
# Programmes whose optimum others know; the rest takes longer than the table is worth.
NONCONTIGUOUS = ["layer_bert24_inference", "op_bert_l-3_inference", "op_bert_l-3_training", "op_bert_l-6_inference"]


def value(program, workload, *options):
    """(plan, None) or (None, why not)."""
    result = subprocess.run([program, "placement", workload, *options, "--json", "--quiet"], capture_output=True, text=True)
    document = json.loads(result.stdout)
    return (document, None) if result.returncode == 0 else (None, document["error"]["message"])


def cell(program, workload, *options, digits=3):
    plan, _ = value(program, workload, *options)
    if plan is None:
        return "-"
    return f"{plan['value_ms']:.{digits}f}" + ("" if plan["contiguous"] else " n")


def throughput(program, bench, files):
    rows = ["| workload | nodes | units | ideals | pairs looked at | exact, ms | orders, ms | orders, s | exact, s | MiB | "
            "local search | Scotch | chain | one accelerator |", "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for arguments in [[file] for file in files] + [["--inception"], ["--inception", "train"]]:
        line = subprocess.run([bench, *map(str, arguments)], capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        cells = [c.strip() for c in line.split("  ") if c.strip()]
        name, nodes, _, units, ideals, pairs, exact, along, along_s, exact_s, mib = cells
        row = [name.removesuffix(".json"), nodes, units, ideals, pairs, exact, along, along_s, exact_s, mib]
        if arguments[0] == "--inception":
            row += ["", "", "", ""]
        else:
            row += [cell(program, arguments[0], "--algorithm", a) for a in ("local-search", "scotch", "pipedream", "one-accelerator")]
        rows.append("| " + " | ".join(row) + " |")
    return rows


def latency(program, files):
    rows = ["| workload | accelerators | greedy | split for throughput | bound |", "|---|---|---|---|---|"]
    for file in files:
        plan, _ = value(program, file, "--objective", "latency", "--algorithm", "greedy")
        bound, count = (plan["lower_bound_ms"], plan["accelerators"]) if plan else (float("nan"), "?")
        rows.append("| " + " | ".join([file.stem, str(count), cell(program, file, "--objective", "latency", "--algorithm", "greedy"),
                                       cell(program, file, "--objective", "latency", "--algorithm", "dp"),
                                       f"{bound:.3f}"]) + " |")
    return rows


def programmes(program, folder, time):
    rows = ["| workload | contiguous | any placement | bound | proven | s |", "|---|---|---|---|---|---|"]
    for name in NONCONTIGUOUS:
        file = folder / "throughput" / f"{name}.json"
        plan, why = value(program, file, "--algorithm", "milp-noncontiguous", "--time", time)
        exact, _ = value(program, file)
        if plan is None:
            print(f"{name}: {why}", file=sys.stderr)
            continue
        rows.append(f"| {name} | {exact['value_ms']:.4f} | {plan['value_ms']:.4f} | {plan['lower_bound_ms']:.4f} | "
                    f"{'within 1 %' if plan['proven'] else 'no'} | {plan['planning_ms'] / 1000:.0f} |")
    return rows


def check(program, files):
    """Exact optima as the page has them; those that differ."""
    page = PAGE.read_text(encoding="utf-8")
    wrong = []
    for file in files:
        plan, _ = value(program, file)
        if f"{plan['value_ms']:.4f}" not in page:
            wrong.append(f"{file.stem}: {plan['value_ms']:.4f} does not stand in {PAGE.name}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default=str(SOURCE / "build" / "release"))
    parser.add_argument("--time", default="60s")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    corpus = os.environ.get("AUTOMAP_CORPUS")
    if not corpus:
        sys.exit("error: AUTOMAP_CORPUS is not set: it names the folder that holds dnn-partitioning")
    folder = pathlib.Path(corpus) / "dnn-partitioning"
    program, bench = f"{options.bin}/automap-search", f"{options.bin}/bench/bench-placement"
    files = sorted((folder / "throughput").glob("*.json"))
    if options.check:
        wrong = check(program, files)
        print("\n".join(wrong) or f"{len(files)} optima are as in {PAGE.name}")
        sys.exit(1 if wrong else 0)
    text = PAGE.read_text(encoding="utf-8")
    text = replace(text, NAME, "throughput", throughput(program, bench, files))
    text = replace(text, NAME, "latency", latency(program, sorted((folder / "latency").glob("*.json"))))
    text = replace(text, NAME, "programmes", programmes(program, folder, options.time))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
