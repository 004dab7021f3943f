#!/usr/bin/env python3
"""Holds the device model against measured times: writes what was measured as HLO, estimates it, compares.

Examples:
  export AUTOMAP_CORPUS=~/corpus
  scripts/measure_device_model.py page                           # docs/results/device-model.md: every class, medians, worst
  scripts/measure_device_model.py compare                        # operators on a V100, by kind
  scripts/measure_device_model.py compare --only gpt_1_3B --rows          # every row of one size
  scripts/measure_device_model.py compare --half other --device my.json   # the half no constant was fitted on
  scripts/measure_device_model.py modules --out /tmp/operators   # the HLO of every measured operator

AUTOMAP_CORPUS names a folder with measured/aceso-v100 (operators on one V100), measured/vtrain-a100-single-server.csv,
hlo/perf (matrix products) and hlo/derived (modules on an MI350). Modules of operators are written once, into --modules
(default: a folder of their own in the cache), by a Python with jax: AUTOMAP_JAX_PYTHON or scripts/jax_python.sh.
Needs the target bench-module_times of a Release build.
"""

import argparse
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
SOURCE = SCRIPTS.parent
sys.path.insert(0, str(SCRIPTS))

from device_model import aceso, comparisons  # noqa: E402

PARTS = ("forward", "step")


class Failed(Exception):
    pass


# --- modules ---------------------------------------------------------------------------------------------------------


def module_cache():
    """Where modules of operators are kept: a folder per wording of operators.py, so that none is of an older one."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    wording = hashlib.sha256((SCRIPTS / "device_model/operators.py").read_bytes()).hexdigest()[:16]
    return cache / f"automap/operators-{wording}"


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
    """[[ms on every device]] of modules, in the order of the paths; devices: as bench-module_times takes them."""
    binary = Path(build) / "bench/bench-module_times"
    if not binary.exists():
        raise Failed(f"{binary} is not there: build the target bench-module_times, or give --build")
    lines = "".join(f"{path}\n" for path in paths)
    done = subprocess.run([binary, *devices], input=lines, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(done.stderr.strip())
    return [[float(ms) for ms in line.split("\t")[1:]] for line in done.stdout.splitlines()]


def estimator(arguments):
    return functools.partial(estimate, build=arguments.build)


def operators_of(rows):
    return list(dict.fromkeys(row.spec for row in rows))


def all_specs(corpus):
    """Of the operators that were measured, and of those that the measured training steps are made of."""
    rows = aceso.read(Path(corpus) / "measured/aceso-v100")
    steps = comparisons.read_steps(Path(corpus) / "measured/vtrain-a100-single-server.csv")
    return list(dict.fromkeys(operators_of(rows) + [spec for step in steps for spec in comparisons.step_specs(step).values()]))


# --- operators, on standard output -----------------------------------------------------------------------------------


def selected(rows, arguments):
    rows = [row for row in rows
            if arguments.only in f"{row.family}_{row.size}_mbs{row.micro_batch}_tp{row.width}_algo{row.algo}"]
    if arguments.half != "both":
        rows = [row for row in rows if row.fitted == (arguments.half == "fitted")]
    if not rows:
        raise Failed("no measured row is left")
    return rows


def line(name, ratios):
    count, median, low, high, worst, error = comparisons.summary(ratios)
    return f"{name:36s} {count:5d}  {median:6.2f}  {low:6.2f} {high:6.2f}  {worst:6.2f}  {100 * error:5.1f} %"


def print_row(row, predicted):
    forward, backward = predicted
    print(f"{row.family}_{row.size} mbs{row.micro_batch} tp{row.width} algo{row.algo} {row.operator:28s} "
          f"{row.forward_us:10.1f} {forward:10.1f} {forward / row.forward_us:5.2f}  "
          f"{row.backward_us:10.1f} {backward:10.1f} {backward / row.backward_us:5.2f}")


def compare(arguments):
    rows = selected(aceso.read(Path(arguments.corpus) / "measured/aceso-v100"), arguments)
    specs = operators_of(rows)
    predicted = comparisons.predict_specs(specs, ensure_modules(specs, arguments), arguments.device, estimator(arguments))
    if arguments.rows:
        for row in rows:
            print_row(row, predicted[row.spec])
    kinds = comparisons.operator_ratios(rows, predicted)
    print(f"{'predicted / measured':36s} {'rows':>5s}  {'median':>6s}  {'10 %':>6s} {'90 %':>6s}  {'worst':>6s}  {'error':>7s}")
    for name in sorted(kinds):
        print(line(name, kinds[name]))
    print(line("all operators", [ratio for ratios in kinds.values() for ratio in ratios]))
    layers = comparisons.layer_ratios(rows, predicted)
    for place, part in enumerate(("forward", "backward", "both")):
        if layers:
            print(line(f"layers, {part}", [ratios[place] for ratios in layers.values()]))


# --- the page --------------------------------------------------------------------------------------------------------


def markdown(columns, rows):
    text = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join(text + [f"| {' | '.join(row)} |" for row in rows])


COLUMNS = ("rows", "median", "10 % – 90 %", "worst", "median error")


def cells(ratios):
    count, median, low, high, worst, error = comparisons.summary(ratios)
    return [str(count), f"{median:.2f}", f"{low:.2f} – {high:.2f}", f"{worst:.2f}", f"{100 * error:.1f} %"]


def operators_section(arguments):
    rows = aceso.read(Path(arguments.corpus) / "measured/aceso-v100")
    specs = operators_of(rows)
    predicted = comparisons.predict_specs(specs, ensure_modules(specs, arguments), comparisons.V100, estimator(arguments))
    halves = {half: [row for row in rows if row.fitted == half] for half in (True, False)}
    kinds = {half: comparisons.operator_ratios(part, predicted) for half, part in halves.items()}
    every = {half: [ratio for ratios in kinds[half].values() for ratio in ratios] for half in kinds}
    table = [[name.replace("_", " "), *cells(kinds[False][name]), cells(kinds[True][name])[-1]]
             for name in sorted(kinds[False]) if name in kinds[True]]
    table.append(["**all**", *cells(every[False]), cells(every[True])[-1]])
    text = ["## Operators on a V100", "",
            "Aceso's tables: f16 transformers (GPT, T5) at widths 1 to 8, f32 wide ResNets at width 1, one operator at a time "
            f"under PyTorch 1.12, whose host is taken to need {comparisons.EAGER_HOST_US} us per kernel. On the half that no "
            "constant was fitted on (`Row.fitted` in `scripts/device_model/aceso.py`), and the error on the other.", "",
            markdown(("operator", *COLUMNS, "fitted half"), table), "",
            "Far off are those that PyTorch runs in other kernels than a compiler would: heads and embeddings (many passes), "
            "and what the host bounds; the gradients of norms and of causal softmax are off for "
            "reasons nobody has looked for. All-reduces inside the measured time are taken out "
            "by Aceso's own tables.", "", "### Layers", "",
            "The operators of one layer, with the measured all-reduces on both sides, median and worst over sizes, on the half "
            "not fitted.", ""]
    groups = {}
    for (family, _, b, t, _, block), ratios in comparisons.layer_ratios(halves[False], predicted).items():
        groups.setdefault((f"{family} {block}", b), {}).setdefault(t, []).append(ratios[2])
    widths = (1, 2, 4, 8)
    table = []
    for (name, b), by_width in sorted(groups.items()):
        table.append([name, str(b)] + [f"{comparisons.summary(by_width[t])[1]:.2f} ({comparisons.summary(by_width[t])[4]:.2f})"
                                       for t in widths])
    text.append(markdown(("layer", "micro-batch", *(f"width {t}" for t in widths)), table))
    return text


def products_section(arguments):
    ratios = comparisons.product_ratios(Path(arguments.corpus) / "hlo/perf/default_matmul_perf_table.txtpb",
                                        Path(arguments.modules), estimator(arguments))
    table = []
    for (name, key), pairs in ratios.items():
        fitted = [ratio for half, ratio in pairs if half]
        table.append([f"{comparisons.PRODUCT_DEVICES[name]} {key.split('x')[0]}", *cells([r for half, r in pairs if not half]),
                      cells(fitted)[-1]])
    return ["## Matrix products on H100 and B200", "",
            "The 375 products per type, 256³ to 4×4096³, that XLA ships, measured one launch at a time "
            f"({comparisons.SINGLE_LAUNCH_US} us). Every other one was fitted on. The table's f8 rows of the H100 lie up to a "
            "third above its peak: nothing was fitted on them.", "",
            markdown(("device and type", *COLUMNS, "fitted half"), table)]


def modules_section(arguments):
    measured = comparisons.module_times(Path(arguments.corpus) / "hlo")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as device:
        json.dump(comparisons.MI350, device)
        device.flush()
        estimated = [ms for (ms,) in estimate([path for path, _, _ in measured], [device.name], arguments.build)]
    table = [[path.name.split(".")[0], f"{ms:.2f}", f"{predicted:.2f}", f"{predicted / ms:.2f}"]
             for (path, _, ms), predicted in zip(measured, estimated)]
    ratios = [predicted / ms for (_, _, ms), predicted in zip(measured, estimated)]
    rank = comparisons.rank_correlation([ms for _, _, ms in measured], estimated)
    return ["## Whole modules on an MI350", "",
            "By a device file with the figures of its data sheet alone, so with the default constants.", "",
            markdown(("module", "measured ms", "estimated ms", "ratio"), table), "",
            f"Median {comparisons.summary(ratios)[1]:.2f}, median error {100 * comparisons.summary(ratios)[5]:.0f} %, rank "
            f"correlation {rank:.3f}. The one convolutional network is imagenette."]


def steps_section(arguments):
    steps = comparisons.read_steps(Path(arguments.corpus) / "measured/vtrain-a100-single-server.csv")
    specs = list(dict.fromkeys(spec for step in steps for spec in comparisons.step_specs(step).values()))
    predicted = comparisons.predict_specs(specs, ensure_modules(specs, arguments), comparisons.A100, estimator(arguments))
    estimated = [comparisons.step_ms(step, predicted) for step in steps]
    ratios = {}
    for step, ms in zip(steps, estimated):
        ratios.setdefault((step.size.hidden, step.micro_batch, step.layers), []).append(ms / step.measured_ms)
    halves = {fitted: {key[:2]: part for key, part in ratios.items() if (key[2] == comparisons.VTRAIN_FITTED_LAYERS) == fitted}
              for fitted in (True, False)}
    table = [[*map(str, key), *cells(part), cells(halves[True][key])[-1]] for key, part in sorted(halves[False].items())]
    rank = comparisons.rank_correlation([step.measured_ms for step in steps], estimated)
    return ["## Training steps on A100s", "",
            "vTrain's 720 steps of GPT models on up to eight A100s under Megatron: the operators above at the widths and "
            "micro-batches of a plan, summed into 1F1B by hand. A part of the measurements is extrapolated in the number of "
            f"layers, so what counts are the ranks: correlation {rank:.3f} over all. Below, the models of 20 layers; products in "
            f"f16 were fitted on those of {comparisons.VTRAIN_FITTED_LAYERS}.", "",
            markdown(("hidden", "micro-batch", *COLUMNS, "fitted half"), table)]


def printed_by(script, *arguments):
    done = subprocess.run([sys.executable, "-B", SCRIPTS / script, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(done.stderr.strip())
    return ["```text", done.stdout.rstrip(), "```"]


def links_section(arguments):
    return ["## Links", "",
            "Every other size was fitted on; median error (worst) of both halves. What was measured on no link (A100, H200, ports "
            "between servers but the V100's) is in no row: a plan's report says so.", "",
            *printed_by("fit_links.py", arguments.corpus)]


def memory_section(arguments):
    return ["## Memory of a layer", "",
            "One layer of GPT against what PyTorch kept of it, by `scripts/measure_memory_model.py`, whose text says what is "
            "compared. What an eager framework reserves is a ratio, no aim.", "",
            *printed_by("measure_memory_model.py", "--corpus", arguments.corpus, "--build", arguments.build)]


def page(arguments):
    text = ["# The device model against measurements", "",
            "Written by `scripts/measure_device_model.py page`; predicted / measured, so below 1 is too fast. What is modelled and "
            "where its constants are from: [device-model.md](../device-model.md).", ""]
    for section in (operators_section, products_section, modules_section, steps_section, links_section, memory_section):
        text += [*section(arguments), ""]
    content = "\n".join(text).rstrip() + "\n"
    if arguments.output == "-":
        sys.stdout.write(content)
    else:
        Path(arguments.output).write_text(content)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    cache = module_cache()
    for name in ("modules", "compare", "page"):
        command = commands.add_parser(name)
        command.add_argument("--corpus", default=os.environ.get("AUTOMAP_CORPUS"), help="default: AUTOMAP_CORPUS")
        if name == "modules":
            command.add_argument("--out", default=str(cache), metavar="FOLDER")
            continue
        command.add_argument("--modules", default=str(cache), metavar="FOLDER")
        command.add_argument("--build", default=str(SOURCE / "build/release"), metavar="FOLDER")
        if name == "page":
            command.add_argument("-o", "--output", default=str(SOURCE / "docs/results/device-model.md"), metavar="FILE")
            continue
        command.add_argument("--device", default=comparisons.V100, help=f"default: {comparisons.V100}")
        command.add_argument("--only", default="", metavar="TEXT", help="files whose name has this in it")
        command.add_argument("--half", choices=("fitted", "other", "both"), default="both")
        command.add_argument("--rows", action="store_true", help="every row, in microseconds")
    arguments = parser.parse_args()
    try:
        if not arguments.corpus:
            raise Failed("no corpus: set AUTOMAP_CORPUS or give --corpus")
        if arguments.command == "modules":
            write_modules(all_specs(arguments.corpus), Path(arguments.out))
        else:
            {"compare": compare, "page": page}[arguments.command](arguments)
    except Failed as failed:
        sys.exit(f"measure_device_model.py: {failed}")


if __name__ == "__main__":
    main()
