#!/usr/bin/env python3
"""Measures how large all-reduces and transfers are against the compute on real models and clusters: what the default
ranges of `automap-datagen` are chosen from (docs/datagen.md).

Examples:
  cmake --build --preset release && scripts/measure_scales.py
  AUTOMAP_CORPUS=~/models scripts/measure_scales.py --build build   # with HLO and profiles of your own

AUTOMAP_CORPUS names a folder with HLO training steps in hlo/train_*/*.hlo and profiles in profiles/**/*.txt.
Per profile, cluster and micro-batch count:
  all-reduce  2 (D-1)/D W / slowest link, over M c / D: a ring over all devices against one step's compute per device
  transfer    median (and largest) a / slowest link, over c / D: one activation against a micro-batch's compute per device
  stash       bytes kept for the backward over the sum of the 128 points' activations
Needs nothing but Python's standard library.
"""

import argparse
import csv
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
# Servers, devices per server, GB/s of the slowest link: the paper's clusters, 8x8 of the same, today's in a cloud.
CLUSTERS = {
    "config-a": (2, 8, 3.125),
    "config-b": (3, 8, 3.125),
    "config-c": (4, 8, 3.125),
    "8x8": (8, 8, 3.125),
    "a100-cloud-4x8": (4, 8, 50.0),
}
FAST = 312 / 125  # f16 rate of an A100 over a V100's: how much faster the same compute is there
MICRO_BATCHES = (8, 16, 64)
POINTS = 128


def columns_of_csv(path):
    with open(path, newline="") as file:
        lines = [line for line in file if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    return {key: [float(row[key]) for row in rows] for key in ("c_ms", "a_bytes", "w_bytes", "stash_bytes")}


def columns_of_layers(path):
    """PipeDream's and DAPPLE's lists; a layer's output stands for the cut after it:
    nodeN -- name -- forward_compute_time=.., backward_compute_time=.., activation_size=.., parameter_size=.."""
    made = {"c_ms": [], "a_bytes": [], "w_bytes": [], "stash_bytes": []}
    for line in Path(path).read_text().splitlines():
        if "forward_compute_time=" not in line:
            continue
        values = dict(re.findall(r"(\w+)=(\[[^\]]*\]|[^,\s]+)", line))
        # Several tensors cross: "[37850112; 12616704]".
        values["activation_size"] = sum(float(v) for v in values["activation_size"].strip("[]").split(";"))
        made["c_ms"].append(float(values["forward_compute_time"]) + float(values["backward_compute_time"]))
        made["a_bytes"].append(float(values["activation_size"]))
        made["w_bytes"].append(float(values["parameter_size"]))
        made["stash_bytes"].append(0.0)
    return made if len(made["c_ms"]) > 1 else None


def profile_of(path, build, folder):
    if path.suffix == ".txt":
        layers = columns_of_layers(path)
        if layers:
            return layers
    target = Path(folder) / "profile.csv"
    done = subprocess.run(
        [str(build / "automap-profile"), str(path), "-o", str(target), "--quiet"], capture_output=True, text=True
    )
    if done.returncode != 0:
        print(f"left out {path.name}: {(done.stderr.strip().splitlines() or ['failed'])[0]}", file=sys.stderr)
        return None
    return columns_of_csv(target)


def models(corpus):
    found = sorted(p for p in (SOURCE / "fixtures" / "hlo").glob("*.hlo.gz") if "stripped" not in p.name and "tiny" not in p.name)
    if corpus:
        found += sorted(Path(corpus).glob("hlo/train_*dev/*.hlo")) + sorted(Path(corpus).glob("profiles/**/*.txt"))
    return [p for p in found if not p.name.startswith(("LICENSE", "README"))]


def short(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=SOURCE / "build" / "release")
    args = parser.parse_args()
    if not (args.build / "automap-profile").exists():
        sys.exit(f"no {args.build}/automap-profile: build it, or name the folder with --build")
    ratios = {"all-reduce": [], "transfer, median": [], "transfer, largest": [], "stash": []}
    print(f"{'model':34} {'n':>6} {'variables':>9}  all-reduce A B C 8x8, M = 16   transfer (median | largest) C   stash")
    with tempfile.TemporaryDirectory() as folder:
        for path in models(os.environ.get("AUTOMAP_CORPUS")):
            profile = profile_of(path, args.build, folder)
            if not profile or sum(profile["c_ms"]) <= 0:
                continue
            n = len(profile["c_ms"])
            compute, weights = sum(profile["c_ms"]), sum(profile["w_bytes"])
            ends = sorted({k * n // POINTS for k in range(1, POINTS + 1)} - {0})
            crossing = [profile["a_bytes"][i - 1] for i in ends if profile["a_bytes"][i - 1] > 0] or [0.0]
            middle, largest = statistics.median(crossing), max(crossing)
            stash = sum(profile["stash_bytes"]) / sum(crossing) if sum(crossing) > 0 else 0
            if stash > 0:
                ratios["stash"].append(stash)
            shown = {}
            for name, (servers, per_server, gbytes) in CLUSTERS.items():
                devices, per_ms = servers * per_server, gbytes * 1e6
                ms = compute / (FAST if name.startswith("a100") else 1)
                for m in MICRO_BATCHES:
                    allreduce = 2 * (devices - 1) / devices * weights / per_ms / (m * ms / devices)
                    if weights > 0:
                        ratios["all-reduce"].append(allreduce)
                    if m == 16:
                        shown[name] = allreduce
                if middle > 0:
                    ratios["transfer, median"].append(middle / per_ms * devices / ms)
                    ratios["transfer, largest"].append(largest / per_ms * devices / ms)
                if name == "config-c":
                    transfer = (middle / per_ms * devices / ms, largest / per_ms * devices / ms)
            variables = sum(1 for w in profile["w_bytes"] if w > 0)
            print(
                f"{path.name[:34]:34} {n:6} {variables:9}  "
                + " ".join(f"{short(shown[c]):>6}" for c in list(CLUSTERS)[:4])
                + f"   {short(transfer[0]):>6} | {short(transfer[1]):>6}   {short(stash):>6}"
            )
    print(f"\n{'quantiles over all':20} {'cases':>6}" + "".join(f"{p:>8} %" for p in (0, 5, 25, 50, 75, 95, 100)))
    for name, values in ratios.items():
        values.sort()
        if values:
            cells = [values[round(p / 100 * (len(values) - 1))] for p in (0, 5, 25, 50, 75, 95, 100)]
            print(f"{name:20} {len(values):6}" + "".join(f"{short(v):>10}" for v in cells))


if __name__ == "__main__":
    main()
