#!/usr/bin/env python3
"""Runs random plans of a model and compares each with the unsplit step: loss, weights and optimizer state.

    scripts/check_random_plans.py [--plans 40] [--seed 0] [--bin build/release] [MODULE ...]

Without a MODULE: the small training steps of fixtures/hlo. A plan is a random layout (stages, replicas, width, ZeRO,
recomputation, schedule, micro-batches) that automap-infer scores and writes as programs (--emit-programs); automap run --check
executes them on as many host devices as it has. A layout that is no plan of the model is counted as refused, with the reason,
and another is drawn. Exits with 1 when a plan's numbers differ or its programs do not run. Needs JAX
(scripts/jax_python.sh); some seconds for each plan."""

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
# Those that two cores run in seconds, one of each kind of model.
SMALL = ("tiny_mlp.hlo", "lit_small.hlo.gz", "grouped_query.hlo.gz", "moe_dense.hlo.gz", "scan_remat.hlo.gz", "set_prediction.hlo.gz")
SCHEDULES = ("adaptive", "1f1b", "1f1b-overlap", "gpipe", "eager", "interleaved", "zb-h1", "zb-v")
DRAWS_PER_PLAN = 20
NO_PLAN = 2, 4  # wrong usage, nothing fits: the layout is none of this model
NOT_CUT = "every micro-batch"  # a step that is another one when it is taken in micro-batches is refused, and rightly
TIMEOUT_S = 600


def first_error(text):
    """What a program says of its failure: a layout that is scored and is no plan is only warned of."""
    for begin in ("error: ", "warning: "):
        for line in text.splitlines():
            if line.startswith(begin):
                return line[len(begin):]
    return text.strip() or "no message"


class Model:
    def __init__(self, path, programs):
        self.path, self.programs = path, programs
        done = subprocess.run([programs / "automap-profile", path, "--json", "--quiet"], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{path}: {first_error(done.stderr)}")
        self.samples = round(json.loads(done.stdout)["micro_batch_size"])

    def draw(self, rng):
        """A layout in automap-infer's words, the number of its devices, and the step's batch."""
        replicas = rng.choice([d for d in (1, 1, 2, 4) if self.samples % d == 0])
        width, stages, count = rng.choice((1, 1, 2)), rng.randint(1, 4), rng.randint(1, 5)
        schedule = rng.choice(SCHEDULES)
        words = {"dp": replicas, "tp": width, "pp": stages, "micro-batch-size": self.samples // replicas,
                 "zero": rng.choice((0, 1, 2, 3)) if replicas > 1 else 0, "recompute": rng.choice(("none", "none", "layer")),
                 "schedule": schedule}
        if schedule == "interleaved":
            words["chunks"] = 2
        return ",".join(f"{word}={value}" for word, value in words.items()), replicas * width * stages, self.samples * count

    def write(self, layout, batch, folder):
        """The reason why the layout is no plan, or None."""
        done = subprocess.run([self.programs / "automap-infer", self.path, "--cluster", "h100-2x8", "--batch", str(batch), "--layout", layout,
                               "--memory", "off", "--whole-loops", "--emit-programs", folder], capture_output=True, text=True)
        message = first_error(done.stderr) if done.returncode else None
        if done.returncode and done.returncode not in NO_PLAN and NOT_CUT not in message:
            raise RuntimeError(f"automap-infer ended with {done.returncode}: {message}")
        return message

    def run(self, python, folder, devices):
        flags = (f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0 "
                 "--xla_llvm_disable_expensive_passes=true")
        try:
            return subprocess.run([python, "-B", self.programs / "automap-run", folder, "--check", "--steps", "2"], capture_output=True, text=True,
                                  env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"automap run did not end within {TIMEOUT_S} s") from None


def check_model(model, plans, rng, python, folder):
    """The number of plans whose numbers differ, that do not run, or for which no layout was found."""
    equal, failed, refused = 0, 0, collections.Counter()
    while equal + failed < plans and refused.total() < DRAWS_PER_PLAN * plans:
        layout, devices, batch = model.draw(rng)
        programs = folder / f"{equal + failed}"
        try:
            reason = model.write(layout, batch, programs)
            if reason:
                refused[reason] += 1
                continue
            done = model.run(python, programs, devices)
            message = None if done.returncode == 0 else f"automap run ended with {done.returncode}: {(done.stderr or done.stdout).strip()}"
        except RuntimeError as error:
            message = str(error)
        if message is None:
            equal += 1
        else:
            failed += 1
            print(f"{model.path.name}: --batch {batch} --layout {layout}\n  {message}", flush=True)
    print(f"{model.path.name:24} {equal:4} equal {failed:4} failed {refused.total():4} layouts were none", flush=True)
    for reason, count in refused.most_common(5):
        print(f"  {count:4} x {reason}", file=sys.stderr)
    missing = plans - equal - failed
    if missing > 0:
        print(f"error: {model.path.name}: too few layouts were plans, {missing} of {plans} plans are missing", file=sys.stderr)
    return failed + missing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", metavar="MODULE", nargs="*", type=Path)
    parser.add_argument("--plans", type=int, default=40, help="of each model (40)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bin", type=Path, default=SOURCE / "build" / "release", help="the folder of the programs (build/release)")
    options = parser.parse_args()
    if options.plans < 1:
        parser.error("--plans must be at least 1")
    python = os.environ.get("AUTOMAP_JAX_PYTHON") or subprocess.run([SOURCE / "scripts" / "jax_python.sh"], check=True, text=True,
                                                                    stdout=subprocess.PIPE).stdout.strip()
    failed = 0
    for path in options.modules or [SOURCE / "fixtures" / "hlo" / name for name in SMALL]:
        with tempfile.TemporaryDirectory() as folder:
            rng = random.Random(f"{options.seed} {path.name}")
            failed += check_model(Model(path, options.bin), options.plans, rng, python, Path(folder))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
