"""XLA does with partitioned modules what automap-search says: its all-reduces are the predicted partial sums, size by size,
nothing else moves data, and small modules compute the same as in one piece.

Needs a Python with jax: the one named by AUTOMAP_JAX_PYTHON, or the python3 of the path when it has jax. Without one the
tests are skipped and say so. With AUTOMAP_CORPUS (a folder of modules) three of its modules are asked about too.
"""

import gzip
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

from programs import BIN, FIXTURES, NO_JAX, SOURCE, python_with_jax

DEVICES = 8
TIMEOUT_S = 600


JAX = python_with_jax()
CORPUS = os.environ.get("AUTOMAP_CORPUS")


def load_check():
    sys.dont_write_bytecode = True
    path = SOURCE / "bench" / "check_xla_partition.py"
    spec = importlib.util.spec_from_file_location("check_xla_partition", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check = load_check()


def fixture(name):
    return FIXTURES / (name if name.endswith(".hlo") else f"{name}.hlo.gz")


# Writes forward1.hlo, forward2.hlo, step1.hlo and step2.hlo into a folder.
IMAGES = """
import sys
import jax
import jax.numpy as jnp

SHAPES = {"stem": (7, 7, 3, 16), "a": (3, 3, 16, 16), "b": (3, 3, 16, 32), "short": (1, 1, 16, 32), "each": (3, 3, 1, 32),
          "point": (1, 1, 32, 32), "bias": (32,), "dense": (32, 10)}

def conv(x, w, stride=1, groups=1):
    return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                        feature_group_count=groups)

def pool(x, size, stride, start, of):
    return jax.lax.reduce_window(x, start, of, (1, size, size, 1), (1, stride, stride, 1), "SAME")

def forward(p, x):
    x = jax.nn.relu(conv(x, p["stem"], 2))
    return body(p, pool(x, 3, 2, 0., jax.lax.add))

def body(p, x):
    x = x + jax.nn.relu(conv(x, p["a"]))
    x = jax.nn.relu(conv(x, p["b"], 2) + p["bias"] + conv(x, p["short"], 2))
    x = conv(jax.nn.relu(conv(x, p["each"], groups=32)), p["point"])
    x = (x - x.mean((0, 1, 2))) * jax.lax.rsqrt(x.var((0, 1, 2)) + 1e-5)
    return jax.nn.relu(x).mean((1, 2)) @ p["dense"]

def step(p, x, y):
    def loss(p):
        h = pool(jax.nn.relu(conv(x, p["stem"], 2)), 2, 2, -jnp.inf, jax.lax.max)
        return -(jax.nn.log_softmax(body(p, h)) * y).sum(-1).mean()
    value, gradients = jax.value_and_grad(loss)(p)
    return jax.tree.map(lambda a, g: a - 0.1 * g, p, gradients), value

def array(*dims):
    return jax.ShapeDtypeStruct(dims, jnp.float32)

params = {name: array(*dims) for name, dims in SHAPES.items()}
for batch in (1, 2):
    images = array(batch, 128, 96, 3)
    for function, arguments in ((forward, (params, images)), (step, (params, images, array(batch, 10)))):
        module = jax.jit(function).lower(*arguments).compiler_ir("hlo").as_hlo_module()
        with open(f"{sys.argv[1]}/{function.__name__}{batch}.hlo", "w") as f:
            f.write(module.to_string())
"""


class Counting(unittest.TestCase):
    """What needs no XLA: how collectives are counted."""

    def test_computations_count_as_often_as_they_are_called(self):
        text = """HloModule m

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

%body (x: f32[4,2]) -> f32[4,2] {
  %x = f32[4,2]{1,0} parameter(0)
  ROOT %all-reduce.1 = f32[4,2]{1,0} all-reduce(%x), to_apply=%sum
}

%never (x: f32[4,2]) -> f32[4,2] {
  %x = f32[4,2]{1,0} parameter(0)
  ROOT %all-gather.1 = f32[4,2]{1,0} all-gather(%x), dimensions={0}
}

ENTRY %e (x: f32[4,2]) -> f32[4,2] {
  %x = f32[4,2]{1,0} parameter(0)
  %y = f32[4,2]{1,0} call(%x), to_apply=%body
  %z = f32[4,2]{1,0} call(%y), to_apply=%body
  %t = (bf16[3]{0}, s32[]) all-reduce-start(%z), to_apply=%sum
  ROOT %w = f32[4,2]{1,0} while(%z), condition=%never_there, body=%body
}
"""
        self.assertEqual(dict(check.collectives_of(text)), {"all-reduce": [[10, 0], [32, 0], [32, 0], [32, 0]]})

    def test_partial_sums_of_several_collectives_are_one(self):
        source = {"instruction": "dot.1", "layer": None, "bytes": 64, "node": 3}
        plan = {"kind": "operator", "shards": 8, "partition": {"w": 0, "v": -1}, "collectives": [
            {"kind": "all-reduce", "sources": [source, source | {"node": 4, "bytes": 16}]},
            {"kind": "all-reduce", "sources": [source]}]}
        self.assertEqual(check.predicted_sizes(plan), [(16, 8), (64, 8)])

        def compare(reduced, gathered=()):
            return check.compare(plan, {"before": {"all-reduce": [[size, 0] for size in reduced],
                                                   "all-gather": [[size, 8] for size in gathered]}})
        self.assertTrue(compare([16, 64])["agrees"])
        row = compare([16, 8])
        self.assertEqual((row["lost"], row["unforeseen"], row["legal"]), ([(64, 8)], [(8, 8)], False))
        self.assertFalse(compare([16, 64], [4])["legal"])
        self.assertTrue(compare([4, 16, 64])["legal"])
        plan["collectives"].append({"kind": "all-gather", "bytes": 32, "sources": []})
        self.assertTrue(compare([16, 64], [32])["agrees"])
        for gathered in ([32, 4], [4], []):
            row = compare([16, 64], gathered)
            self.assertEqual((row["agrees"], row["legal"]), (False, True))

    def test_groups_of_devices(self):
        for text, devices in (("replica_groups={{0,1},{2,3}}, x", 2), ("replica_groups=[2,4]<=[4,2]T(1,0), x", 4), ("", 0),
                              ("replica_groups=mesh['axis_0'=2,'axis_1'=1,'axis_2'=4] {'axis_0'}, x={1}", 2),
                              ("replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a','b'}, x", 8)):
            self.assertEqual(check.group_size(text), devices, text)

    def test_a_sum_over_both_axes(self):
        """Of one instruction: reduced by all devices at once, or over one axis and then the other."""
        def axis(kind, shards):
            return {"kind": kind, "shards": shards, "partition": {"w": 0}, "collectives": [
                {"kind": "all-reduce", "sources": [{"instruction": "r", "layer": None, "bytes": 4, "node": 1}]}]}
        plan = {"kind": "mesh", "shards": 8, "axes": {"data": axis("data", 4), "model": axis("operator", 2)}}
        self.assertTrue(check.compare(plan, {"before": {"all-reduce": [[4, 8]]}})["agrees"])
        self.assertTrue(check.compare(plan, {"before": {"all-reduce": [[4, 2], [4, 4]]}})["agrees"])
        self.assertFalse(check.compare(plan, {"before": {"all-reduce": [[4, 4], [4, 4]]}})["agrees"])


# What XLA gathers beside the plan, bytes. Attention that is split by positions has its rotary tables (f32[64,16], cosines
# and sines) made in parts and gathered: no plan says how constants are held.
ADDED = {("scan_remat", "opp:time"): (4096,) * 12}


@unittest.skipUnless(JAX, NO_JAX)
class Agreement(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def agree(self, path, plan, quick=True, tolerance=None, gathers=False, exchanged=()):
        """XLA's collectives are the plan's and `exchanged` (bytes each), which it adds; with a tolerance both modules
        compute the same."""
        original = check.whole_hlo(BIN / "automap-search", path, plan, self.folder) if tolerance else None
        xla = check.ask_xla(os.path.join(self.folder, "sharded.hlo"), plan["shards"], self.folder, original=original,
                            quick=quick and not tolerance, timeout_s=TIMEOUT_S, python=JAX)
        shutil.rmtree(os.path.join(self.folder, "dump"))
        row = check.compare(plan, xla)
        told = check.text_of(row, xla)
        self.assertEqual(row["lost"], [], told)
        self.assertEqual(row["unforeseen"], [], told)
        # Nothing moves but what the plan says; what a plan of data makes of its gathers is told apart.
        if not gathers:
            announced = {kind: len(sizes) for kind, sizes in row["announced"].items()}
            if exchanged:
                announced["all-gather"] = announced.get("all-gather", 0) + len(exchanged)
            self.assertEqual(row["others"], announced, told)
            self.assertEqual([size for size, *_ in row["exchanged"]], list(exchanged), told)
        if tolerance:
            self.assertLess(xla["worst_relative_error"], tolerance, told)
        return row

    def plan(self, path, ask, sums="apart", shards=DEVICES):
        return check.planned(SimpleNamespace(search=BIN / "automap-search", cluster="config-a", sums=sums), path, ask, shards,
                             self.folder)

    def test_plans_of_fixtures(self):
        for name, ask in (("tiny_mlp.hlo", "opp:count"), ("moe_small", "opp:count"), ("transformer_bf16", "opp:time"),
                          ("lit_small", "opp:count"), ("vgg19", "opp:time"), ("gpt2_forward", "opp:time"),
                          ("transformer_scan", "opp:time"), ("t5_6_6", "opp:time"), ("transformer_bf16", "adp"),
                          ("grouped_query", "opp:time"), ("scan_remat", "opp:count"), ("scan_remat", "adp"), ("set_prediction", "opp:time"),
                          ("moe_sort", "opp:count"), ("moe_dense", "opp:time"), ("mamba", "opp:time"),
                          ("mamba", "adp"), ("unet", "opp:count"), ("unet", "opp:time"), ("unet", "adp")):
            with self.subTest(name=name, ask=ask):
                row = self.agree(fixture(name), self.plan(fixture(name), ask))
                self.assertGreater(row["split"], 0)
                self.assertGreater(len(row["predicted"]) + len(row["announced"]), 0)

    def test_combined_sums(self):
        """What the plan says is reduced at once, XLA reduces at once."""
        for name, ask, fewer in (("tiny_mlp.hlo", "opp:time", 0), ("t5_6_6", "opp:count", 1), ("t5_6_6", "opp:time", 1),
                                 ("transformer_scan", "opp:time", 1), ("scan_remat", "opp:time", 0),
                                 ("lit_small", "opp:count", 1), ("mamba", "opp:time", 0)):
            with self.subTest(name=name, ask=ask):
                plan = self.plan(fixture(name), ask, sums="combined")
                self.assertEqual(plan["sums"], "combined")
                self.agree(fixture(name), plan, exchanged=ADDED.get((name, ask), ()))
                self.assertGreaterEqual(plan["partial_sums"] - plan["all_reduces"], fewer)

    def test_combined_sums_compute_the_same(self):
        for name, ask, tolerance in (("tiny_mlp.hlo", "opp:count", 1e-5), ("scan_remat", "opp:time", 2e-4),
                                     ("lit_small", "opp:count", 2e-4)):
            with self.subTest(name=name, ask=ask):
                self.agree(fixture(name), self.plan(fixture(name), ask, sums="combined"), tolerance=tolerance,
                           exchanged=ADDED.get((name, ask), ()))

    def test_meshes(self):
        """Two axes, and what the step keeps stored in parts: every collective, its size and how many devices work together."""
        for name, ask in (("tiny_mlp.hlo", "mesh:4x2:3"), ("moe_dense", "mesh:4x2:0"), ("moe_dense", "mesh:2x4:3"),
                          ("grouped_query", "mesh:1x8"), ("scan_remat", "mesh:4x2:2"), ("transformer_remat", "mesh:4x1:3"),
                          ("transformer_scan", "mesh:2x4:0"),
                          ("set_prediction", "mesh:4x2:2"), ("lit_small", "mesh:4x2:0"), ("gpt2", "mesh:4x2:3"),
                          ("moe_dense", "mesh:8x1:0"), ("moe_sort", "mesh:8x1:0"), ("moe_small", "mesh:4x2:3")):
            with self.subTest(name=name, ask=ask):
                row = self.agree(fixture(name), self.plan(fixture(name), ask), gathers=True)
                self.assertTrue(row["agrees"], row)

    def test_meshes_compute_the_same(self):
        for name, ask in (("tiny_mlp.hlo", "mesh:4x2:3"), ("scan_remat", "mesh:4x2:2"), ("moe_dense", "mesh:4x2:3")):
            with self.subTest(name=name, ask=ask):
                self.agree(fixture(name), self.plan(fixture(name), ask), tolerance=2e-4, gathers=True)

    def test_soap_strategies(self):
        """Every operator split along its own dimensions: XLA compiles it, and it computes the same."""
        for name, tolerance in (("tiny_mlp.hlo", 1e-5), ("lit_small", 2e-4), ("scan_remat", 2e-4), ("vgg19", None), ("t5_6_6", None)):
            with self.subTest(name=name):
                sharded = os.path.join(self.folder, "sharded.hlo")
                plan = json.loads(check.search(BIN / "automap-search", "soap", fixture(name), "--devices", DEVICES, "--effort", "quick",
                                               "--emit-hlo", sharded, "--json", "--quiet"))
                self.assertTrue(all(len(operator["devices"]) <= DEVICES for operator in plan["operators"]))
                original = None
                if tolerance:
                    original = os.path.join(self.folder, "whole.hlo")
                    data = Path(fixture(name)).read_bytes()
                    Path(original).write_bytes(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
                xla = check.ask_xla(sharded, DEVICES, self.folder, original=original, quick=original is None, timeout_s=TIMEOUT_S, python=JAX)
                shutil.rmtree(os.path.join(self.folder, "dump"))
                self.assertGreater(len(xla["before"].get("all-reduce", [])), 0)
                if tolerance:
                    self.assertLess(xla["worst_relative_error"], tolerance)

    def test_every_gather_is_announced(self):
        for name in ("lit_small", "set_prediction", "moe_dense", "moe_sort"):
            with self.subTest(name=name):
                row = self.agree(fixture(name), self.plan(fixture(name), "adp"))
                self.assertTrue(row["agrees"], row)
                self.assertGreater(len(row["announced"]), 0)

    def test_small_modules_compute_the_same(self):
        for name, ask, tolerance in (("tiny_mlp.hlo", "opp:count", 1e-5), ("tiny_mlp.hlo", "adp", 1e-5),
                                     ("moe_small", "opp:time", 2e-4), ("lit_small", "opp:time", 2e-4),
                                     ("scan_remat", "opp:time", 2e-4), ("grouped_query", "opp:time", 2e-4)):
            with self.subTest(name=name, ask=ask):
                self.agree(fixture(name), self.plan(fixture(name), ask), tolerance=tolerance, exchanged=ADDED.get((name, ask), ()))

    def test_tokens_go_to_their_experts(self):
        """All-to-alls: as many, and of the sizes, that the plan says, also when the plan is applied again."""
        plan = self.plan(fixture("moe_sort"), "opp:time")
        row = self.agree(fixture("moe_sort"), plan, tolerance=2e-4)
        self.assertGreater(len(row["announced"]["all-to-all"]), 0)
        again = json.loads(check.search(BIN / "automap-search", "apply", fixture("moe_sort"), "--plan",
                                        os.path.join(self.folder, "plan.json"), "--json", "--quiet"))
        self.assertEqual([again[key] for key in ("all_to_alls", "all_to_all_bytes", "all_gathers")],
                         [plan[key] for key in ("all_to_alls", "all_to_all_bytes", "all_gathers")])

    def test_borders(self):
        """Images whose batch the devices do not divide: neighbours exchange borders, as many and of the sizes that are told."""
        for name, shards in (("vgg19", 7), ("resnet50", 7)):
            with self.subTest(name=name):
                plan = self.plan(fixture(name), "adp", shards=shards)
                row = self.agree(fixture(name), plan)
                self.assertTrue(row["agrees"], row)
                self.assertEqual(plan["permutes"], len(row["announced"]["collective-permute"]))
                self.assertGreater(plan["permutes"], 90)

    def test_borders_compute_the_same(self):
        """Of one image and of two: strided, grouped and pointwise convolutions, poolings and a normalization; their gradients."""
        done = subprocess.run([JAX, "-c", IMAGES, self.folder], capture_output=True, text=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})
        self.assertEqual(done.returncode, 0, done.stderr)
        for name, tolerance in (("forward", 1e-5), ("step", 1e-5)):
            for batch in (1, 2):
                with self.subTest(name=name, batch=batch):
                    path = os.path.join(self.folder, f"{name}{batch}.hlo")
                    plan = self.plan(path, "adp")
                    row = self.agree(path, plan, tolerance=tolerance)
                    self.assertTrue(row["agrees"], row)
                    self.assertGreaterEqual(plan["permutes"], 8)
                    again = json.loads(check.search(BIN / "automap-search", "apply", path, "--plan",
                                                    os.path.join(self.folder, "plan.json"), "--json", "--quiet"))
                    self.assertEqual([again[key] for key in ("permutes", "permute_bytes")],
                                     [plan[key] for key in ("permutes", "permute_bytes")])

    def test_random_decisions(self):
        """Whatever was decided: XLA does what was predicted, though nobody would want it."""
        for name in ("moe_small", "transformer_bf16"):
            path = fixture(name)
            inputs = [i for i in self.plan(path, "opp:count")["inputs"] if i["role"] in ("variable", "input")]
            for seed in range(2):
                rng = random.Random(seed)
                with self.subTest(name=name, seed=seed):
                    decided, plan = {}, None
                    for tensor in rng.sample(inputs, min(len(inputs), 16)):
                        rank = tensor["shape"].count(",") + (0 if "[]" in tensor["shape"] else 1)
                        if rank == 0:
                            continue
                        wanted = decided | {tensor["parameter"]: rng.randrange(rank)}
                        try:
                            plan = check.applied(BIN / "automap-search", path, {"shards": DEVICES, "partition": wanted}, self.folder)
                        except check.NoAnswer:
                            continue  # contradicts the others, or cannot be split at all
                        decided = wanted
                    self.assertTrue(decided)
                    # A refused decision leaves its plan behind, but writes no module.
                    self.agree(path, plan)

    @unittest.skipUnless(CORPUS, "AUTOMAP_CORPUS is not set: XLA was asked about no foreign modules")
    def test_foreign_modules(self):
        for name, ask in (("hlo/infer_pairs/llama3_8b_prefill_1dev.before_opt.hlo", "opp:time"),
                          ("hlo/train_1dev/nv_maxtext_1n1g_train.before_opt.hlo", "opp:time"),
                          ("hlo/train_1dev/imagenette_train_1dev.before_opt.hlo", "opp:count"),
                          ("hlo/train_1dev/tf_keras_train_step_a.before_opt.hlo", "adp")):
            with self.subTest(name=name, ask=ask):
                path = Path(CORPUS) / name
                self.agree(path, self.plan(path, ask), gathers=ask == "adp")

    def test_the_script_itself(self):
        done = subprocess.run([JAX, SOURCE / "bench" / "check_xla_partition.py", "--search", BIN / "automap-search", "--quick",
                               "--ask", "opp:time", "--ask", "adp:count", fixture("tiny_mlp.hlo")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("\nall             2      2          6       6       6      0    100.00%\n", done.stdout)


if __name__ == "__main__":
    unittest.main()
