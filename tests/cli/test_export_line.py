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
        for section in ("JAX", "TensorFlow", "PyTorch/XLA"):
            self.assertIn(documented_line(section), readme)


@unittest.skipUnless(JAX, NO_JAX)
class ExportLine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.hlo = Path(cls.folder.name) / "step.hlo"
        subprocess.run([JAX, "-c", PRELUDE + documented_line("JAX")], cwd=cls.folder.name, check=True,
                       env={**os.environ, "JAX_PLATFORMS": "cpu"})

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
