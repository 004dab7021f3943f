#!/usr/bin/env python3
"""Holds the estimate of a device's peak memory (plan/partition/peak_memory.h) against what XLA allocates.

Examples:
  scripts/measure_memory.py                                       # training modules of fixtures/hlo, nothing split
  scripts/measure_memory.py --shards 8 FILE...                    # each planned by `automap-search opp`, on 8 host devices
  AUTOMAP_CORPUS=~/corpus scripts/measure_memory.py               # and the corpus's train_1dev

Needs bench-peak_memory, automap-search (--build) and a Python with jax (AUTOMAP_JAX_PYTHON or scripts/jax_python.sh).
GB of one device: arguments + results in no argument's place + temporaries.
  kept    what PartitionCost has counted: parameters and what the forward pass keeps for the backward pass
  plan    peak_memory
  least   XLA on a CPU, ordering instructions for memory (xla_cpu_scheduler_type) and without the fusions of YNNPACK,
          which write whole broadcasts: what XLA for accelerators does, too
  as is   XLA on a CPU as it comes: its order keeps more alive, for the sake of running side by side
The ratios are the plan's. `no answer`: XLA took longer than --timeout, or refuses the module.
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
TRAINING = ("tiny_mlp gpt2 bert_large bert48 t5_6_6 resnet50 vgg19 moe_small moe_dense moe_sort transformer_scan scan_remat "
            "transformer_remat transformer_bf16 lit_small set_prediction mamba unet").split()
GB = 1e9
LEAST = "--xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED --xla_cpu_experimental_ynn_fusion_type="


def compile_one(path, devices, flags):
    """In a process of its own, because XLA reads its flags once."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = (f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0 "
                               f"--xla_llvm_disable_expensive_passes=true {flags}")
    import jax
    import numpy as np
    from jaxlib import _hlo, _jax

    data = Path(path).read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    module = _hlo.hlo_module_from_text(text.decode("utf-8", "surrogateescape"))
    options = _jax.CompileOptions()
    options.num_replicas, options.num_partitions = 1, devices
    options.device_assignment = _jax.DeviceAssignment.create(np.arange(devices).reshape(1, devices))
    build = options.executable_build_options
    build.use_spmd_partitioning, build.use_shardy_partitioner = devices > 1, False
    mlir = _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    client = jax.devices()[0].client
    program = client.compile_and_load(mlir, _jax.DeviceList(tuple(jax.devices()[:devices])), options)
    s = program.get_compiled_memory_stats()
    print(json.dumps(s.argument_size_in_bytes + s.output_size_in_bytes - s.alias_size_in_bytes + s.temp_size_in_bytes))


def ask_xla(args, path, devices, flags):
    """Bytes of one device; None: no answer."""
    try:
        done = subprocess.run([args.python, __file__, "--compile-one", path, "--devices", str(devices), f"--flags={flags}"],
                              capture_output=True, text=True, errors="replace", timeout=args.timeout)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{words[0]}: {done.stderr.strip()}")
    return done.stdout


def measure(args, path, folder):
    bench, search = args.build / "bench" / "bench-peak_memory", args.build / "automap-search"
    plan, hlo = Path(folder) / "plan.json", Path(folder) / "sharded.hlo"
    run(search, "opp", path, "--shards", args.shards, "-o", plan, "--emit-hlo", hlo, "--quiet", "--budget", "10s",
        *(["--cluster", args.cluster] if args.cluster else []))
    planned = json.loads(run(bench, path, *([plan] if args.shards > 1 else [])))
    kept = json.loads(plan.read_text(encoding="utf-8"))["estimate"]["memory_bytes"]
    compiled = hlo if args.shards > 1 else path
    return {"kept": kept, "plan": planned["total"], "ms": planned["ms"],
            "least": ask_xla(args, compiled, args.shards, LEAST),
            "as is": None if args.quick else ask_xla(args, compiled, args.shards, "")}


def cell(value, form):
    return form % value if value is not None else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--build", type=Path, default=SOURCE / "build" / "release")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--cluster", default="")
    parser.add_argument("--timeout", type=float, default=200, help="seconds for XLA per module")
    parser.add_argument("--quick", action="store_true", help="leave XLA as it comes out")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--compile-one", help=argparse.SUPPRESS)
    parser.add_argument("--devices", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--flags", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.compile_one:
        return compile_one(args.compile_one, args.devices, args.flags)
    args.python = os.environ.get("AUTOMAP_JAX_PYTHON") or run(SOURCE / "scripts" / "jax_python.sh").strip()
    files = args.files
    if not files:
        found = SOURCE / "fixtures" / "hlo"
        files = [p for name in TRAINING for p in (found / f"{name}.hlo.gz", found / f"{name}.hlo") if p.is_file()]
        if os.environ.get("AUTOMAP_CORPUS"):
            files += sorted((Path(os.environ["AUTOMAP_CORPUS"]) / "hlo" / "train_1dev").glob("*.hlo"))
    rows = []
    print(f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, {args.shards} shards\n")
    print(f"{'module':28}{'kept':>9}{'plan':>9}{'least':>9}{'as is':>9}{'/ least':>9}{'/ as is':>9}{'kept /':>9}{'ms':>7}")
    for path in files:
        with tempfile.TemporaryDirectory() as folder:
            row = measure(args, path, folder)
        name = path.name.split(".")[0]
        ratio = {key: row["plan"] / row[key] if row[key] else None for key in ("least", "as is")}
        before = row["kept"] / row["least"] if row["kept"] is not None and row["least"] else None
        gb = [cell(row[key] and row[key] / GB, "%.3f") for key in ("kept", "plan", "least", "as is")]
        print(f"{name:28}" + "".join(f"{c:>9}" for c in gb) + f"{cell(ratio['least'], '%.2f'):>9}"
              f"{cell(ratio['as is'], '%.2f'):>9}{cell(before, '%.2f'):>9}{row['ms']:>7.1f}", flush=True)
        rows.append(row | {"module": name, "ratio": ratio})
    for key in ("least", "as is"):
        known = [abs(row["ratio"][key] - 1) for row in rows if row["ratio"][key]]
        if known:
            print(f"{key}: {sum(e <= 0.15 for e in known)} of {len(known)} within 15 %, median {statistics.median(known):.1%}")
    if args.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
