#!/usr/bin/env python3
"""The paper's Table 8 beside our own answers: BERT-48, T5 6+6 and VGG-19 on cluster C in four stages on a grid of 128 pivots. Writes
docs/results/table8.md.

Examples:
  scripts/table8.py                                 # with the shipped policy
  scripts/table8.py --policy runs/s1/policy.bin --policy runs/s2/policy.bin
  scripts/table8.py --quick                         # the smallest model, an untrained network

Needs Python's standard library and a Release build with benches. Takes seconds.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import policy_report as report
from policy_report import Failed, SOURCE, milliseconds, table

MODELS = ("bert48", "t5_6_6", "vgg19")
TITLES = {"bert48": "BERT-48", "t5_6_6": "T5 6+6", "vgg19": "VGG-19"}
CUTS, DEVICES = "34,66,98", "8,16,24"
SHOWN_MICRO_BATCHES = 16


def numbers(values):
    return "(" + ", ".join(map(str, values)) + ")"


def gib(value):
    return f"{value / 2 ** 30:.1f}"


def feasible(plan):
    return not plan["infeasible"]


def stage_rows(plan):
    rows = []
    for s, stage in enumerate(plan["stages"], 1):
        layers = stage["first_layer"] if stage["first_layer"] == stage["last_layer"] else \
            f"{stage['first_layer']} .. {stage['last_layer']}"
        rows.append([s, layers[:56], stage["instructions"], stage["devices"], milliseconds(stage["compute_ms"]),
                     milliseconds(stage["transfer_ms"]), milliseconds(stage["allreduce_ms"]), gib(stage["weight_bytes"]),
                     gib(stage["memory_bytes"])])
    return rows


def reasons(problem):
    """Sentences from the numbers: what the printed plan and the optimum differ in."""
    plans = {plan["name"]: plan for plan in problem["plans"]}
    paper, best = plans["paper"], plans.get("optimum")
    lines = []
    compute = [stage["compute_ms"] for stage in paper["stages"]]
    lines.append(f"- The printed plan's stages compute {', '.join(map(milliseconds, compute))} ms per micro-batch"
                 + (f": the longest is {max(compute) / (sum(compute) / len(compute)):.1f} times the mean." if min(compute) > 0 else "."))
    if not feasible(paper):
        lines.append(f"- It does not fit: {paper['infeasible']}.")
    lines.append(f"- What limits it: {'; '.join(paper['limits'])}.")
    if best is None:
        lines.append("- No plan of four stages fits on the grid.")
        return lines
    lines.append(f"- What limits the optimum: {'; '.join(best['limits'])}.")
    farthest = max(abs(a - b) for a, b in zip(paper["grid_cuts"], best["grid_cuts"]))
    lines.append(f"- The printed cuts are at most {farthest} point{'s' if farthest != 1 else ''} of 128 away from the optimum's.")
    most_paper, most_best = (max(s["transfer_ms"] for s in plan["stages"]) for plan in (paper, best))
    if most_paper > 2 * most_best:
        lines.append(f"- The printed cuts cross activations that take {milliseconds(most_paper)} ms one way, the optimum's at most "
                     f"{milliseconds(most_best)} ms: it moves to narrow places.")
    if best["device_cuts"] != paper["device_cuts"]:
        shares = [stage["devices"] for stage in best["stages"]]
        lines.append(f"- The optimum gives its stages {', '.join(map(str, shares))} devices instead of a server each.")
    ratio = paper["value_ms"] / best["value_ms"]
    lines.append(f"- V of the printed plan is {ratio:.2f} times the optimum's" + ("." if feasible(paper) else ", if it fitted."))
    return lines


def differences(problems):
    """What can be said of all models together."""
    lines = []
    for model in dict.fromkeys(p["model"] for p in problems):
        ratios, server_each, farthest = [], 0, 0
        cases = [p for p in problems if p["model"] == model]
        for problem in cases:
            plans = {plan["name"]: plan for plan in problem["plans"]}
            if "optimum" not in plans:
                continue
            paper, best = plans["paper"], plans["optimum"]
            ratios.append(paper["value_ms"] / best["value_ms"])
            server_each += best["device_cuts"] == paper["device_cuts"]
            farthest = max(farthest, *(abs(a - b) for a, b in zip(paper["grid_cuts"], best["grid_cuts"])))
        if ratios:
            lines.append(f"- {TITLES[model]}: V of the printed plan is {min(ratios):.2f} to {max(ratios):.2f} times the optimum's; the optimum "
                         f"uses the printed device cuts for {server_each} of {len(cases)} numbers of micro-batches, and its cuts are at most "
                         f"{farthest} points away.")
    return ["The printed cuts are those of equal counts, (32, 64, 96), two points further, for every model, on one server per stage. What "
            "that is worth depends on what the points mean, and the paper's profiles are not ours:", "\n".join(lines),
            "One server per stage is right where the all-reduce of a stage that spans servers would cost more than uneven stages do; a "
            "point of the grid more or less is the difference between a cut between two layers and one inside a layer, where "
            "many times the bytes cross; and a convolutional network has its activations at the front and its parameters at the back, so "
            "that equal counts are far from equal work. One answer for all models cannot follow that; planners that see the cost of each "
            "cut do."]


def page(args):
    build = args.build.resolve()
    models = ("vgg19",) if args.quick else MODELS
    manifest = report.read_json(SOURCE / "fixtures" / "MANIFEST.json")
    files = {m["name"]: SOURCE / "fixtures" / m["forms"]["text"]["file"] for m in manifest["models"]}
    policies = args.policy or (["untrained:1"] if args.quick else [SOURCE / "models" / "pretrained" / "pipeline.policy"])
    load = report.load_line()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "table8.json"
        options = [part for path in policies for part in ("--policy", path if str(path).startswith("untrained:") else Path(path).resolve())]
        report.run([report.program(build, "bench-policy_table8"), *(files[m] for m in models), *options, "--cluster", args.cluster,
                    "--micro-batches", "16" if args.quick else "8,16,32,64", "--cuts", CUTS, "--device-cuts", DEVICES, "-o", output])
        document = report.read_json(output)
    problems = document["problems"]
    text = [
        "# The paper's one-shot plans", *report.header("table8.py", build, args.quick), load,
        "The paper's Table 8 lists what its trained planner answers for cluster C (four servers of eight V100, NVLink inside, 25 "
        f"Gbit/s Ethernet between), four stages and 128 pivots: the cuts {CUTS.replace(',', ', ')} and the device cuts "
        f"{DEVICES.replace(',', ', ')}, the same for all the models it prints. Below: that plan, the learned planner's and the proven "
        "optimum over the same pivots, all judged by V (`docs/cost-model.md`) and by the simulation on our own profiles of "
        "`fixtures/`. The paper does not say how many micro-batches a step has or what its profiles are, and its value function "
        "leaves out what is behind the bottleneck; ours counts round trips and memory as well. (It gives \"micro-batch 16\", which "
        "may be a number or a size.)",
        "Policies:\n\n" + report.describe_policies(document["policies"]), "## Plans"]
    rows = []
    for problem in problems:
        for plan in problem["plans"]:
            gap = plan["value_ms"] / problem["optimum_ms"] - 1 if problem["optimum_ms"] and feasible(plan) else None
            rows.append([TITLES[problem["model"]], problem["micro_batches"], plan["name"], numbers(plan["grid_cuts"]),
                         numbers(plan["device_cuts"]), milliseconds(plan["value_ms"]), report.percent(gap, 2),
                         milliseconds(plan["simulated_ms"]), "" if feasible(plan) else "does not fit"])
    text.append(table(["model", "M", "plan", "cuts", "devices", "V ms", "gap %", "simulated ms", ""], rows, left=3))
    text += ["## What differs, and why", *differences(problems)]
    for problem in problems:
        if problem["micro_batches"] != SHOWN_MICRO_BATCHES:
            continue
        text += [f"### {TITLES[problem['model']]}, M = {problem['micro_batches']}", "\n".join(reasons(problem))]
        for plan in problem["plans"]:
            if plan["name"] in ("paper", "optimum"):
                text += [f"{'The printed plan' if plan['name'] == 'paper' else 'The optimum'}:",
                         table(["", "layers", "instructions", "devices", "compute ms", "transfer ms", "all-reduce ms", "weights GiB",
                                "memory GiB"], stage_rows(plan), left=2)]
    return "\n\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", help="a policy file (repeatable; default: the shipped one)")
    parser.add_argument("--cluster", default="config-c", help="preset or file (default: config-c)")
    parser.add_argument("--build", type=Path, default=SOURCE / "build" / "release", help="a Release build (default: build/release)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: one model, an untrained network")
    parser.add_argument("-o", "--output", help="- is standard output (default: docs/results/table8.md; with --quick: -)")
    args = parser.parse_args()
    try:
        report.write_page(page(args), args.output or ("-" if args.quick else str(SOURCE / "docs" / "results" / "table8.md")))
    except Failed as error:
        print(f"table8.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
