#!/usr/bin/env python3
"""Holds the device model against measured times of operators: writes what was measured as HLO, estimates it, compares.

Examples:
  scripts/measure_device_model.py modules --out /tmp/operators                  # the HLO of every measured operator
  AUTOMAP_CORPUS=~/corpus scripts/measure_device_model.py compare               # predicted / measured, by operator
  scripts/measure_device_model.py compare --only gpt_1_3B --rows                # every row of one size
  scripts/measure_device_model.py compare --half other --device my_v100.json    # the half no constant was fitted on

AUTOMAP_CORPUS names a folder with measured/aceso-v100 (operators on one V100). Modules are written once, into --modules
(default: a folder of their own in the cache), by a Python with jax: AUTOMAP_JAX_PYTHON or scripts/jax_python.sh.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
SOURCE = SCRIPTS.parent
sys.path.insert(0, str(SCRIPTS))

from device_model import aceso  # noqa: E402

PARTS = ("forward", "step")


class Failed(Exception):
    pass


# --- modules ---------------------------------------------------------------------------------------------------------


def write_modules(specs, folder):
    """NAME.forward.hlo and NAME.step.hlo of every spec, those that are there already left alone. Needs jax."""
    from device_model import operators

    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for spec in specs:
        paths = {part: folder / f"{spec.name}.{part}.hlo" for part in PARTS}
        if all(path.exists() for path in paths.values()):
            continue
        for part, text in operators.modules(spec).items():
            partial = paths[part].with_suffix(".tmp")
            partial.write_text(text)
            partial.replace(paths[part])
        written += 1
    print(f"wrote {written} of {len(specs)} operators into {folder}", file=sys.stderr)


def jax_python():
    found = subprocess.run([SCRIPTS / "jax_python.sh"], capture_output=True, text=True)
    if found.returncode != 0:
        raise Failed(found.stderr.strip())
    return found.stdout.strip()


def ensure_modules(specs, arguments):
    folder = Path(arguments.modules)
    if all((folder / f"{spec.name}.{part}.hlo").exists() for spec in specs for part in PARTS):
        return folder
    command = [jax_python(), "-B", __file__, "modules", "--corpus", arguments.corpus, "--out", str(folder)]
    if subprocess.run(command).returncode != 0:
        raise Failed("the modules could not be written")
    return folder


# --- estimates -------------------------------------------------------------------------------------------------------


def estimate(paths, devices, build):
    """[[ms on every device]] of modules, in the order of the paths; devices: names or files."""
    binary = Path(build) / "bench/bench-module_times"
    if not binary.exists():
        raise Failed(f"{binary} is not there: build the target bench-module_times, or give --build")
    lines = "".join(f"{path}\n" for path in paths)
    done = subprocess.run([binary, *devices], input=lines, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(done.stderr.strip())
    return [[float(ms) for ms in line.split("\t")[1:]] for line in done.stdout.splitlines()]


def predict(specs, folder, arguments):
    """{spec: (forward us, backward us)}"""
    paths = [folder / f"{spec.name}.{part}.hlo" for spec in specs for part in PARTS]
    us = [1e3 * ms for (ms,) in estimate(paths, [arguments.device], arguments.build)]
    return {spec: (forward, step - forward) for spec, forward, step in zip(specs, us[::2], us[1::2])}


# --- comparison ------------------------------------------------------------------------------------------------------


def selected(rows, arguments):
    rows = [row for row in rows if arguments.only in f"{row.family}_{row.size}_mbs{row.micro_batch}_tp{row.width}_algo{row.algo}"]
    if arguments.half != "both":
        rows = [row for row in rows if row.fitted == (arguments.half == "fitted")]
    if not rows:
        raise Failed("no measured row is left")
    return rows


def error(ratios):
    return statistics.median(abs(ratio - 1) for ratio in ratios)


def line(name, ratios):
    ratios = sorted(ratios)
    pick = lambda share: ratios[min(len(ratios) - 1, int(share * len(ratios)))]
    return f"{name:34s} {len(ratios):5d}  {statistics.median(ratios):6.2f}  {pick(0.1):6.2f} {pick(0.9):6.2f}  {100 * error(ratios):5.1f} %"


def block_ratios(rows, predicted):
    """{(family, size, micro-batch, width, algo, block): (forward ratio, backward ratio, ratio of the sum)}"""
    sums = {}
    for row in rows:
        if not row.block:
            continue
        total = sums.setdefault((row.family, row.size, row.micro_batch, row.width, row.algo, row.block), [0.0] * 4)
        forward, backward = predicted[row.spec]
        for place, value in enumerate((forward, backward, row.forward_us, row.backward_us)):
            total[place] += value
    return {key: (s[0] / s[2], s[1] / s[3], (s[0] + s[1]) / (s[2] + s[3])) for key, s in sums.items()}


def compare(arguments):
    rows = selected(aceso.read(Path(arguments.corpus) / "measured/aceso-v100"), arguments)
    specs = list(dict.fromkeys(row.spec for row in rows))
    predicted = predict(specs, ensure_modules(specs, arguments), arguments)
    head = f"{'predicted / measured':34s} {'rows':>5s}  {'median':>6s}  {'10 %':>6s} {'90 %':>6s}  {'error':>7s}"
    kinds = {}
    for row in rows:
        forward, backward = predicted[row.spec]
        ratios = (forward / row.forward_us, backward / row.backward_us)
        for name, ratio in zip((f"{row.spec.kind} forward", f"{row.spec.kind} backward"), ratios):
            kinds.setdefault(name, []).append(ratio)
        if arguments.rows:
            print(f"{row.family}_{row.size} mbs{row.micro_batch} tp{row.width} algo{row.algo} {row.operator:28s} "
                  f"{row.forward_us:10.1f} {forward:10.1f} {ratios[0]:5.2f}  "
                  f"{row.backward_us:10.1f} {backward:10.1f} {ratios[1]:5.2f}")
    print(head)
    for name in sorted(kinds):
        print(line(name, kinds[name]))
    every = [ratio for ratios in kinds.values() for ratio in ratios]
    print(line("all operators", every))
    blocks = block_ratios(rows, predicted)
    for place, part in enumerate(("forward", "backward", "both")):
        if blocks:
            print(line(f"blocks, {part}", [ratios[place] for ratios in blocks.values()]))
    groups = {}
    for (family, _, b, t, _, block), ratios in blocks.items():
        groups.setdefault((family, block, b, t), []).append(ratios[2])
    for (family, block, b, t), ratios in sorted(groups.items()):
        print(line(f"{family} {block} layer, mb {b}, width {t}", ratios))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "automap/operators"
    for name in ("modules", "compare"):
        command = commands.add_parser(name)
        command.add_argument("--corpus", default=os.environ.get("AUTOMAP_CORPUS"), help="default: AUTOMAP_CORPUS")
        if name == "modules":
            command.add_argument("--out", default=str(cache), metavar="FOLDER")
        else:
            command.add_argument("--modules", default=str(cache), metavar="FOLDER")
            command.add_argument("--build", default=str(SOURCE / "build/release"), metavar="FOLDER")
            command.add_argument("--device", default="v100-32gb", help="a name or a device file; default: v100-32gb")
            command.add_argument("--only", default="", metavar="TEXT", help="files whose name has this in it")
            command.add_argument("--half", choices=("fitted", "other", "both"), default="both")
            command.add_argument("--rows", action="store_true", help="every row, in microseconds")
    arguments = parser.parse_args()
    try:
        if not arguments.corpus:
            raise Failed("no corpus: set AUTOMAP_CORPUS or give --corpus")
        if arguments.command == "modules":
            rows = aceso.read(Path(arguments.corpus) / "measured/aceso-v100")
            write_modules(list(dict.fromkeys(row.spec for row in rows)), Path(arguments.out))
        else:
            compare(arguments)
    except Failed as failed:
        sys.exit(f"measure_device_model.py: {failed}")


if __name__ == "__main__":
    main()
