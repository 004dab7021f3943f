#!/usr/bin/env python3
"""Does XLA do with a partitioned module what the plan says?

  bench/check_xla_partition.py --search build/release/automap-search [--ask opp:count --ask opp:time --ask adp] FILE...

Each FILE is planned by automap-search, written with its shardings, and partitioned and compiled by XLA's SPMD
partitioner for that many host devices (jaxlib, CPU). XLA's collectives are counted right behind the partitioner, before
it combines any, and compared with the plan's: every partial sum that the plan predicts must be reduced by an all-reduce
of the same size, and anything but all-reduces (and the all-gathers that a data-parallel plan announces) is a conflict
that the plan hid. Collectives in a loop count once. --run also executes both modules on random inputs and compares every
output (small modules); --quick stops XLA behind the partitioner.

Each line begins with a verdict: `ok` (XLA's all-reduces are the predicted ones), `more` (and some besides), `CONTRADICTED`
(one is missing, there are others, or outputs differ), `nothing` (no splitting, so nothing to compare) or `no answer`. The
last table adds up: agreement is what both have, of all that either has.

Needs a Python with jaxlib; without it, it says so and ends well. Exit code 1: some plan is contradicted.
"""

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")
MOVES = ("all-gather", "all-to-all", "collective-permute")  # that plans announce
BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16}


def bytes_of(shape):
    total = 0
    for name, dims in re.findall(r"\b([a-z]+\d*[a-z\d]*)\[([\d,]*)\]", shape):
        bits = BITS.get(name) or int((re.search(r"\d+", name) or ["32"])[0])
        count = 1
        for dim in filter(None, dims.split(",")):
            count *= int(dim)
        total += count * bits // 8
    return total


def group_size(line):
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    if listed:
        return len(listed.group(1).split(","))
    tiled = re.search(r"replica_groups=\[\d+,(\d+)\]", line)
    if tiled:
        return int(tiled.group(1))
    # mesh['axis_0'=2,'axis_1'=1,'axis_2'=4], device_ids=(...) {'axis_0','axis_2'}: the product of those named last.
    named = re.search(r"replica_groups=mesh\[(.*?)\].*? \{('.*?)\}", line)
    if not named:
        return 0
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", named.group(1)))
    product = 1
    for axis, part in re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", named.group(2)):
        product *= int(part or sizes[axis])
    return product


def collectives_of(text):
    """Kind -> [size in bytes of the result on one device, devices that work together (0: all)]. A computation that is
    called several times counts as often; the body of a loop counts once."""
    computations, entry, current = {}, None, None
    for line in text.splitlines():
        header = re.match(r"(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{$", line)
        if header:
            current = computations.setdefault(header.group(2), ([], []))
            entry = header.group(2) if header.group(1) else entry
        instruction = re.match(r"\s+(?:ROOT )?%?[\w.\-]+ = (.*?) ([a-z][a-z\-]*)\(", line)
        if not instruction or current is None:
            continue
        shape, opcode = instruction.group(1), instruction.group(2).removesuffix("-start")
        if opcode in COLLECTIVES:
            current[0].append((opcode, [bytes_of(shape), group_size(line)]))
        elif opcode in ("call", "while", "conditional", "fusion", "async"):
            for key, names in re.findall(r"\b(to_apply|body|condition|calls|branch_computations|true_computation|"
                                         r"false_computation)=(\{[^}]*\}|%?[\w.\-]+)", line):
                current[1].extend(re.findall(r"[\w.\-]+", names))
    found = collections.defaultdict(list)

    def visit(name, depth):
        own, called = computations.get(name, ([], []))
        for kind, size in own:
            found[kind].append(size)
        for other in called if depth < 100 else ():
            visit(other, depth + 1)

    visit(entry, 0)
    return found


# --- In a process of its own, because XLA reads its flags once: compile (and run) one module. ---


def compile_one(path, devices, folder, original):
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = (f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0 "
                               "--xla_llvm_disable_expensive_passes=true --xla_dump_hlo_as_text "
                               f"--xla_dump_to={folder} --xla_dump_hlo_pass_re=spmd-partition")
    import jax
    import numpy as np
    from jaxlib import _hlo, _jax

    def load(file, count):
        with open(file, encoding="utf-8", errors="surrogateescape") as f:
            text = f.read()
        shardy = file.endswith(".mlir")  # what --emit-sdy writes
        module = None if shardy else _hlo.hlo_module_from_text(text)
        options = _jax.CompileOptions()
        options.num_replicas, options.num_partitions = 1, count
        options.device_assignment = _jax.DeviceAssignment.create(np.arange(count).reshape(1, count))
        build = options.executable_build_options
        build.use_spmd_partitioning, build.use_shardy_partitioner = count > 1, shardy
        mlir = text if shardy else _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
        client = jax.devices()[0].client
        return module, client.compile_and_load(mlir, _jax.DeviceList(tuple(jax.devices()[:count])), options)

    module, program = load(path, devices)
    final = collectives_of(program.hlo_modules()[0].to_string())
    before = {}
    for name in sorted(os.listdir(folder)):
        if re.search(r"after_spmd-partition", name) and name.endswith(".txt"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as f:
                before = collectives_of(f.read()) or before
    answer = {"before": {k: sorted(v) for k, v in (before or final).items()}, "combined": {k: len(v) for k, v in final.items()}}
    if original:
        answer["worst_relative_error"] = run_both(jax, np, module, program, *load(original, 1), devices)
    print(json.dumps(answer))


def run_both(jax, np, module, program, module_1, program_1, devices):
    """The largest difference between the partitioned and the whole module, relative to each output's largest value."""
    import ml_dtypes
    shapes = {}
    for line in module_1.to_string().split("\nENTRY", 1)[1].splitlines():
        match = re.search(r"= (\w+)\[([\d,]*)\]\S* parameter\((\d+)\)(.*)", line)
        if match:
            dims = tuple(int(d) for d in filter(None, match.group(2).split(",")))
            shapes[int(match.group(3))] = (match.group(1), dims, match.group(4).lower() + line.lower())
    random = np.random.default_rng(0)
    inputs = []
    for number in sorted(shapes):
        kind, dims, text = shapes[number]
        if kind == "pred":
            value = np.ones(dims, bool)
        elif kind[0] in "su":
            value = (random.integers(0, 7, dims) if dims else np.zeros(())).astype({"s": "int", "u": "uint"}[kind[0]] + kind[1:])
        else:
            value = random.standard_normal(dims) * 0.05
            # Variances are not negative. Moments begin at zero, but not the second ones: a gradient divided by its own root
            # mean square is a sign, and the sign of almost nothing is whatever was added up last.
            value = value * 0 if re.search(r"opt_state|\.mu|momentum", text) and ".nu" not in text else value
            value = np.abs(value) + 0.01 * (".nu" in text) if re.search(r"scale|var|\.nu", text) else value
            value = np.asarray(value, ml_dtypes.bfloat16 if kind == "bf16" else "float" + kind[1:])
        inputs.append(value)
    whole = program_1.execute_sharded([jax.device_put(x, jax.devices()[0]) for x in inputs])
    whole = [np.asarray(parts[0]) for parts in whole.disassemble_into_single_device_arrays()]
    sharding = lambda s: jax.sharding.GSPMDSharding(tuple(jax.devices()[:devices]), s) if hasattr(
        jax.sharding, "GSPMDSharding") else gspmd(jax, devices, s)
    placed = [jax.device_put(x, sharding(s)) for x, s in zip(inputs, program.get_parameter_shardings())]
    split = program.execute_sharded(placed).disassemble_into_single_device_arrays()
    worst = 0.0
    for parts, s, expected in zip(split, program.get_output_shardings(), whole):
        found = np.asarray(jax.make_array_from_single_device_arrays(expected.shape, sharding(s), parts))
        a, b = np.asarray(expected, np.float64), np.asarray(found, np.float64)
        if not np.isfinite(a).all() or not np.isfinite(b).all():
            return float("inf")
        if a.size:
            # What should be zero is rounding alone: the gradient of an attention's key bias.
            worst = max(worst, float(np.max(np.abs(a - b)) / (np.max(np.abs(a)) + 1e-6)))
    return worst


def gspmd(jax, devices, s):
    from jax._src.sharding_impls import GSPMDSharding
    return GSPMDSharding(tuple(jax.devices()[:devices]), s)


# --- The comparison. ---


class NoAnswer(Exception):
    """There is nothing to compare, and why."""


def first_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line]
    return (errors or lines or ["?"])[-1 if not errors else 0][:220]


def search(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise NoAnswer(first_line(done.stderr) if done.stderr.strip() else f"exit {done.returncode}")
    return done.stdout


def planned(args, path, ask, shards, folder):
    """The plan that automap-search finds; writes plan.json and sharded.hlo."""
    command, objective, cuts = (ask.split(":") + ["", ""])[:3]
    mesh = re.fullmatch(r"mesh:(\d+)x(\d+)(?::(\d))?", ask)
    plan, hlo = os.path.join(folder, "plan.json"), os.path.join(folder, "sharded.hlo")
    words = ["opp" if mesh else command, path, "-o", plan, "--emit-hlo", hlo, "--quiet", "--budget", "10s", "--cluster", args.cluster]
    if mesh:
        words += ["--mesh", f"data={mesh.group(1)},model={mesh.group(2)}", "--zero", mesh.group(3) or "auto"]
    else:
        words += ["--shards", shards] + (["--objective", objective] if objective else [])
        words += ["--reshard", "off"] if cuts == "off" else []
        words += ["--sums", args.sums] if command == "opp" and getattr(args, "sums", "apart") != "apart" else []
    try:
        search(args.search, *words)
    except NoAnswer as e:
        # What XLA makes of a module is asked of one that fits no device of the cluster, too.
        if "fits into" not in str(e):
            raise
        search(args.search, *words, "--memory", "off")
    with open(plan, encoding="utf-8") as f:
        return json.load(f)


def applied(program, path, plan, folder):
    """A decision made elsewhere ({"shards": ..., "partition": ...}) with the collectives it leads to; writes plan.json and
    sharded.hlo."""
    file, hlo = os.path.join(folder, "plan.json"), os.path.join(folder, "sharded.hlo")
    plan = {"schema": "automap.plan/1", "kind": "operator"} | plan
    with open(file, "w", encoding="utf-8") as f:
        json.dump(plan, f)
    return plan | json.loads(search(program, "apply", path, "--plan", file, "--emit-hlo", hlo, "--json", "--quiet"))


def ask_xla(hlo, devices, folder, original=None, quick=False, timeout_s=None, python=sys.executable):
    """{"before": {kind: [bytes]}, "combined": {kind: count}, "worst_relative_error": ...}, the latter two unless `quick`,
    which stops XLA behind its partitioner."""
    dump = os.path.join(folder, "dump")
    os.makedirs(dump, exist_ok=True)
    words = [python, os.path.abspath(__file__), "--compile-one", hlo, "--devices", str(devices), "--dump", dump]
    words += ["--original", original] if original else []
    log = os.path.join(folder, "log")
    with open(log, "w", encoding="utf-8") as errors, open(log + ".out", "w", encoding="utf-8") as out:
        process = subprocess.Popen(words, stdout=out, stderr=errors)
        begin = time.monotonic()
        while process.poll() is None:
            time.sleep(0.1)
            late = timeout_s is not None and time.monotonic() - begin > timeout_s
            text = partitioned_text(dump) if quick and not original else None
            if late or text is not None:
                process.kill()
                process.wait()
                if text is None:
                    raise NoAnswer(f"XLA took more than {timeout_s:.0f} s")
                return {"before": {kind: sorted(sizes) for kind, sizes in collectives_of(text).items()}}
    with open(log, encoding="utf-8", errors="replace") as f:
        said = f.read()
    if process.returncode != 0:
        raise NoAnswer("XLA refuses it: " + first_line(said))
    with open(log + ".out", encoding="utf-8") as f:
        return json.loads(f.read().splitlines()[-1])


def partitioned_text(dump):
    """The module behind XLA's partitioner; None: it is not (wholly) there yet."""
    for name in sorted(os.listdir(dump), reverse=True):
        if re.search(r"after_spmd-partition", name) and name.endswith(".txt"):
            with open(os.path.join(dump, name), encoding="utf-8", errors="replace") as f:
                text = f.read()
            if "\nENTRY " in text and re.search(r"^\}\s*\Z", text[-8:], re.MULTILINE):
                return text
    return None


def axes_of(plan):
    """A plan of one axis for every axis of the mesh."""
    return list(plan["axes"].values()) if plan.get("kind") == "mesh" else [plan]


def predicted_sizes(plan, found=()):
    """Of every partial sum, each in its own type, with the devices that add it up: XLA reduces them one by one. One that
    arises on both axes of a mesh at once is reduced by all devices together, or over one axis and then the other: as it
    is in `found`. Of a plan that combines sums: of every all-reduce that it announces."""
    if plan.get("sums") == "combined":
        return sorted((int(c["bytes"]), plan["shards"]) for c in plan["collectives"] if c["kind"] == "all-reduce")
    axes = [{(source["instruction"], source["node"]): (int(source["bytes"]), axis["shards"])
             for collective in axis["collectives"] for source in collective["sources"]} for axis in axes_of(plan)]
    left, sizes = collections.Counter(found), []
    for key in axes[0] if len(axes) > 1 else ():
        if key in axes[1]:
            together = (max(axes[0][key][0], axes[1][key][0]), axes[0][key][1] * axes[1][key][1])
            if left[together] > 0:
                left[together] -= 1
                sizes.append(together)
                axes[0][key] = axes[1][key] = None
    return sorted(sizes + [size for axis in axes for size in axis.values() if size])


def found_sizes(xla, kind, devices):
    return sorted((size, group or devices) for size, group in xla["before"].get(kind, []))


# Of a tensor's bytes, what a collective leaves on a device; a border is announced by itself.
def left_on_a_device(collective, shards):
    return int(collective["bytes"] / (shards if collective["kind"] == "all-to-all" else 1))


def announced_sizes(plan):
    """Kind -> [what it leaves on a device, devices that work together] of what moves tensors and adds nothing up."""
    sizes = collections.defaultdict(list)
    for axis in axes_of(plan):
        for c in axis["collectives"]:
            if c["kind"] in MOVES:
                sizes[c["kind"]].append((left_on_a_device(c, axis["shards"]), axis["shards"]))
    return sizes


def splits(plan):
    """The dimension of everything that was decided, on every axis."""
    return [dim for axis in axes_of(plan) for dim in axis["partition"].values()]


def missing(wanted, found):
    """The sizes that have no partner among the found ones."""
    return sorted((collections.Counter(wanted) - collections.Counter(found)).elements())


def sizes_text(sizes):
    counted = sorted(collections.Counter(sizes).items(), reverse=True)
    shown = ", ".join(f"{n} x {size}" if n > 1 else str(size) for (size, _), n in counted[:6])
    return shown + (", ..." if len(counted) > 6 else "")


def compare(plan, xla):
    """The numbers of a row of the table."""
    devices = plan["shards"]
    found = found_sizes(xla, "all-reduce", devices)
    predicted = predicted_sizes(plan, found)
    lost, unforeseen = missing(predicted, found), missing(found, predicted)
    others = {kind: len(sizes) for kind, sizes in xla["before"].items() if kind != "all-reduce" and sizes}
    announced = {kind: sorted(sizes) for kind, sizes in announced_sizes(plan).items()}
    exchanged = [size for kind in MOVES for size in missing(found_sizes(xla, kind, devices), announced.get(kind, []))]
    # A plan with gathers says where it wants them, and XLA moves the data as it likes.
    contradicted = bool(others) and not announced
    return {"split": sum(dim >= 0 for dim in splits(plan)), "of": len(splits(plan)),
            "predicted": predicted, "found": found, "lost": lost, "unforeseen": unforeseen, "others": others,
            "announced": announced, "exchanged": exchanged,
            "agrees": not lost and not unforeseen and others == {kind: len(sizes) for kind, sizes in announced.items()} and not exchanged,
            "legal": not lost and not contradicted}


def text_of(row, xla):
    combined = xla.get("combined", {}).get("all-reduce")
    line = (f"{row['split']:4} of {row['of']:4} split; partial sums {len(row['predicted']):4}, {sum(size for size, _ in row['predicted']) / 1e9:8.3f} GB; "
            f"XLA's all-reduces {len(row['found']):4}, {sum(size for size, _ in row['found']) / 1e9:8.3f} GB")
    line += f" ({combined} combined)" if combined is not None else ""
    line += f"; missing {len(row['lost'])}, unforeseen {len(row['unforeseen'])}"
    line += f" (missing {sizes_text(row['lost'])})" if row["lost"] else ""
    line += f" (unforeseen {sizes_text(row['unforeseen'])})" if row["unforeseen"] else ""
    line += f"; others {row['others'] or 'none'}"
    line += "".join(f"; {len(sizes)} {kind}s announced" for kind, sizes in row["announced"].items())
    line += f" (not announced {sizes_text(row['exchanged'])})" if row["announced"] and row["exchanged"] else ""
    if "worst_relative_error" in xla:
        line += f"; worst relative error {xla['worst_relative_error']:.1e}"
    return line


def whole_hlo(program, path, plan, folder):
    """The module with nothing split."""
    inner = os.path.join(folder, "whole")
    os.makedirs(inner, exist_ok=True)
    one = axes_of(plan)[-1]
    applied(program, path, {"kind": one.get("kind", "operator"), "shards": 1,
                            "partition": {name: -1 for name in one["partition"]}}, inner)
    return os.path.join(inner, "sharded.hlo")


def check(args, path, ask):
    """(verdict, one line of the table, numbers or None)."""
    path, at, number = path.rpartition("@") if re.search(r"@\d+$", path) else (path, "", "")
    mesh = re.match(r"mesh:(\d+)x(\d+)", ask)
    shards = int(mesh.group(1)) * int(mesh.group(2)) if mesh else int(number) if at else args.devices
    with tempfile.TemporaryDirectory() as folder:
        try:
            plan = planned(args, path, ask, shards, folder)
            # A batch (or heads) that the devices do not divide: on fewer.
            while not at and shards > 2 and not ask.startswith("mesh") and not any(dim >= 0 for dim in splits(plan)):
                shards //= 2
                plan = planned(args, path, ask, shards, folder)
            name = f"{os.path.basename(path).split('.')[0]:32} {ask:10} {shards:2} "
            if not any(dim >= 0 for dim in splits(plan)):
                return "nothing", name + "nothing to split: XLA has nothing to say", None
            original = whole_hlo(args.search, path, plan, folder) if args.run else None
            if args.keep:
                shutil.copy(os.path.join(folder, "sharded.hlo"), args.keep)
                shutil.copy(os.path.join(folder, "plan.json"), args.keep)
            xla = ask_xla(os.path.join(folder, "sharded.hlo"), shards, folder, original, args.quick, args.timeout)
            if args.keep:
                shutil.copytree(os.path.join(folder, "dump"), os.path.join(args.keep, "dump"), dirs_exist_ok=True)
        except NoAnswer as why:
            return "no answer", f"{os.path.basename(path).split('.')[0]:32} {ask:10} {shards:2} {why}", None
    row = compare(plan, xla)
    wrong = args.run and not xla["worst_relative_error"] < args.tolerance
    verdict = "CONTRADICTED" if wrong or not row["legal"] else "ok" if row["agrees"] else "more"
    return verdict, name + text_of(row, xla), row


def summary(rows):
    """Per question: plans, how many as predicted, all-reduces predicted, found, in both, and the share that agrees."""
    lines = [f"{'':10} {'plans':>6} {'exact':>6} {'predicted':>10} {'found':>7} {'both':>7} {'other':>6} {'agreement':>10}"]
    asks = list(dict.fromkeys(ask for ask, _ in rows))
    for ask in [*asks, "all"]:
        some = [row for asked, row in rows if ask in (asked, "all")]
        predicted, found = sum(len(r["predicted"]) for r in some), sum(len(r["found"]) for r in some)
        both = predicted - sum(len(r["lost"]) for r in some)
        other = sum(sum(r["others"].values()) for r in some if not r["announced"])
        union = predicted + found - both + other
        lines.append(f"{ask:10} {len(some):6} {sum(r['agrees'] for r in some):6} {predicted:10} {found:7} {both:7} {other:6} "
                     f"{100 * both / union if union else 100:9.2f}%")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--search", help="the automap-search program")
    parser.add_argument("--devices", type=int, default=8,
                        help="shards; halved for modules of which nothing can be split by so many (FILE@N: N and no others)")
    parser.add_argument("--cluster", default="config-a")
    parser.add_argument("--ask", action="append", metavar="opp:count|opp:time|adp|opp:time:off|mesh:4x2|mesh:8x1:3",
                        help="what to plan, the first three by default; off: no group cut; mesh: data x model, with a level "
                        "of ZeRO if wanted")
    parser.add_argument("--sums", choices=("apart", "combined"), default="apart",
                        help="of opp: combined, the plan's all-reduces are held against XLA's, instead of its partial sums")
    parser.add_argument("--run", action="store_true", help="also execute the modules and compare their outputs")
    parser.add_argument("--quick", action="store_true", help="stop XLA behind its partitioner: nothing is compiled")
    parser.add_argument("--timeout", type=float, metavar="S", help="for each module in XLA")
    parser.add_argument("--tolerance", type=float, default=2e-4)
    parser.add_argument("--keep", metavar="FOLDER", help="leave the last plan, module and XLA's dumps here")
    parser.add_argument("--compile-one", help=argparse.SUPPRESS)
    parser.add_argument("--dump", help=argparse.SUPPRESS)
    parser.add_argument("--original", help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", metavar="FILE")
    args = parser.parse_args()
    if args.compile_one:
        os.makedirs(args.dump, exist_ok=True)
        compile_one(args.compile_one, args.devices, args.dump, args.original)
        return 0
    if not args.search or not args.files:
        parser.error("--search and at least one FILE are needed")
    if args.run and args.quick:
        parser.error("--run executes what --quick does not compile")
    try:
        import jaxlib  # noqa: F401
    except ImportError as error:
        print(f"SKIPPED: jaxlib is not installed ({error}); XLA's opinion was not asked", file=sys.stderr)
        return 0
    if args.keep:
        os.makedirs(args.keep, exist_ok=True)
    rows, verdicts = [], collections.Counter()
    for path in args.files:
        for ask in args.ask or ["opp:count", "opp:time", "adp"]:
            verdict, line, row = check(args, path, ask)
            verdicts[verdict] += 1
            rows += [(ask, row)] if row else []
            print(f"{verdict:12} {line}", flush=True)
    print("\n" + summary(rows))
    print(f"{verdicts['ok']} plans exactly as predicted, {verdicts['more']} with more all-reduces than predicted, "
          f"{verdicts['CONTRADICTED']} contradicted, {verdicts['nothing']} that split nothing, "
          f"{verdicts['no answer']} modules without an answer")
    return 1 if verdicts["CONTRADICTED"] else 0


if __name__ == "__main__":
    sys.exit(main())
