#!/usr/bin/env python3
"""Holds the memory model against measured sizes: one layer of GPT as HLO, profiled, against what PyTorch kept of it.

Examples:
  AUTOMAP_CORPUS=~/corpus scripts/measure_memory_model.py               # medians and worst cases, by column
  AUTOMAP_CORPUS=~/corpus scripts/measure_memory_model.py --rows        # every size, micro-batch and width

AUTOMAP_CORPUS names a folder with measured/aceso-v100. Modules of two and of three layers are written by a Python with jax
(AUTOMAP_JAX_PYTHON or scripts/jax_python.sh); a layer is their difference.

kept: the sum of the measured `activations` of a layer, without the results of the scores and of the two products in front
of a dropout. They were alive because operators were measured alone; in a step nothing reads them again.
reserved: the largest of `fwd_reserved` and `bwd_reserved` of a layer, against its largest workspace. The reserve is an eager
framework's: its allocator's blocks, and temporaries of operators (a mask as numbers, a product before it is scaled) that a
compiler's loops never write: a ratio, no aim.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
SOURCE = SCRIPTS.parent
sys.path.insert(0, str(SCRIPTS))

from device_model import aceso  # noqa: E402

MIB = 1 << 20
NOT_KEPT = ("enc-attention-score", "enc-attention-dense", "enc-MLP-GEMM-2")


def layers_of(folder):
    """{(size, micro-batch, width): ({column: MiB}, extents)}, the first algorithm of each."""
    found = {}
    for path in sorted(folder.glob("gpt_*_algo0.csv")):
        _, name, b, t, _ = aceso.NAME.match(path.name).groups()
        size = aceso.Transformer.of_table(aceso.read_table(folder / f"gpt_{name}_mbs1_tp1_algo0.csv"))
        table = aceso.read_table(path)
        if size.heads % int(t) != 0:
            continue
        layer = {key: row for key, row in table.items() if aceso.block_of(key)}
        kept = sum(row["activations"] for key, row in layer.items() if key not in NOT_KEPT)
        found[name, int(b), int(t)] = (
            {"kept": kept, "weights": sum(row["weights"] for row in layer.values()),
             "reserved": max(row[column] for row in layer.values() for column in ("fwd_reserved", "bwd_reserved"))},
            dict(b=int(b), length=aceso.LENGTH, hidden=size.hidden, inner=size.inner // int(t),
                 heads=size.heads // int(t), per_head=size.inner // size.heads, feed=size.feed // int(t)))
    return found


def gpt_layer(b, length, hidden, inner, heads, per_head, feed):
    """-> (function, shapes of x and the weights, shape of the keys). inner, heads, feed: of one device."""
    import jax
    import jax.numpy as jnp

    from device_model import operators as made

    def run(x, norm1, qkv, qkv_bias, dense, dense_bias, norm2, up, up_bias, down, down_bias, keys):
        normed = made.layer_norm(b, length, hidden)[0](x, *norm1)
        query, key, value = jnp.split((normed @ qkv + qkv_bias).reshape(b, length, heads, 3 * per_head), 3, axis=-1)
        scores = made.score(b, heads, length, length, per_head)[0](query, key)
        weights = made.drop(keys[0], made.causal_softmax(b, heads, length, length)[0](scores))
        mixed = made.context(b, heads, length, length, per_head)[0](weights, value).reshape(b, length, inner)
        x = x + made.drop(keys[1], mixed @ dense + dense_bias)
        grown = made.bias_gelu(b, length, feed)[0](made.layer_norm(b, length, hidden)[0](x, *norm2) @ up, up_bias)
        return x + made.drop(keys[2], grown @ down + down_bias)

    shapes = [(b, length, hidden), (2, hidden), (hidden, 3 * inner), (3 * inner,), (inner, hidden), (hidden,), (2, hidden),
              (hidden, feed), (feed,), (feed, hidden), (hidden,)]
    return run, [made.half(*shape) for shape in shapes], jax.ShapeDtypeStruct((3, 4), jnp.uint32)


def write_modules(jobs):
    """[(path, layers, extents)], by jax."""
    from device_model import operators  # noqa: F401  sets jax up

    import jax
    import jax.numpy as jnp

    for path, layers, extents in jobs:
        run, arguments, keys = gpt_layer(**extents)

        def loss(weights, x, target, keys):
            for one in weights:
                x = run(x, *one, keys)
            return jnp.sum(x.astype(jnp.float32) * target.astype(jnp.float32))

        def step(weights, x, target, keys):
            value, gradients = jax.value_and_grad(loss)(weights, x, target, keys)
            return value, jax.tree.map(lambda w, g: w - jnp.array(1e-3, w.dtype) * g, weights, gradients)

        weights = [arguments[1:]] * layers
        lowered = jax.jit(step).lower(weights, arguments[0], arguments[0], keys)
        Path(path).write_text(lowered.as_text("hlo"))


def is_fitted(key):
    name, b, t = key
    return aceso.Row("gpt", name, b, t, 0, "", 0, 0, {}, None).fitted


def profile(binary, path, attention):
    command = [binary, path, "--device", "v100-32gb", "--attention", attention, "--json", "--quiet"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["memory_bytes"]


def compare(arguments):
    measured = layers_of(Path(arguments.corpus) / "measured/aceso-v100")
    python = subprocess.run([SCRIPTS / "jax_python.sh"], capture_output=True, text=True, check=True).stdout.strip()
    ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        jobs = [(f"{folder}/{place}-{layers}.hlo", layers, extents)
                for place, (_, extents) in enumerate(measured.values()) for layers in (2, 3)]
        plan = Path(folder) / "jobs.json"
        plan.write_text(json.dumps(jobs))
        subprocess.run([python, "-B", __file__, "--write", plan], check=True)
        for place, (key, (sizes, extents)) in enumerate(measured.items()):
            for attention in ("as-written", "fused"):
                two, three = (profile(Path(arguments.build) / "automap-profile", f"{folder}/{place}-{layers}.hlo", attention)
                              for layers in (2, 3))
                made = {"kept": three["stash"] - two["stash"], "weights": three["variables"] - two["variables"],
                        "reserved": three["workspace"]}
                want = dict(sizes)
                if attention == "fused":  # nobody measured it: what the formula of Megatron's paper leaves
                    want = {"kept": 34 * extents["b"] * aceso.LENGTH * extents["hidden"] / MIB}
                    if key[2] > 1:
                        continue
                row = {column: made[column] / MIB / value for column, value in want.items() if value > 0}
                if arguments.rows:
                    print(key, attention, "  ".join(f"{column} {want[column]:.0f} {ratio:.2f}" for column, ratio in row.items()))
                for column, ratio in row.items():
                    ratios.setdefault((attention, column, is_fitted(key)), []).append(ratio)
    print(f"{'predicted / measured':36s} {'layers':>6s} {'median':>7s} {'least':>6s} {'most':>6s} {'within 10 %':>12s}")
    for (attention, column, fitted), values in sorted(ratios.items()):
        name = f"{attention} {column}, {'fitted' if fitted else 'other'} half"
        near = sum(abs(ratio - 1) <= 0.1 for ratio in values)
        print(f"{name:36s} {len(values):6d} {statistics.median(values):7.3f} {min(values):6.2f} {max(values):6.2f} {near:12d}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default=os.environ.get("AUTOMAP_CORPUS"), help="default: AUTOMAP_CORPUS")
    parser.add_argument("--build", default=str(SOURCE / "build/release"), metavar="FOLDER")
    parser.add_argument("--rows", action="store_true", help="every layer, measured in MiB and the ratio")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write_modules(json.loads(Path(arguments.write).read_text()))
    elif not arguments.corpus:
        sys.exit("measure_memory_model.py: no corpus: set AUTOMAP_CORPUS or give --corpus")
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
