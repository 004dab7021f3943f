#!/usr/bin/env python3
"""Published systems beside ours on every fixture that is a training step: writes docs/results/rivals.md from automap-compare.

  scripts/measure_rivals.py            # all of them x four clusters; about an hour of one core
  scripts/measure_rivals.py --others   # only the section on FlexFlow and placements; about half an hour
  scripts/measure_rivals.py --quick    # one model, to standard output

Needs a Release build and Python's standard library.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from docs_tables import version

PROGRAM = "automap-compare"
SOURCE = Path(__file__).resolve().parent.parent
CLUSTERS = ["config-a", "config-b", "config-c", "h100-2x8"]
# What of a system is from its paper, what from its published code, what is ours.
PARAGRAPHS = """- **PipeDream** (SOSP 2019): dynamic program and slowest stage are the paper's, the sum of computation and exchange and the micro-batches in flight its code's
  (`optimizer_graph_hierarchical.py`); ours: costs, consecutive devices instead of a hierarchy, no stored versions of weights.
- **DAPPLE** (PPoPP 2021): the length L and its pivot are the paper's, the search is its code's (every plan of two stages, the most even one
  of more); ours: costs, consecutive devices, memory, no copies of the whole pipeline. A test recomputes the best L of its published
  VGG-19 and BERT-48 profiles on two servers of eight GPUs: 0.65425 and 0.74058 s.
- **Alpa** (OSDI 2022): the inter-operator program is the paper's (equation 2); what it would find inside a submesh is our partition at one width.
- **Galvatron/Piper** (VLDB 2023, NeurIPS 2021): equal groups and a variant per stage as in Galvatron, transfers counted as in Piper; ours: one variant and one width per stage.
  There is no planner of Piper's own: its groups of different sizes and widths are what automap-infer's own search looks at.
- **Aceso** (EuroSys 2024): the moves and their order are its code's; ours: every width and split is searched, effort is counted, no fine-tuning of operators.
- **Megatron grid** (SC 2021): every even grid of data x tensor x pipeline parallelism over whole layers, the shortest.
- **GPipe**: equal runs of instructions on groups as equal as whole samples allow, any number of stages; **data parallel**: one stage.

All are stand-ins on our costs (`plan/systems`), not the published programs. Each runs for every width and split of the batch, and the plan that is
*simulated* shortest counts, so that none is held back by its own model; so operators in parts (widths) are there for those, too, whose papers have none."""


# Those whose plans are pipelines of ours to begin with, and the others.
PIPELINES = "automap,data-parallel,gpipe,megatron,pipedream,dapple,alpa,galvatron,aceso"
OTHERS = "automap,flexflow,heuristics,tarnawski"
BEGIN, END = "<!-- others: scripts/measure_rivals.py --others -->", "<!-- end of others -->"
OTHERS_TEXT = """- **FlexFlow** (SysML 2019, `plan/systems/soap`, [soap.md](../soap.md)): the module at the whole batch of the step, `--effort normal`, what is above the devices' memory penalised.
  A strategy that is data parallel alone is a plan of ours and judged by our simulation; any other has the step of FlexFlow's own simulator ("own", without the penalty), which is
  not to be set against the others: launches and small parts cost less there, and nothing is recomputed.
- **Compiler heuristics** (1906.08168, `plan/systems/heuristics`, [heuristics.md](../heuristics.md); the design is ours): every kernel of the module at the whole batch on one device, the
  heuristic whose step is shortest, by the simulator of that page ("own"). Nothing is split, so that one step is little shorter than on one device.
- **Tarnawski et al.** (NeurIPS 2020, `plan/systems/placement`, [placement.md](../placement.md)): layers of a micro-batch on single devices, the exact programme, for every split
  of the batch; judged by our simulation as a pipeline without replicas. Its objective is the load of a device per micro-batch: filling, draining and replicas are
  not in it."""


def systems(build, model, cluster, names):
    command = [build / PROGRAM, SOURCE / "fixtures" / model["forms"]["text"]["file"], "--cluster", cluster, "--systems", names, "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"measure_rivals.py: {' '.join(map(str, command))} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["systems"]


def others(build, built, models, clusters):
    lines = []
    load = os.getloadavg()[0]
    for model in models:
        for cluster in clusters:
            ours, *rest = systems(build, model, cluster, OTHERS)
            cells = [f"{ours['simulated_step_ms']:.4g}" if ours["found"] else "-"]
            for row in rest:
                own = row.get("step_ms")
                if not row["found"]:
                    cells += ["-", "-", f"{row['search_s']:.3g}"]
                    continue
                step = f"{own:.4g} own" if own else f"{row['simulated_step_ms']:.4g}"
                # What does not fit is no result.
                cells += [step if row["fits"] else "does not fit", f"{100 * row['fullest_share']:.0f} %", f"{row['search_s']:.3g}"]
            lines.append(f"| {model['name']} | {cluster} | " + " | ".join(cells) + " |")
            print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join([
        BEGIN, "", f"{built}. Steps in ms, memory of the fullest device, search in s; load average {load:.2f} when it began.", "", OTHERS_TEXT, "",
        "| model | cluster | AutoMap | FlexFlow | memory | search | heuristics | memory | search | Tarnawski et al. | memory | search |", "|---" * 12 + "|", *lines, "", END])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=SOURCE / "build" / "release", type=Path, help="folder of a Release build")
    parser.add_argument("--quick", action="store_true", help="one model on one cluster, to standard output")
    parser.add_argument("--others", action="store_true", help="only the section on FlexFlow and placements, into docs/results/rivals.md")
    options = parser.parse_args()
    if not (options.build / PROGRAM).exists():
        sys.exit(f"measure_rivals.py: {options.build / PROGRAM} is missing: build it first")
    built = version(options.build / PROGRAM)  # refused before an hour of measuring, not behind it
    manifest = json.loads((SOURCE / "fixtures" / "MANIFEST.json").read_text())
    models = sorted((m for m in manifest["models"] if m["kind"] == "train"), key=lambda m: m["forms"]["text"]["bytes"])
    clusters = CLUSTERS
    if options.quick:
        models, clusters = models[:1], CLUSTERS[:1]
    path = SOURCE / "docs" / "results" / "rivals.md"
    if options.others and not options.quick:
        page = path.read_text()
        begin, end = page.index(BEGIN), page.index(END) + len(END)
        path.write_text(page[:begin] + others(options.build, built, models, clusters) + page[end:])
        return
    load = os.getloadavg()[0]
    names, lines, ratios, shorter, none, seconds = [], [], {}, {}, {}, {}
    for model in models:
        for cluster in clusters:
            rows = systems(options.build, model, cluster, PIPELINES)
            names = [row["name"] for row in rows]
            ours = rows[0]
            cells = []
            gap = f"{100 * ours['gap']:.1f} %" if "gap" in ours else "not known"
            for row in rows:
                seconds.setdefault(row["name"], []).append(row["search_s"])
                if not row["found"] or not ours["found"]:
                    none[row["name"]] = none.get(row["name"], 0) + (not row["found"])
                    cells.append("-" if not row["found"] else f"{row['simulated_step_ms']:.4g} ms")
                    continue
                ratio = row["simulated_step_ms"] / ours["simulated_step_ms"]
                ratios.setdefault(row["name"], []).append(ratio)
                shorter[row["name"]] = shorter.get(row["name"], 0) + (ratio < 1 - 1e-9)
                cells.append(f"{ratio:.3f}" if row is not ours else f"{row['simulated_step_ms']:.4g} ms, gap {gap}")
            lines.append(f"| {model['name']} | {cluster} | " + " | ".join(cells) + " |")
            print(lines[-1], file=sys.stderr, flush=True)
    summary = [f"| {name} | {len(ratios.get(name, []))} | {none.get(name, 0)} | {statistics.fmean(ratios[name]):.3f} | {max(ratios[name]):.3f} | "
               f"{shorter.get(name, 0)} | {statistics.median(seconds[name]):.3g} | {max(seconds[name]):.3g} |" for name in names if ratios.get(name)]
    page = "\n".join([
        "# Published systems and ours", "", "Generated by `scripts/measure_rivals.py`; do not edit.", "",
        f"{built}. {len(models)} models (fixtures) on {', '.join(clusters)}, `automap-compare`, 16 times the module's own batch. Load average {load:.2f} on "
        f"{os.cpu_count()} cores when it began. Steps by our simulation, over ours where both have a plan.", "", PARAGRAPHS, "", "## All of them", "",
        "| system | plans | none | mean | largest | shorter than ours | search s, median | largest |", "|---|---|---|---|---|---|---|---|", *summary, "",
        "## One by one", "", "| model | cluster | " + " | ".join(names) + " |", "|---|---" + "|---" * len(names) + "|", *lines, "",
        "## Plans that are no pipelines to begin with", "", others(options.build, built, models, clusters), ""])
    if options.quick:
        print(page, end="")
    else:
        path.write_text(page)


if __name__ == "__main__":
    main()
