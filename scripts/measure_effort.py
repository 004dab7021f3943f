#!/usr/bin/env python3
"""What planning takes, and what `--effort` changes: the tables "effort" and "scale" of docs/planner.md.

    scripts/measure_effort.py [--program build/release/automap-infer] [-o docs/planner.md] [--models bert48,gpt2]
                              [--clusters config-c,h100-8x8] [--scale PRESET ...]

Every model of fixtures/hlo is planned on every cluster with every effort, on one thread: processor time and memory are
those of the whole command, reading included. With -o the tables of that page are replaced, and nothing is printed but the
plans one by one; without, the tables are printed.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import docs_tables

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("bert48", "bert_large", "gpt2", "grouped_query", "lit_small", "llama_8b", "mamba", "moe_dense", "moe_small", "moe_sort",
          "resnet50", "scan_remat", "set_prediction", "t5_24_24", "t5_6_6", "transformer_bf16", "transformer_remat",
          "transformer_scan", "unet", "vgg19")
EFFORTS = ("quick", "normal", "thorough")
# Large machines: the model, the cluster and its size, the options.
SCALES = [("gpt2", "a100", 512, ("--effort", "quick")), ("gpt2", "a100", 512, ()), ("bert48", "a100", 512, ("--effort", "quick")),
          ("llama3-70b", "h100", 16, ("--effort", "quick")), ("llama3-70b", "h100", 64, ("--effort", "quick"))]


class Planned:
    def __init__(self, program, model, cluster, options):
        command = [str(word) for word in (program, model, "--cluster", cluster, "--json", "-q", "--threads", 1, *options)]
        reading, writing = os.pipe()
        child = subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, text=True)
        os.close(writing)
        with os.fdopen(reading) as out:
            text = out.read()
        said = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            sys.exit(f"measure_effort.py: {' '.join(command)}: {said.strip()}")
        self.step_ms = json.loads(text)["simulated_step_ms"]
        self.seconds = used.ru_utime + used.ru_stime
        self.mib = used.ru_maxrss / 1024


def mean(values):
    return sum(values) / len(values)


def seconds(value):
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


def effort_rows(planned):
    """planned: {(model, cluster): {effort: Planned}}"""
    rows = ["| `--effort` | processor time: mean, most | memory: mean, most | step against `normal`: mean, longest |", "|---|---|---|---|"]
    efforts = [effort for effort in EFFORTS if all(effort in one for one in planned.values())]
    for effort in efforts:
        of = [one[effort] for one in planned.values()]
        against = [one[effort].step_ms / one["normal"].step_ms - 1 for one in planned.values()] if "normal" in efforts else []
        steps = "" if effort == "normal" or not against else f"{mean(against):+.2%}, {max(against):+.1%}"
        rows.append(f"| `{effort}` | {seconds(mean([p.seconds for p in of]))}, {seconds(max(p.seconds for p in of))} | "
                    f"{mean([p.mib for p in of]):.0f} MiB, {max(p.mib for p in of):.0f} MiB | {steps} |")
    return rows


def scale_rows(program, scales, say):
    rows = ["| model | devices | options | processor time | memory |", "|---|---|---|---|---|"]
    for model, device, servers, options in scales:
        path = ROOT / "fixtures" / "hlo" / f"{model}.hlo.gz"
        given = path if path.exists() else model
        one = Planned(program, given, f"{device}-{servers}x8", ("--batch", 16 * 8 * servers, *options))
        say(f"{model} on {servers} servers: {one.seconds:.1f} s")
        rows.append(f"| {model} | {8 * servers} {device.upper()} | {f'`{chr(32).join(options)}`' if options else ''} | {seconds(one.seconds)} | {one.mib:.0f} MiB |")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/automap-infer")
    parser.add_argument("--models", default=",".join(MODELS), help="of fixtures/hlo, commas between")
    parser.add_argument("--clusters", default="config-c,h100-8x8", help="presets, commas between")
    parser.add_argument("--efforts", default=",".join(EFFORTS), help="commas between")
    parser.add_argument("--no-scale", action="store_true", help="leave the large machines out")
    parser.add_argument("-o", "--output", type=Path, help="a page with the marks of both tables")
    args = parser.parse_args()
    models, efforts = args.models.split(","), args.efforts.split(",")
    for effort in efforts:
        if effort not in EFFORTS:
            parser.error(f"--efforts: found '{effort}', expected of {', '.join(EFFORTS)}")
    for model in models:
        if not re.fullmatch(r"\w+", model) or not (ROOT / "fixtures" / "hlo" / f"{model}.hlo.gz").exists():
            parser.error(f"--models: fixtures/hlo has no {model}.hlo.gz")
    version = docs_tables.version(args.program) if args.output else None

    def say(text):
        if args.output:
            print(text, file=sys.stderr, flush=True)

    planned = {}
    for model in models:
        for cluster in args.clusters.split(","):
            planned[model, cluster] = {
                effort: Planned(args.program, ROOT / "fixtures" / "hlo" / f"{model}.hlo.gz", cluster, ("--effort", effort))
                for effort in efforts}
            say(f"{model} on {cluster}: " + ", ".join(f"{effort} {one.step_ms:.4g} ms in {one.seconds:.1f} s"
                                                    for effort, one in planned[model, cluster].items()))
    rows = effort_rows(planned)
    scale = [] if args.no_scale else scale_rows(args.program, SCALES, say)
    if not args.output:
        print("\n".join(rows + ([""] + scale if scale else [])))
        return
    note = f"{len(planned)} questions: {len(models)} models of `fixtures/hlo` on {' and '.join(args.clusters.split(','))}, one thread. {version}."
    text = docs_tables.replace(args.output.read_text(encoding="utf-8"), "measure_effort", "effort", rows + ["", note])
    if scale:
        text = docs_tables.replace(text, "measure_effort", "scale", scale)
    args.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
