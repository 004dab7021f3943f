"""--measured: profiles scaled by measured times, planned, and what is refused. Forms one by one: tests/profile/measured."""

import gzip
import json
import subprocess
import unittest

from programs import FIXTURES, NO_JAX, SOURCE, ProgramTest, python_with_jax, run

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMA = json.loads((SOURCE / "docs/formats/profile-json.schema.json").read_text())
MODEL = FIXTURES / "transformer_bf16.hlo.gz"
PYTHON = python_with_jax()

# A step whose layers stand in named scopes, as it is and as it ran, with a trace of three runs.
TRACED = """
import jax, jax.numpy as jnp, sys
folder = sys.argv[1]
def loss(weights, x):
    for i, (up, down) in enumerate(weights):
        with jax.named_scope(f"layer_{i}"):
            x = x + jnp.tanh(x @ up) @ down
    return jnp.mean(x ** 2)
def train_step(weights, x):
    value, gradients = jax.value_and_grad(loss)(weights, x)
    return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, gradients), value
weights = [(jnp.full((64, 256), 0.01), jnp.full((256, 64), 0.01)) for _ in range(3)]
x = jnp.ones((128, 64))
step = jax.jit(train_step)
lowered = step.lower(weights, x)
open(folder + "/step.hlo", "w").write(lowered.as_text("hlo", debug_info=True))
open(folder + "/after.hlo", "w").write(lowered.compile().as_text())
jax.block_until_ready(step(weights, x))
with jax.profiler.trace(folder + "/trace"):
    for _ in range(3):
        weights, _ = jax.block_until_ready(step(weights, x))
"""


class Measured(ProgramTest):
    def report(self, *arguments):
        result = run("automap-profile", MODEL, "--device", "h100", *arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        if jsonschema:
            jsonschema.validate(document, SCHEMA)
        return document

    def table(self, scale):
        """Every layer of the model at `scale` times its estimate, passes together."""
        layers = {}
        for layer in self.report()["layers"]:
            layers[layer["name"]] = layers.get(layer["name"], 0) + scale * layer["c_ms"]
        return self.put("layers.csv", "\n".join(["layer,ms", *(f"{name},{ms!r}" for name, ms in layers.items())]) + "\n")

    def test_a_profile_twice_as_slow_is_planned(self):
        before = self.report()
        self.assertNotIn("measured", before)
        after = self.report("--measured", self.table(2))
        measured = after["measured"]
        self.assertAlmostEqual(measured["factor"], 2, places=6)
        self.assertAlmostEqual(measured["attributed_ms"] / measured["measured_ms"], 1, places=9)
        self.assertEqual((measured["steps"], measured["form"], measured["not_attributed"]), (1, "per-layer CSV", []))
        self.assertAlmostEqual(after["totals"]["c_ms"] / before["totals"]["c_ms"], 2, places=6)
        self.assertEqual(after["totals"]["w_bytes"], before["totals"]["w_bytes"])
        # The file of it, and the model with the same times, are planned alike.
        profile = self.folder / "step.h5"
        made = run("automap-profile", MODEL, "--cluster", "h100-1x8", "--measured", self.table(2), "-o", profile)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertRegex(made.stdout, r"\nmeasured    .*layers.csv \(per-layer CSV\): of .* of a step 100 % are the model's")
        self.assertRegex(made.stdout, r"\nscaled      .* positions have a measured time.*\n?.*take 2.00 times what is estimated")
        question = ("--cluster", "h100-1x8", "--batch", "64", "--max-width", "1", "--json")
        steps = []
        for asked in ((MODEL,), (MODEL, "--measured", self.table(2)), (profile,)):
            result = run("automap-infer", *asked, *question)
            self.assertEqual(result.returncode, 0, result.stderr)
            steps.append(json.loads(result.stdout))
        self.assertGreater(steps[1]["simulated_step_ms"], 1.5 * steps[0]["simulated_step_ms"])
        self.assertLess(abs(steps[1]["simulated_step_ms"] / steps[2]["simulated_step_ms"] - 1), 1e-3)
        self.assertIn("times are measured ones", " ".join(steps[1]["warnings"]))
        self.assertNotIn("times are measured ones", " ".join(steps[0]["warnings"]))

    def test_what_is_refused(self):
        trace = json.dumps({"traceEvents": [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
            {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "Stream #1"}},
            {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 5, "name": "k",
             "args": {"hlo_op": "fusion.9", "hlo_module": "jit_other", "tf_op": "jit(other)/Net/mul:"}}]})
        cases = ((trace, 3, ("nothing can be attributed to transformer_bf16 (the trace is of jit_other)", "it has jit(other)/Net/mul",
                             "the model has instructions ")),
                 (trace[:-40], 3, ("times:1:", "not JSON", "hint: the trace may have been cut short")),
                 (gzip.compress(trace.encode() * 50)[:-30], 3, ("times", "hint: the file may have been cut off")),
                 (trace.replace('"dur": 5', '"dur": -5'), 3, ("times: traceEvents[2]: dur: found -5",)),
                 (trace.replace('"dur": 5', '"dur": NaN'), 3, ("not JSON",)),
                 (trace.replace("hlo_op", "op"), 3, ("none says what ran on a device",)),
                 ("layer,forward_ms\nnobody,1\n", 3, ("nothing can be attributed", "it has nobody", "the model has layers ")),
                 ("what,is,this\n", 3, ("no form of measured times that is known",)))
        for content, code, parts in cases:
            with self.subTest(parts=parts):
                output = self.folder / "step.csv"
                result = run("automap-profile", MODEL, "--measured", self.put("times", content), "-o", output)
                self.assert_fails(result, code, *parts)
                self.assertFalse(output.exists())
        table = self.table(1)
        self.assert_fails(run("automap-profile", MODEL, "--measured", "nowhere.json"), 3, "nowhere.json")
        self.assert_fails(run("automap-profile", MODEL, "--measured-samples", "4"), 2, "--measured-samples without --measured")
        self.assert_fails(run("automap-profile", MODEL, "--measured-hlo", MODEL), 2, "--measured-hlo without --measured")
        self.assert_fails(run("automap-profile", MODEL, "--measured", table, "-o", table), 2, "layers.csv")
        for option in (("--measured-samples", "4"), ("--measured-hlo", MODEL)):
            self.assert_fails(run("automap-infer", MODEL, "--cluster", "v100-1x8", *option), 2, f"{option[0]} without --measured")
        galvatron = self.put("galvatron.json", '{"layertype_0_bsz8_seq8": 1}')
        for option in (("--measured-samples", "3"), ("--measured-hlo", "nowhere.hlo")):
            self.assert_fails(run("automap-infer", MODEL, "--cluster", "v100-1x8", "--max-width", "1", "--measured", galvatron, *option), 3,
                              "nowhere.hlo" if option[1] == "nowhere.hlo" else "has no times of 3 samples")
        profile = self.folder / "step.csv"
        self.assertEqual(run("automap-profile", MODEL, "-o", profile).returncode, 0)
        self.assert_fails(run("automap-infer", profile, "--cluster", "v100-1x8", "--measured", table), 2, "--measured is for HLO")

    @unittest.skipUnless(PYTHON, NO_JAX)
    def test_a_trace_of_jax(self):
        done = subprocess.run([PYTHON, "-c", TRACED, str(self.folder)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        trace, = (self.folder / "trace").rglob("*.trace.json.gz")
        result = run("automap-profile", self.folder / "step.hlo", "--measured", trace, "--measured-hlo", self.folder / "after.hlo", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        measured = json.loads(result.stdout)["measured"]
        self.assertEqual((measured["form"], measured["steps"]), ("XLA trace", 3))
        # Times of a busy machine say nothing; whose they are does.
        self.assertEqual([one["name"] for one in measured["not_attributed"] if "layer_" in one["name"]], [])
        self.assertGreater(measured["attributed_ms"], 0.5 * measured["measured_ms"])
        self.assertGreater(measured["measured_compute_share"], 0.5)
        self.assertGreater(measured["measured_positions"], measured["positions"] / 2)


if __name__ == "__main__":
    unittest.main()
