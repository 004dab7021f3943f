"""Steps of PyTorch by torchax: as near to the described model as JAX's, with the module's names, and with torch's own numbers."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from programs import BIN, SOURCE, TIMEOUT_S, ProgramTest, environment, run  # noqa: E402

PYTHON = os.environ.get("AUTOMAP_TORCH_PYTHON")
HAS_TORCHAX = bool(PYTHON) and subprocess.run([PYTHON, "-B", "-c", "import torchax"], capture_output=True).returncode == 0
NO_TORCHAX = "no torchax; AUTOMAP_TORCH_PYTHON=$(scripts/torch_python.sh) makes a Python with it"
MODELS = Path(__file__).resolve().parent / "torch_models.py"
GPT = {"model_type": "gpt2", "n_embd": 256, "n_layer": 4, "n_head": 4, "vocab_size": 1024, "n_positions": 128}

# The step's numbers beside those of torch; and a plan of it.
STEPS = '''
import sys, torch, jax
import automap.torch
import torch_models
for build in (torch_models.gpt, torch_models.normed):
    torch.manual_seed(0)
    module, inputs, optimizer, *loss = build()
    if build is torch_models.gpt:
        inputs = {name: torch.randint(0, 1024, one.shape) for name, one in inputs.items()}
    else:
        module[2].p = 0.0  # Other masks would be drawn.
        inputs = (torch.randn(4, 16), torch.randint(0, 8, (4,)))
    function, (params, opt_state, buffers, batch) = automap.torch.step(module, inputs, optimizer, *loss)
    numbers = lambda names: {name: jax.numpy.array(dict(module.state_dict())[name].numpy()) for name in names}
    zeros = jax.tree.map(lambda leaf: jax.numpy.zeros(leaf.shape, leaf.dtype), opt_state)
    tensors = inputs.values() if isinstance(inputs, dict) else inputs
    state = [numbers(params), zeros, numbers(buffers)]
    step = jax.jit(function)
    for _ in range(3):
        *state, ours = step(*state, {name: jax.numpy.array(one.numpy()) for name, one in zip(batch, tensors)})
        optimizer.zero_grad()
        theirs = loss[0](module, inputs) if loss else module(**inputs)
        theirs.backward()
        optimizer.step()
        assert abs(float(ours) - theirs.item()) < 1e-4 * theirs.item(), (build, float(ours), theirs.item())
    for name, one in state[0].items():
        apart = float(abs(torch.tensor(jax.device_get(one)).double() - dict(module.state_dict())[name].double()).max())
        assert apart < 2e-3, (name, apart)
module, inputs, optimizer = torch_models.gpt()
plan = automap.torch.plan(module, inputs, optimizer, cluster="h100-1x8", batch_size=64, effort="quick")
print(plan.devices > 0 and plan.batch_size == 64 and plan.step is not None)
'''


@unittest.skipUnless(HAS_TORCHAX, NO_TORCHAX)
class TorchStep(ProgramTest):
    def python(self, *words):
        return subprocess.run([PYTHON, "-B", *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT_S,
                              env=environment(PYTHONPATH=f"{SOURCE / 'python'}{os.pathsep}{MODELS.parent}"))

    def export(self, name, *words):
        return self.python(BIN / "automap-export-torch", f"{MODELS}:{name}", "-o", self.folder / "step.hlo", *words)

    def profile(self, *words):
        done = run("automap-profile", *words, "--json", "--device", "h100")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_a_gpt_is_near_the_described_one_and_has_its_names(self):
        done = self.export("gpt")
        self.assertEqual(done.returncode, 0, done.stderr)
        ours = self.profile(self.folder / "step.hlo")
        described = self.profile(self.put("gpt.json", json.dumps(GPT)), "--model-samples", 8)
        for keys in (("forward_flops",), ("total_flops",), ("totals", "w_bytes"), ("totals", "stash_bytes"), ("memory_bytes", "slots")):
            a, b = ours, described
            for key in keys:
                a, b = a[key], b[key]
            self.assertLess(abs(a - b), 0.02 * b, keys)
        self.assertEqual(ours["totals"]["w_bytes"], described["totals"]["w_bytes"])
        layers = [one["name"] for one in ours["layers"]]
        self.assertEqual([name for name in layers if name.startswith("blocks")], [f"blocks/{i}" for i in range(4)])
        self.assertNotIn("aten", json.dumps(ours["layers"]))
        text = (self.folder / "step.hlo").read_text()
        for part in ("jvp(blocks)/3/mlp/up/", "params[\\'blocks.3.mlp.up.weight\\']", "opt_state[\\'blocks.3.mlp.up.weight\\'][\\'exp_avg\\']"):
            self.assertTrue(part in text, part)  # The text is long.

    def test_running_means_momentum_and_what_is_not_trained(self):
        done = self.export("normed")
        self.assertEqual(done.returncode, 0, done.stderr)
        ours = self.profile(self.folder / "step.hlo")
        trained = 4 * (16 * 32 + 32 + 32 + 32 * 8 + 8)
        self.assertEqual(ours["totals"]["w_bytes"], trained)
        self.assertEqual(ours["memory_bytes"]["slots"], trained)

    def test_numbers_are_torch_s_and_a_plan_is_made(self):
        done = self.python("-c", STEPS)
        self.assertEqual(done.stdout.strip(), "True", done.stderr[-3000:])

    def test_what_is_wrong_is_said(self):
        for name, says in (("no_loss", "the module returns a tensor of shape [4, 8], and no loss; give loss="),
                           ("other_weights", "the optimizer has none of the module's weights"),
                           ("reads_values", "--with-weights"), ("none", "has no function none")):
            done = self.export(name)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(says, done.stderr.splitlines()[-1])
            self.assertFalse((self.folder / "step.hlo").exists())
        done = self.export("reads_values", "--with-weights")
        self.assertIn("returns a Linear, expected (module, inputs, optimizer)", done.stderr)
        self.assertIn("No such file", self.python(BIN / "automap-export-torch", "none.py", "-o", "x").stderr)


class WithoutTorch(ProgramTest):
    def test_what_is_missing_is_said(self):
        done = subprocess.run(["/usr/bin/python3", "-I", "-S", "-B", BIN / "automap-export-torch", MODELS, "-o", self.folder / "x"],
                              capture_output=True, text=True, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("needs torch, torchax and jax", done.stderr)
        self.assertIn("scripts/torch_python.sh", done.stderr)
        self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
