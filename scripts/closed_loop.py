#!/usr/bin/env python3
"""Is a calibrated device believed rightly? Calibrates on the device at hand, predicts whole steps of ten models, runs
them, and compares.

    $(scripts/jax_python.sh) scripts/closed_loop.py --bin build/release [--device mine.json] [--json FILE]

Without --device, scripts/measure_device.py and automap-profile --calibrate make one first. The models are those of
scripts/export_models in sizes that a small machine trains in a second or so, none of which the calibration has seen.
Prints predicted and measured times, the median error, the rank correlation and the median ratio. Needs JAX."""

import argparse
import inspect
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def models():
    from export_models import bert, decoders, small, t5, vision

    return [
        ("mlp", lambda: small.tiny_mlp(micro_batch=8192)),
        ("lit", lambda: small.lit_small(micro_batch=8)),
        ("moe", lambda: decoders.moe_small(layers=2, width=256, heads=4, hidden=512, experts=4, vocabulary=2048,
                                           micro_batch=4, length=64)),
        ("decoder", lambda: decoders.transformer_remat(layers=2, width=256, heads=4, hidden=704, vocabulary=2048,
                                                       micro_batch=4, length=128)),
        ("decoder wide", lambda: decoders.transformer_remat(layers=2, width=512, heads=8, hidden=1408, vocabulary=8192,
                                                            micro_batch=2, length=128)),
        ("decoder scan", lambda: decoders.transformer_scan(layers=6, width=192, heads=4, hidden=512, vocabulary=1024,
                                                           micro_batch=4, length=64)),
        ("bert", lambda: bert.bert48(layers=2, width=256, heads=4, micro_batch=2, length=128)),
        ("t5", lambda: t5.t5("t5", 1, 256, 256, 1024, 4, 2, 64)),
        ("vit forward", lambda: vision.vit_forward(layers=2, width=384, heads=6, micro_batch=2)),
        ("resnet50", lambda: vision.resnet50(micro_batch=1)),
    ]


def arrays(tree):
    import jax
    import numpy

    random = numpy.random.default_rng(0)

    def leaf(abstract):
        if numpy.issubdtype(abstract.dtype, numpy.integer):
            return jax.numpy.asarray(random.integers(0, 10, abstract.shape), abstract.dtype)
        return jax.numpy.asarray(0.02 * random.standard_normal(abstract.shape), abstract.dtype)

    return jax.tree.map(leaf, tree)


def updated(model):
    """(argument, place in the result) of what a step makes anew: it goes into the next step, in the old one's memory."""
    names = list(inspect.signature(model.function).parameters)
    return [(names.index(name), int(path.strip("[]"))) for path, name in model.updates.items()
            if name in names and path.strip("[]").isdigit()]


def run_ms(model, seconds, now):
    import jax

    again = updated(model)
    step = jax.jit(model.function, donate_argnums=tuple(argument for argument, _ in again))
    compiled = step.lower(*model.arguments).compile()
    arguments = [arrays(argument) for argument in model.arguments]
    best, began, count = float("inf"), time.monotonic(), -1
    while count < 5 or time.monotonic() - began < seconds:
        start = now()
        result = jax.block_until_ready(compiled(*arguments))
        if count >= 0:
            best = min(best, now() - start)
        for argument, place in again:
            arguments[argument] = result[place]
        count += 1
    return best * 1e3


def predicted_ms(binary, text, device, folder):
    path = os.path.join(folder, "model.hlo")
    Path(path).write_text(text, encoding="utf-8")
    done = subprocess.run([binary, path, "--device", device, "--json", "--quiet"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("automap-profile: " + done.stderr)
    return sum(value for value in json.loads(done.stdout)["times_ms"].values() if value)


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    return [order.index(i) for i in range(len(values))]


def spearman(a, b):
    n = len(a)
    return 1 - 6 * sum((x - y) ** 2 for x, y in zip(ranks(a), ranks(b))) / (n * (n * n - 1))


def median(values):
    values, half = sorted(values), len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="the folder with automap-profile")
    parser.add_argument("--device", help="a calibrated device file (default: made now)")
    parser.add_argument("--json", help="also write the figures there")
    parser.add_argument("--seconds", type=float, default=3, help="about so long for each model and kernel (3)")
    parser.add_argument("--cpu-time", action="store_true", help="as measure_device.py has it; under taskset -c 0")
    options = parser.parse_args()
    import jax

    now = time.process_time if options.cpu_time else time.perf_counter

    sys.path.insert(0, str(HERE))
    binary = os.path.join(options.bin, "automap-profile")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        device = options.device
        if not device:
            measured, device = os.path.join(folder, "measured.json"), os.path.join(folder, "device.json")
            subprocess.run([sys.executable, str(HERE / "measure_device.py"), "--framework", "jax", "-o", measured,
                            "--seconds", str(options.seconds / 3)] + ["--cpu-time"] * options.cpu_time, check=True, stderr=subprocess.DEVNULL)
            print(subprocess.run([binary, "--calibrate", measured, "-o", device, "--quiet"], check=True,
                                 capture_output=True, text=True).stdout)
        for name, build in models():
            model = build()
            lowered = jax.jit(model.function).lower(*model.arguments)
            predicted = predicted_ms(binary, lowered.compiler_ir(dialect="hlo").as_hlo_text(), device, folder)
            measured_ms = run_ms(model, options.seconds, now)
            rows.append({"model": name, "predicted_ms": predicted, "measured_ms": measured_ms})
            print("%-14s predicted %9.2f ms   measured %9.2f ms   ratio %.2f" %
                  (name, predicted, measured_ms, predicted / measured_ms), flush=True)
    ratios = [row["predicted_ms"] / row["measured_ms"] for row in rows]
    summary = {
        "median_error": median([abs(ratio - 1) for ratio in ratios]),
        "rank_correlation": spearman([row["predicted_ms"] for row in rows], [row["measured_ms"] for row in rows]),
        "median_ratio": median(ratios),
        "geometric_mean": math.exp(sum(map(math.log, ratios)) / len(ratios)),
    }
    print("median error %.1f %%, rank correlation %.3f, median ratio %.2f" %
          (100 * summary["median_error"], summary["rank_correlation"], summary["median_ratio"]))
    if options.json:
        Path(options.json).write_text(json.dumps({"models": rows, **summary}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
