#!/usr/bin/env python3
"""Steps of decoders on one device that others measured and published, beside what AutoMap says of them.

    $(scripts/jax_python.sh) scripts/measure_published_steps.py single_device.tsv [--programs build/release]

The file: tab-separated with a header; of its columns `kind` (rows of `gpt` without dropout and recomputation count),
`arguments` (JSON: h, L, heads, V, seq, b, dt), `device`, `samples_per_s` and `accumulation_steps`. The step is that of
scripts/export_decoder.py of the same sizes. Prints predicted / measured time of every row (below 1: too fast) and by device
their geometric mean and mean error.
"""
import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
CLUSTERS = {"a100": "a100-2x8", "h100": "h100-1x8", "h200": "h200-1x8"}
MOST_STEPS = 8  # of accumulation: more change nothing


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"measure_published_steps.py: {command[0]} failed: {done.stderr.strip()}")
    return done.stdout


def predicted_samples_per_s(row, sizes, programs, folder):
    hlo = folder / "step.hlo"
    run([sys.executable, "-B", SCRIPTS / "export_decoder.py", "--num-layers", str(sizes["L"]), "--hidden-size", str(sizes["h"]),
         "--num-attention-heads", str(sizes["heads"]), "--vocab-size", str(sizes["V"]), "--seq-length", str(sizes["seq"]),
         "--micro-batch-size", str(sizes["b"]), *(["--bf16"] if sizes["dt"] == "bfloat16" else ["--fp16"]), "-o", hlo])
    samples = sizes["b"] * min(MOST_STEPS, int(row["accumulation_steps"]))
    plan = json.loads(run([programs / "automap-infer", hlo, "--cluster", CLUSTERS[row["device"].split("-")[0]], "--batch", str(samples),
                           "--layout", f"dp=1,micro-batch-size={sizes['b']}", "--memory", "off", "--json"]))
    return samples / plan["simulated_step_ms"] * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--programs", type=Path, default=SCRIPTS.parent / "build/release", metavar="DIR")
    options = parser.parse_args()
    with open(options.file, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            sizes = json.loads(row["arguments"])
            wanted = row["kind"] == "gpt" and not sizes.get("r") and not sizes.get("remat") and sizes["dt"] != "float32"
            if not wanted or row["device"].split("-")[0] not in CLUSTERS:
                continue
            ratio = float(row["samples_per_s"]) / predicted_samples_per_s(row, sizes, options.programs.resolve(), Path(folder))
            found.setdefault(row["device"], []).append(ratio)
            print(f"{row['device']:12} {row['name']:32} {ratio:5.2f}", flush=True)
    for device, ratios in found.items():
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        error = sum(abs(ratio - 1) for ratio in ratios) / len(ratios)
        print(f"{device}: {len(ratios)} steps, geometric mean {mean:.2f}, mean error {100 * error:.0f} %")
    if not found:
        sys.exit(f"measure_published_steps.py: {options.file} has no row of a decoder without dropout on {', '.join(CLUSTERS)}")


if __name__ == "__main__":
    main()
