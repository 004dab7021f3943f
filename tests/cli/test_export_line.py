"""The JAX line of docs/getting-hlo.md is run as it stands there, and our programs read what it writes.

Needs a Python with jax: the one named by AUTOMAP_JAX_PYTHON, or the python3 of the path when it has jax. Without one the
tests are skipped and say so. With the package versions of scripts/export_requirements.txt the stored fixtures are
exported again too and compared.
"""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from programs import NO_JAX, python_with_jax

SOURCE = Path(os.environ.get("AUTOMAP_SOURCE", Path(__file__).resolve().parent.parent.parent))
BIN = os.environ.get("AUTOMAP_BIN")

PRELUDE = '''
import jax
import jax.numpy as jnp

def train_step(params, opt_state, batch):
    def loss(params):
        with jax.named_scope("hidden"):
            x = jnp.tanh(batch["x"] @ params["hidden"]["kernel"] + params["hidden"]["bias"])
        with jax.named_scope("output"):
            return jnp.mean((x @ params["output"]["kernel"] - batch["y"]) ** 2)
    value, gradients = jax.value_and_grad(loss)(params)
    opt_state = jax.tree.map(lambda m, g: 0.9 * m + g, opt_state, gradients)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, opt_state), opt_state, value

def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)

params = {"hidden": {"kernel": array(32, 64), "bias": array(64)}, "output": {"kernel": array(64, 8)}}
opt_state = params
batch = {"x": array(16, 32), "y": array(16, 8)}
'''


JAX = python_with_jax()


def documented_line(section):
    text = (SOURCE / "docs" / "getting-hlo.md").read_text()
    return re.search(rf"^## {re.escape(section)}\n.*?^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL).group(1)


class Documentation(unittest.TestCase):
    def test_every_framework_has_one_line(self):
        for section in ("JAX", "TensorFlow", "PyTorch/XLA"):
            self.assertEqual(documented_line(section).count("\n"), 1, section)

    def test_readme_repeats_the_lines_as_they_are(self):
        readme = (SOURCE / "README.md").read_text()
        for section in ("JAX", "PyTorch/XLA"):  # TensorFlow's stands in the page alone
            self.assertIn(documented_line(section), readme)


def export_for(cls, script, **environment):
    """Runs a script with JAX in a folder of the class, which has what it writes."""
    cls.folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(cls.folder.cleanup)
    subprocess.run([JAX, "-c", script], cwd=cls.folder.name, check=True, env={**os.environ, "JAX_PLATFORMS": "cpu", **environment})


@unittest.skipUnless(JAX, NO_JAX)
class ExportLine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        export_for(cls, PRELUDE + documented_line("JAX"))
        cls.hlo = Path(cls.folder.name) / "step.hlo"

    def run_program(self, program, *arguments):
        if not BIN or not (Path(BIN) / program).exists():
            self.skipTest(f"{program} is not built (AUTOMAP_BIN={BIN})")
        done = subprocess.run([Path(BIN) / program, *arguments], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_writes_hlo_text_with_names(self):
        text = self.hlo.read_text()
        self.assertTrue(text.startswith("HloModule jit_train_step"))
        self.assertIn(r"""op_name="params[\'hidden\'][\'kernel\']""", text)
        self.assertIn('op_name="jit(train_step)/jvp(hidden)/dot_general"', text)

    def test_inspect_counts_what_xla_counts(self):
        xla = json.loads(subprocess.run([JAX, SOURCE / "scripts" / "xla_costs.py", "--opcodes", self.hlo], check=True,
                                        capture_output=True, text=True).stdout)
        ours = self.run_program("automap-inspect", str(self.hlo), "--json")
        for field in ("instructions", "computations", "entry_instructions", "entry_parameters", "opcodes"):
            self.assertEqual(ours[field], xla[field], field)
        self.assertLess(abs(ours["flops"] / xla["flops"] - 1), 0.01)

    def test_profile_finds_the_three_variables(self):
        ours = self.run_program("automap-profile", str(self.hlo), "--json")
        found = [(v["name"], v["bytes"]) for v in ours["trainable_variables"]]
        self.assertEqual(found, [("params['hidden']['bias']", 256), ("params['hidden']['kernel']", 8192),
                                 ("params['output']['kernel']", 2048)])


SHARD_MAP = PRELUDE + '''
from jax.sharding import AxisType, PartitionSpec as P

mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
all_of = lambda x: jax.lax.pmean(x, "data")
inside = lambda f, i, o: jax.shard_map(f, mesh=mesh, in_specs=i, out_specs=o, check_vma=False)

def loss_of(params, batch):
    x = jnp.tanh(batch["x"] @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return jnp.mean((x @ params["output"]["kernel"] - batch["y"]) ** 2)

def update(params, moments, gradients):
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, moments), moments

def replicas(params, moments, batch):
    value, gradients = jax.value_and_grad(loss_of)(params, batch)
    return *update(params, moments, jax.tree.map(all_of, gradients)), all_of(value)

def sharded(params, moments, batch):
    whole = lambda p: jax.tree.map(lambda a: jax.lax.all_gather(a, "data", axis=0, tiled=True), p)
    value, gradients = jax.value_and_grad(lambda p: loss_of(whole(p), batch))(params)
    return *update(params, moments, gradients), all_of(value)

def loss_inside(params, moments, batch):
    value, gradients = jax.value_and_grad(inside(lambda p, b: all_of(loss_of(p, b)), (P(), P("data")), P()))(params, batch)
    return *update(params, moments, gradients), value

def one_layer(params, moments, batch):
    layer = inside(lambda x, w, b: jnp.tanh(x @ w + b), (P("data"), P(), P()), P("data"))
    def loss(params):
        x = layer(batch["x"], params["hidden"]["kernel"], params["hidden"]["bias"])
        return jnp.mean((x @ params["output"]["kernel"] - batch["y"]) ** 2)
    value, gradients = jax.value_and_grad(loss)(params)
    return *update(params, moments, gradients), value

for shardy in (True, False):
    jax.config.update("jax_use_shardy_partitioner", shardy)
    for name, step in (("replicas", inside(replicas, (P(), P(), P("data")), (P(), P(), P()))),
                       ("sharded", inside(sharded, (P("data"), P("data"), P("data")), (P("data"), P("data"), P()))),
                       ("loss_inside", loss_inside), ("one_layer", one_layer), ("outside", replicas)):
        if name == "outside":
            all_of = lambda x: x
            batch = {"x": array(4, 32), "y": array(4, 8)}
        else:
            all_of = lambda x: jax.lax.pmean(x, "data")
            batch = {"x": array(16, 32), "y": array(16, 8)}
        jax.clear_caches()
        text = jax.jit(step).lower(params, opt_state, batch).as_text("hlo", debug_info=True)
        open(f"{name}_{shardy}.hlo", "w").write(text)
'''


@unittest.skipUnless(JAX, NO_JAX)
class ShardMap(unittest.TestCase):
    """Steps that stand inside jax.shard_map, lowered with Shardy's marks and with the older ones."""

    @classmethod
    def setUpClass(cls):
        export_for(cls, SHARD_MAP, XLA_FLAGS="--xla_force_host_platform_device_count=4")

    def profile(self, name, shardy, *arguments):
        if not BIN or not (Path(BIN) / "automap-profile").exists():
            self.skipTest("automap-profile is not built")
        done = subprocess.run([Path(BIN) / "automap-profile", Path(self.folder.name) / f"{name}_{shardy}.hlo", "--json", *arguments],
                              capture_output=True, text=True)
        return done, json.loads(done.stdout) if done.returncode == 0 else None

    def test_samples_alone_are_divided(self):
        for shardy in (True, False):
            _, same = self.profile("outside", shardy)
            for name in ("replicas", "loss_inside"):
                done, ours = self.profile(name, shardy)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("divided by hand over 4 devices (shard_map), its samples alone: a device has of 'batch['x']', "
                              "f32[4,32] of f32[16,32]", done.stderr)
                self.assertEqual([(v["name"], v["bytes"]) for v in ours["trainable_variables"]],
                                 [("params['hidden']['bias']", 256), ("params['hidden']['kernel']", 8192),
                                  ("params['output']['kernel']", 2048)])
                # The step of a device's samples, but for the sums over devices.
                self.assertTrue(ours["training"])
                self.assertEqual(ours["micro_batch_size"], 4)
                self.assertEqual(ours["memory_bytes"]["slots"], same["memory_bytes"]["slots"])
                self.assertLess(abs(ours["total_flops"] / same["total_flops"] - 1), 0.1)

    def test_a_plan_says_what_it_is_of(self):
        if not BIN or not (Path(BIN) / "automap-infer").exists():
            self.skipTest("automap-infer is not built")
        for name, *words in (("replicas", "its samples alone"), ("sharded", "nothing here holds for the whole model")):
            done = subprocess.run([Path(BIN) / "automap-infer", Path(self.folder.name) / f"{name}_True.hlo", "--cluster", "config-a",
                                   "--batch", "64", "--as-is", "--effort", "quick", "--json"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            warning = json.loads(done.stdout)["warnings"][0]
            for word in ("(shard_map)", *words):
                self.assertIn(word, warning)
                self.assertEqual(done.stderr.count(word), 1, done.stderr)

    def test_weights_are_divided(self):
        for shardy in (True, False):
            done, _ = self.profile("sharded", shardy)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("a device has of 'params['hidden']['bias']', f32[16] of f32[64]", done.stderr)
            self.assertIn("export the step without shard_map", done.stderr)
            done, ours = self.profile("sharded", shardy, "--as-is")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("nothing here holds for the whole model", done.stderr)
            self.assertEqual([v["bytes"] for v in ours["trainable_variables"]], [64, 2048, 512])

    def test_one_layer_of_a_step(self):
        for shardy in (True, False):
            done, ours = self.profile("one_layer", shardy)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("parts of the step are written for one device's part", done.stdout + done.stderr)
            self.assertEqual(ours["micro_batch_size"], 16)
            self.assertEqual(len(ours["trainable_variables"]), 3)


@unittest.skipUnless(JAX, NO_JAX)
class Decoder(unittest.TestCase):
    """scripts/export_decoder.py: a decoder in Megatron's words."""

    SMALL = ("--num-layers", "3", "--hidden-size", "64", "--num-attention-heads", "4", "--vocab-size", "256", "--seq-length", "32")

    def export(self, *words, out="step.hlo"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / out
            done = subprocess.run([JAX, "-B", SOURCE / "scripts/export_decoder.py", *self.SMALL, *words, "-o", path],
                                  capture_output=True, text=True)
            if done.returncode or not BIN:
                return done, None
            read = subprocess.run([Path(BIN) / "automap-profile", path, "--json"], capture_output=True, text=True)
            self.assertEqual(read.returncode, 0, read.stderr)
            return done, json.loads(read.stdout)

    def test_has_the_weights_that_its_words_say(self):
        # Of every layer: queries and output, keys and values, the feed-forward part, two norms; then tables and a norm.
        for words, per_layer, tables in (
                ((), 4 * 64 * 64 + 2 * 64 * 256 + 2 * 64, 256 * 64),
                (("--swiglu", "--group-query-attention", "--num-query-groups", "2", "--ffn-hidden-size", "96", "--bf16",
                  "--untie-embeddings-and-output-weights"), 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64, 2 * 256 * 64)):
            done, profile = self.export(*words)
            self.assertEqual(done.returncode, 0, done.stderr)
            if profile is None:
                self.skipTest("automap-profile is not built")
            found = sum(v["bytes"] for v in profile["trainable_variables"])
            self.assertEqual(found, 4 * (3 * per_layer + tables + 64))

    def test_what_it_does_not_know_is_said(self):
        done, _ = self.export("--tensor-model-parallel-size", "8", "--use-flash-attn")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not looked at: --tensor-model-parallel-size --use-flash-attn\n", done.stderr)
        for words, why in ((("--num-attention-heads", "5"), "not divided into 5 heads"),
                           (("--num-query-groups", "3"), "not divided into --num-query-groups 3"),
                           (("--num-layers", "0"), "--num-layers is 0, expected at least 1"),
                           (("--bf16", "--fp16"), "exclude each other")):
            done, _ = self.export(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(why, done.stderr)
        done, _ = self.export(out="no/such/step.hlo")
        self.assertIn("cannot write", done.stderr)
        self.assertEqual(done.returncode, 1)


@unittest.skipUnless(JAX, NO_JAX)
class Exporter(unittest.TestCase):
    def test_stored_fixtures_are_what_would_be_exported(self):
        stored = json.loads((SOURCE / "fixtures" / "MANIFEST.json").read_text())
        versions = subprocess.run([JAX, "-c", "import jax, jaxlib; print(jax.__version__, jaxlib.__version__)"],
                                  check=True, capture_output=True, text=True).stdout.split()
        if versions != [stored["jax"], stored["jaxlib"]]:
            self.skipTest(f"fixtures are of jax, jaxlib {stored['jax']}, {stored['jaxlib']}, not {versions}")
        done = subprocess.run([JAX, "-B", SOURCE / "scripts" / "export_hlo.py", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
