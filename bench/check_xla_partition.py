#!/usr/bin/env python3
"""Does XLA do with a partitioned module what the plan says?

  bench/check_xla_partition.py --search build/release/automap-search [--ask opp:count --ask opp:time --ask adp] FILE...

Each FILE is planned by automap-search, written with its shardings, and partitioned and compiled by XLA's SPMD
partitioner for that many host devices (jaxlib, CPU). XLA's collectives are counted right behind the partitioner, before
it combines any, and compared with the plan's: every partial sum that the plan predicts must be reduced by an all-reduce
of the same size, and anything but all-reduces (and the all-gathers that a data-parallel plan announces) is a conflict
that the plan hid. --run also executes both modules on random inputs and compares every output (small modules).

Needs a Python with jaxlib; without it, it says so and ends well. Exit code 1: some plan is contradicted.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")
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


def collectives_of(text):
    """Kind -> sizes in bytes of the results on one device."""
    found = collections.defaultdict(list)
    for line in text.splitlines():
        match = re.match(r"\s*(?:ROOT )?%?[\w.\-]+ = (.*?) ([a-z\-]+)\(", line)
        if match and match.group(2).removesuffix("-start") in COLLECTIVES:
            found[match.group(2).removesuffix("-start")].append(bytes_of(match.group(1)))
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
            module = _hlo.hlo_module_from_text(f.read())
        options = _jax.CompileOptions()
        options.num_replicas, options.num_partitions = 1, count
        options.device_assignment = _jax.DeviceAssignment.create(np.arange(count).reshape(1, count))
        build = options.executable_build_options
        build.use_spmd_partitioning, build.use_shardy_partitioner = count > 1, False
        mlir = _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
        client = jax.devices()[0].client
        return module, client.compile_and_load(mlir, _jax.DeviceList(tuple(jax.devices()[:count])), options)

    module, program = load(path, devices)
    final = collectives_of(program.hlo_modules()[0].to_string())
    before = {}
    for name in sorted(os.listdir(folder)):
        if re.search(r"after_.*spmd-partition", name) and name.endswith(".txt"):
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
            # Second moments and variances are not negative; moments begin at zero.
            value = value * 0 if re.search(r"opt_state|\.mu|\.nu|momentum", text) else value
            value = np.abs(value) if re.search(r"scale|var", text) else value
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
            worst = max(worst, float(np.max(np.abs(a - b)) / (np.max(np.abs(a)) + 1e-12)))
    return worst


def gspmd(jax, devices, s):
    from jax._src.sharding_impls import GSPMDSharding
    return GSPMDSharding(tuple(jax.devices()[:devices]), s)


# --- The comparison. ---


def plan_of(args, path, ask, folder):
    command, _, objective = ask.partition(":")
    plan, hlo = os.path.join(folder, "plan.json"), os.path.join(folder, "sharded.hlo")
    words = [args.search, command, path, "--shards", str(args.devices), "-o", plan, "--emit-hlo", hlo, "--quiet", "--budget", "10s"]
    words += ["--objective", objective] if objective else []
    words += ["--cluster", args.cluster]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[0] if done.stderr.strip() else f"exit {done.returncode}"
    with open(plan, encoding="utf-8") as f:
        return json.load(f), hlo


def missing(predicted, found):
    """Predicted sizes that have no partner among the found ones."""
    rest = collections.Counter(predicted) - collections.Counter(found)
    return sum(rest.values())


def check(args, path, ask):
    """One line of the table, and whether XLA agrees (None: there is no plan)."""
    name = f"{os.path.basename(path).split('.')[0]:32} {ask:10}"
    with tempfile.TemporaryDirectory() as folder:
        plan, hlo = plan_of(args, path, ask, folder)
        if plan is None:
            return f"{name} no plan: {hlo}", None
        dump = os.path.join(folder, "dump")
        words = [sys.executable, __file__, "--compile-one", hlo, "--devices", str(args.devices), "--dump", dump]
        if args.run:
            whole = os.path.join(folder, "whole.hlo")
            subprocess.run([args.search, "apply", path, "--plan", plan_path(folder, plan), "--emit-hlo", whole, "--quiet"], check=True)
            words += ["--original", whole]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            return f"{name} XLA refuses it: {(done.stderr.strip() or '?').splitlines()[-1][:200]}", False
        xla = json.loads(done.stdout.splitlines()[-1])
    reduced = [c for c in plan["collectives"] if c["kind"] == "all-reduce"]
    predicted = [int(c["bytes"]) for c in reduced for _ in range(int(c["partial_sums"]))]
    gathers = sum(c["kind"] == "all-gather" for c in plan["collectives"])
    found = xla["before"].get("all-reduce", [])
    others = {k: len(v) for k, v in xla["before"].items() if k != "all-reduce"}
    lost = missing(predicted, found)
    split = sum(dim >= 0 for dim in plan["partition"].values())
    line = (f"{name} {split:4} of {len(plan['partition']):4} split; partial sums {len(predicted):4}, {sum(predicted) / 1e9:8.3f} GB; "
            f"XLA's all-reduces {len(found):4}, {sum(found) / 1e9:8.3f} GB ({xla['combined'].get('all-reduce', 0)} combined); "
            f"missing {lost}, unforeseen {missing(found, predicted)}; others {others or 'none'}")
    if gathers:
        line += f"; {gathers} all-gathers announced"
    agrees = lost == 0 and (not others or gathers > 0)
    if args.run:
        line += f"; worst relative error {xla['worst_relative_error']:.1e}"
        agrees = agrees and xla["worst_relative_error"] < args.tolerance
    return line, agrees


def plan_path(folder, plan):
    """The plan with nothing split: `apply` writes the module unpartitioned."""
    whole = dict(plan, partition={name: -1 for name in plan["partition"]})
    whole.pop("inputs", None)
    path = os.path.join(folder, "whole.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({k: whole[k] for k in ("schema", "kind", "partition")} | {"shards": 1}, f)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--search", help="the automap-search program")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--cluster", default="config-a")
    parser.add_argument("--ask", action="append", metavar="opp:count|opp:time|adp", help="what to plan; all three by default")
    parser.add_argument("--run", action="store_true", help="also execute the modules and compare their outputs")
    parser.add_argument("--tolerance", type=float, default=2e-4)
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
    try:
        import jaxlib  # noqa: F401
    except ImportError as error:
        print(f"SKIPPED: jaxlib is not installed ({error}); XLA's opinion was not asked", file=sys.stderr)
        return 0
    counts = collections.Counter()
    for path in args.files:
        for ask in args.ask or ["opp:count", "opp:time", "adp"]:
            line, agrees = check(args, path, ask)
            counts[agrees] += 1
            print(("ok       " if agrees else "no plan  " if agrees is None else "DIFFERS  ") + line, flush=True)
    print(f"{counts[True]} plans as predicted, {counts[False]} not, {counts[None]} modules without a plan")
    return 1 if counts[False] else 0


if __name__ == "__main__":
    sys.exit(main())
