"""The Python package: a plan for a jitted step or a file, and with JAX the run of it by the user's pytrees, against the step
itself. What needs JAX is skipped where no Python has it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from programs import BIN, FIXTURES, NO_JAX, environment, python_with_jax, run

# As CMake copies it, beside the programs that it calls.
sys.path.insert(0, str(BIN / "python"))
import automap  # noqa: E402
from automap import installed, planning  # noqa: E402

TINY = FIXTURES / "tiny_mlp.hlo"

# What both scripts begin with.
BEGIN = '''
import json
import pickle
import sys
import automap

assert "jax" not in sys.modules
import automap.jax
import jax
import jax.numpy as jnp
import numpy as np
from automap.check import difference

generator = np.random.default_rng(0)

def array(*shape):
    return 0.1 * generator.standard_normal(shape, dtype=np.float32)

def next_key(key):
    return jax.random.key_data(jax.random.split(jax.random.wrap_key_data(key))[0])

def adam(loss):
    """A step with Adam on gradients clipped by their norm."""
    def train_step(params, opt_state, batch):
        value, gradients = jax.value_and_grad(loss)(params, batch)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
        gradients = jax.tree.map(lambda g: g * jnp.minimum(1, 1 / norm), gradients)
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, opt_state["mu"], gradients)
        nu = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, opt_state["nu"], gradients)
        new = jax.tree.map(lambda p, m, v: p - batch["rate"] * m / (jnp.sqrt(v) + 1e-4), params, mu, nu)
        return new, {"mu": mu, "nu": nu, "count": opt_state["count"] + 1, "key": next_key(opt_state["key"])}, {"loss": value, "norm": norm}
    return train_step

def opt_state_of(params):
    zeros = jax.tree.map(np.zeros_like, params)
    return {"mu": zeros, "nu": zeros, "count": np.int32(0), "key": jax.random.key_data(jax.random.key(0))}
'''

# A decoder on two groups of two devices, ten lines as the README has them, beside the step without a plan.
DECODER = BEGIN + '''
def loss(params, batch):
    x = params["table"][batch["tokens"]]
    for i, layer in enumerate(params["layers"]):
        with jax.named_scope(f"layer/{i}"):
            q, k, v = (x @ layer[n] for n in "qkv")
            scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), q @ k.swapaxes(-1, -2) / 4, -1e9)
            x = x + jax.nn.softmax(scores) @ v
            x = x + jax.nn.gelu(x @ layer["up"] + layer["bias"]) @ layer["down"]
    logits = x[:, :-1] @ params["head"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), batch["tokens"][:, 1:, None], axis=-1))

def layer():
    return {**{n: array(16, 16) for n in "qkv"}, "up": array(16, 32), "bias": array(32), "down": array(32, 16)}

def batch_of(samples):
    return {"tokens": generator.integers(0, 12, (samples, 6)), "unused": array(samples), "rate": 1e-3}

params = {"table": array(12, 16), "head": array(16, 12), "layers": [layer() for _ in range(2)]}
opt_state, step = opt_state_of(params), jax.jit(adam(loss), donate_argnums=(0, 1))
shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), np.asarray(leaf).dtype), batch_of(16))
plan = automap.plan(step, params, opt_state, shapes, cluster="h100-1x8", layout="dp=2,pp=2,zero=1,micro-batch-size=2")
run = automap.jax.compile(plan)
state = run.init(params, opt_state)
params, opt_state = jax.tree.map(jnp.array, (params, opt_state))
off = []
for _ in range(3):
    batch = batch_of(16)
    state, metrics = run.step(state, batch)
    params, opt_state, expected = step(params, opt_state, batch)
    off += [difference(metrics["loss"], expected["loss"]), difference(metrics["norm"], expected["norm"])]
mine = run.gather(state)
assert jax.tree.structure(mine) == jax.tree.structure((params, opt_state))
off += jax.tree.leaves(jax.tree.map(difference, mine, (params, opt_state)))
used = {device for held in state.values() for array in held.values() for device in array.devices()}
print(json.dumps({"off": max(off), "count": int(mine[1]["count"]), "devices": len(used), "text": str(plan), "layout": plan.layout,
                  "micro_batches": plan.micro_batches, "step_ms": plan.step_ms, "expected_ms": plan.expected_ms}))
'''

# Two layers on two groups of one device: what is refused, a plan that was saved, and a module without its function.
LAYERS = BEGIN + '''
folder, module = sys.argv[1:]

def loss(params, batch):
    return jnp.mean((jax.nn.gelu(batch["x"] @ params["up"]) @ params["down"] - batch["y"]) ** 2)

def batch_of(samples):
    return {"x": array(samples, 8), "y": array(samples, 8), "rate": 1e-3}

params = {"up": array(8, 32), "down": array(32, 8)}
opt_state, step = opt_state_of(params), adam(loss)
errors = {}

def counting(since):
    def train_step(params, opt_state, batch):
        params, new, metrics = step(params, opt_state, batch)
        return params, {**new, "count": jnp.sum(batch["x"] > 0) + (opt_state["count"] if since else 0)}, metrics
    return train_step

def refused(name, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except automap.Error as error:
        errors[name] = str(error)

def planned(function=step, *arguments, **options):
    return automap.plan(function, *(arguments or (params, opt_state, batch_of(8))), **{"cluster": "h100-1x8", "micro_batch_size": 4,
                        "stages": 2, **options})

refused("cluster", planned, cluster="none")
refused("option", planned, no_option=1)
refused("micro_batch", planned, micro_batch=4)
refused("order", planned, lambda params, opt_state, batch: step(params, opt_state, batch)[::-1])
refused("shape", planned, lambda params, opt_state, batch: ({**params, "up": params["up"][1:]}, opt_state))
refused("few", planned, lambda params, opt_state, batch: params)
refused("one", planned, step, params)
refused("samples", planned, step, params, opt_state, {**batch_of(8), "y": array(4, 8)})
refused("fails", planned, lambda p, o, batch: step(p, o, {**batch, "x": batch["x"].reshape(8, 8)}))
refused("text", planned, step, params, opt_state, {**batch_of(8), "name": "x"})
refused("key", planned, step, {**params, "key": jax.random.key(0)}, opt_state, batch_of(8))

plan = planned()
assert plan.batch_size == 8 and plan.micro_batches == 2
chosen = planned(micro_batch_size=None, batch_size=64)
assert chosen.batch_size == 64 and chosen.step.samples == chosen.micro_batch_size
given = (step, params, opt_state, batch_of(8))
scored = automap.evaluate(*given, plan=plan, cluster="h100-1x8")
assert (scored.step_ms, scored.layout, scored.step.samples) == (plan.step_ms, plan.layout, 4)
assert automap.evaluate(*given, layout="dp=2,micro-batch-size=2", cluster="h100-1x8").micro_batches == 2
assert automap.profile(*given, device="h100").micro_batch_size == 8
assert automap.compare(*given, cluster="h100-1x8", systems=["megatron"]).batch_size == 8
assert "<svg " in plan._repr_html_()
refused("devices", automap.jax.compile, plan, devices=jax.devices()[:1])
refused("devices_twice", automap.jax.compile, plan, devices=jax.devices()[:1] * 5)
refused("devices_number", automap.jax.compile, plan, devices=3)
refused("no_plan", automap.jax.compile, plan.record)
refused("size", planned, micro_batch_size="auto")
named = lambda *given: step(*given)
named.__name__ = "of/two words"
assert planned(named).record["model"] == "of_two_words"
plan.save(folder + "/plan.json")
refused("other", automap.jax.compile, automap.load(folder + "/plan.json", lambda *given: adam(lambda p, b: 2 * loss(p, b))(*given), params,
                                                  opt_state, batch_of(8)), one_device=True)
refused("all_counts", lambda: automap.jax.compile(planned(counting(since=True)), one_device=True))
refused("own_counts", lambda: automap.jax.compile(planned(counting(since=False)), one_device=True))
run = automap.jax.compile(automap.load(folder + "/plan.json", step, params, opt_state, batch_of(8)), one_device=True)
refused("init", run.init, params)
refused("init_shape", run.init, {**params, "up": array(8, 31)}, opt_state)
state = run.init(params, opt_state)
refused("batch", run.step, state, batch_of(9))
refused("batch_type", run.step, state, {**batch_of(8), "x": np.zeros((8, 8), np.int32)})
refused("batch_structure", run.step, state, {"x": array(8, 8)})
refused("batch_more", run.step, state, {**batch_of(8), "z": 1})
refused("batch_list", run.step, state, list(batch_of(8).values()))
refused("state", run.step, params, batch_of(8))
refused("gather", run.gather, (params, opt_state))

# Two steps under one plan, a checkpoint, and two under another: as four of the step itself.
def written(name, tree):
    with open(folder + "/" + name, "wb") as file:
        pickle.dump(tree, file)
    return folder + "/" + name

batches = [batch_of(8) for _ in range(4)]
for one in batches[:2]:
    state, _ = run.step(state, one)
checkpoint = written("checkpoint.pickle", run.gather(state))
other = automap.jax.compile(planned(stages=1, micro_batch_size=2), one_device=True)
restored = other.restore(checkpoint)
for one in batches[2:]:
    restored, _ = other.step(restored, one)
unsplit, jitted = (params, opt_state), jax.jit(step)
for one in batches:
    unsplit = jitted(*unsplit, one)[:2]
restarted = max(jax.tree.leaves(jax.tree.map(difference, other.gather(restored), unsplit)))
refused("restore_none", run.restore, folder + "/none")
refused("restore_text", run.restore, folder + "/plan.json")
refused("restore_few", run.restore, written("few.pickle", params))
refused("restore_shape", run.restore, written("shape.pickle", ({**params, "up": array(8, 31)}, opt_state)))
try:
    import orbax.checkpoint
    with orbax.checkpoint.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder + "/orbax", run.gather(state))
    assert not any(jax.tree.leaves(jax.tree.map(difference, other.gather(other.restore(folder + "/orbax")), run.gather(state))))
    refused("restore_folder", run.restore, folder)
except ImportError:
    refused("restore_folder", run.restore, folder)

# A file: dicts by the names of the module's inputs.
plan = automap.plan(module, cluster="h100-1x8", batch_size=32, micro_batch_size=16, stages=2)
run = automap.jax.compile(plan, one_device=True)
state = {"params" + jax.tree_util.keystr(path): array(*leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(
    {"dense_1": {"kernel": (32, 64), "bias": (64,)}, "dense_2": {"kernel": (64, 10), "bias": (10,)}},
    is_leaf=lambda leaf: isinstance(leaf, tuple))[0]}
batch = {"batch['x']": array(32, 32), "batch['y']": array(32, 10)}
new, value = run.step(run.init(state), batch)
new = run.gather(new)
print(json.dumps({"errors": errors, "restarted": restarted, "names": sorted(new), "loss": float(value), "shapes": all(new[n].shape == state[n].shape for n in new)}))
'''


class Package(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="automap_python_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def test_a_file_is_planned_without_jax(self):
        plan = automap.plan(TINY, cluster="h100-1x8", batch_size=64, micro_batch_size=16, stages=2, schedule="1f1b")
        self.assertNotIn("jax", sys.modules)
        self.assertEqual((plan.batch_size, plan.micro_batch_size, plan.micro_batches), (64, 16, 4))
        self.assertEqual(len(plan.record["groups"]), 2)
        self.assertIn("pp=2,", plan.layout)
        self.assertIn("schedule=1f1b", plan.layout)
        low, high = plan.expected_ms
        self.assertTrue(0 < low < plan.step_ms < high)
        self.assertTrue(0 < plan.memory_bytes < plan.capacity_bytes)
        self.assertIn("of 64 samples", str(plan))
        searched = planning.Plan({**plan.record, "schedule": {**plan.record["schedule"], "name": "searched"}})
        self.assertEqual(searched.layout, "")
        self.assertIn(": lists of work, ", str(searched))
        self.assertRegex(plan.report, r"(?m)^Takes   .* a step")
        plan.save(self.folder / "plan.json")
        scored = run("automap-infer", TINY, "--cluster", "h100-1x8", "--plan", self.folder / "plan.json", "--json")
        self.assertEqual(scored.returncode, 0, scored.stderr)
        self.assertEqual(json.loads(scored.stdout)["simulated_step_ms"], plan.step_ms)
        self.assertEqual(automap.load(self.folder / "plan.json", TINY), plan)
        self.assertTrue(plan.fits)

    def test_flags_are_those_of_the_program_and_others_take_values(self):
        lines = re.findall(r"(?m)^  (?:-\w, )?--([\w-]+)( \S+)?", run("automap-infer", "--help-all").stdout)
        self.assertEqual({name for name, value in lines if not value} - planning.NO_PLAN, planning.FLAGS)
        self.assertEqual(planning.words_of({"memory": False, "explore": True, "whole_loops": True, "as_is": False, "stages": 2, "json": False,
                                          "sweep": None, "variables": "--x"}),
                         ["--memory=off", "--explore=on", "--whole-loops", "--stages=2", "--variables=--x"])

    def test_a_layout_that_does_not_fit_is_a_plan_with_a_warning(self):
        cluster = self.folder / "small.json"
        server = {"count": 1, "devices": 2, "intra_gbytes_per_s": 100, "inter_gbytes_per_s": 10, "device": "small"}
        cluster.write_text(json.dumps({"servers": [server], "devices": {"small": {"memory_gib": 1e-5}}}))
        too_much = {"cluster": cluster, "batch_size": 64, "layout": "dp=2,micro-batch-size=4", "device": "h100"}
        plan = automap.plan(TINY, **too_much)
        self.assertFalse(plan.fits)
        self.assertRegex(plan.warnings[0], "^the plan does not fit: stage 1 lacks")
        self.assertRegex(str(plan), "on the fullest device, which is too much$")
        with self.assertRaisesRegex(automap.Error, "^[^w]") as raised:  # No "warning: ".
            automap.plan(TINY, **{**too_much, "layout": None})
        self.assertEqual(raised.exception.exit_code, 4)
        # Nobody minds with memory=False, and the plan is the same.
        unminded = automap.plan(TINY, **too_much, memory=False)
        self.assertEqual((unminded.fits, unminded.memory_bytes), (False, plan.memory_bytes))
        self.assertNotRegex("".join(unminded.warnings), "does not fit")

    def test_programs_are_looked_for_beside_a_package_near_the_root(self):
        self.assertEqual(installed.folders(Path("/opt/python/automap")), [Path("/opt/python/bin"), Path("/opt"), Path("/opt/build/release")])
        self.assertEqual(installed.folders(Path("/a/share/automap/python/automap"))[0], Path("/a/bin"))
        self.assertEqual(installed.folders(Path("/venv/lib/python3.11/site-packages/automap"))[0], Path("/venv/bin"))
        self.assertIn(Path("/target/bin"), installed.folders(Path("/target/automap")))
        self.assertEqual(installed.folders(Path("/automap")), [Path("/bin")])
        self.assertEqual(installed._said("warning: one\nwarning: two\n"), "one\ntwo")
        self.assertEqual(installed._said("warning: one\nerror: two\n  hint: three\n"), "two\n  hint: three")

    def test_a_machine_that_cannot_start_the_programs_is_told_why(self):
        program = self.folder / "automap-infer"
        loader = f"{program}: error while loading shared libraries: libhdf5.so.103: cannot open shared object file: No such file or directory"
        newer = f"{program}: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by {program})"
        with mock.patch.object(installed, "folders", return_value=[self.folder]):
            for said, code, told in ((loader, 127, r"cannot be started on this machine: libhdf5\.so\.103: cannot open .*; install the package"),
                                     (newer, 1, r"cannot be started on this machine: .* with GLIBC_2\.38; build it here: pip install \.")):
                program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit {code}\n")
                program.chmod(0o755)
                with self.assertRaisesRegex(automap.Error, told) as raised:
                    automap.plan(TINY, cluster="h100-1x8")
                self.assertIsNone(raised.exception.exit_code)

    def test_another_jax_is_named(self):
        (self.folder / "jax").mkdir()
        (self.folder / "jax" / "__init__.py").write_text("__version__ = '0.4.30'\ndevices = list\n")
        for module in ("jax/numpy.py", "numpy.py"):
            (self.folder / module).write_text("")
        plan, programs = self.folder / "plan.json", self.folder / "programs"
        automap.plan(TINY, cluster="h100-1x8", batch_size=16, micro_batch_size=16, stages=1, effort="quick").save(plan)
        self.assertEqual(run("automap-emit", plan, "--model", TINY, "--to", "hlo", "-o", programs).returncode, 0)
        script = ("import automap\ntry:\n  import automap.jax\nexcept automap.Error as error:\n  print(error)\n"
                  f"from automap.command import main\nprint(main([{str(programs)!r}]))\n")
        told = r"a plan is run with JAX 0\.10, and this Python has 0\.4\.30 \(.*jax\._src.*\); install jax 0\.10\n"
        result = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True,
                                env=environment(PYTHONPATH=f"{self.folder}{os.pathsep}{BIN / 'python'}"))
        self.assertRegex(result.stdout, f"^{told}3\n$", result.stderr)
        self.assertRegex(result.stderr, f"automap-run: error: {told}")

    def test_what_is_wrong_is_said(self):
        def refused(text, function, *arguments, code=None, **options):
            with self.subTest(text), self.assertRaisesRegex(automap.Error, text) as raised:
                function(*arguments, **options)
            self.assertEqual(raised.exception.exit_code, code)

        refused("no cluster preset or file named \"none\"\n  hint: presets: config-a", automap.plan, TINY, cluster="none", code=2)
        refused("none.hlo", automap.plan, self.folder / "none.hlo", cluster="h100-1x8", code=3)
        refused("No plan of 8 stages", automap.plan, TINY, cluster="h100-1x8", batch_size=16, stages=8, code=4)
        refused("the step is a file", automap.plan, TINY, 1, cluster="h100-1x8")
        (self.folder / "plan.json").write_text("[]")
        refused("plan.json: it is no pipeline plan", automap.load, self.folder / "plan.json", TINY)
        refused("none.json: No such file", automap.load, self.folder / "none.json", TINY)
        good = automap.plan(TINY, cluster="h100-1x8", batch_size=16, stages=1, effort="quick").record
        for wrong in ({"micro_batch_samples": "x"}, {"groups": []}, {"groups": 3}, {"micro_batches": "2"}, {"warnings": None}, {"report": [1]},
                      {"groups": [{**good["groups"][0], "capacity_bytes": 0}]}, {"batch": float("inf")}, {"expected_ms": ["a"]}):
            for record in (wrong, {**good, **wrong}):
                (self.folder / "plan.json").write_text(json.dumps(record))
                refused("plan.json: it is no pipeline plan", automap.load, self.folder / "plan.json", TINY)
        for option in ("version", "help", "help_all", "dump_config", "json", "output", "sweep"):
            refused(f"{option}= is no option here: automap-infer makes no plan", automap.plan, TINY, cluster="h100-1x8", **{option: True})
        refused("the step is None, and has to be a function or the path", automap.plan, None, cluster="h100-1x8")
        refused("the step is None, and has to be a function or the path", automap.load, self.folder / "plan.json", None)
        refused("the plan is 3, and has to be the path", automap.load, 3, TINY)
        refused("cluster is 3, and has to be a preset or", automap.plan, TINY, cluster=3)
        refused("micro_batch_size is 'auto', .*; without it the plan chooses", automap.plan, TINY, cluster="h100-1x8", micro_batch_size="auto")
        for size in (0, True, 2.5):
            refused(f"batch_size is {size}, .* whole number", automap.plan, TINY, cluster="h100-1x8", batch_size=size)
        refused("whole_loops is 'yes', and has to be True or False", automap.plan, TINY, cluster="h100-1x8", whole_loops="yes")
        refused("--stages: found 'off'", automap.plan, TINY, cluster="h100-1x8", stages=False, code=2)
        refused("cannot be called with these options", automap.plan, TINY, cluster="h100\0")
        # The package alone, where there are no programs; and a function, where there is no JAX.
        shutil.copytree(BIN / "python", self.folder / "a" / "b" / "python")
        script = ("import sys\nsys.modules['jax'] = None\nimport automap\nfor step in sys.argv[1:], [print, 1, 2]:\n  try:\n"
                  "    automap.plan(*step, cluster='h100-1x8')\n  except automap.Error as error:\n    print(error)\n")
        result = subprocess.run([sys.executable, "-B", "-c", script, str(TINY)], capture_output=True, text=True,
                                env={"PATH": str(self.folder), "PYTHONPATH": str(self.folder / "a" / "b" / "python")})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, "^automap-infer is neither beside the package nor on the PATH; build it .*cmake --build --preset release"
                         ".*\n.*does not have; install jax, or give an HLO file\n$")


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.python = python_with_jax()
        if cls.python is None:
            raise unittest.SkipTest(NO_JAX)

    def script(self, text, *arguments, devices):
        # Enough optimization to run, and no more: compilation is most of the time.
        flags = (f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0 "
                 "--xla_llvm_disable_expensive_passes=true")
        result = subprocess.run([self.python, "-B", "-c", text, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                                env=environment(XLA_FLAGS=flags, JAX_PLATFORMS="cpu", PYTHONPATH=str(BIN / "python")))
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout.splitlines()[-1])

    def test_a_jitted_step_becomes_a_pipeline_with_the_same_numbers(self):
        told = self.script(DECODER, devices=4)
        self.assertLess(told["off"], 1e-4)
        self.assertEqual((told["count"], told["devices"], told["micro_batches"]), (3, 4, 4))
        self.assertEqual(told["layout"], "dp=2,pp=2,tp=1,micro-batch-size=2,zero=1,schedule=adaptive")
        self.assertIn("train_step on 4 devices of h100-1x8: dp=2,pp=2,", told["text"])
        self.assertTrue(told["expected_ms"][0] < told["step_ms"] < told["expected_ms"][1])

    def test_what_does_not_fit_together_is_said_and_files_run(self):
        with tempfile.TemporaryDirectory() as folder:
            told = self.script(LAYERS, folder, TINY, devices=2)
        errors = told["errors"]
        for name, text in (
            ("cluster", 'no cluster preset or file named "none"'),
            ("option", "no-option"),
            ("micro_batch", r"micro_batch= is no option here; say micro_batch_size="),
            ("order", r"result 1\['down'\] is missing, and 1 more; result 1 has to be like the argument params: the step has to be step\(\*state, batch\) -> \(\*state, \*metrics\)"),
            ("shape", r"result 1\['up'\] is float32\[7,32\], expected float32\[8,32\]; result 1 has to be like the argument params: "),
            ("few", r"returns {'down': \*, 'up': \*}, and has 2 arguments of state"),
            ("one", "train_step is given 1 argument; the step has to be"),
            ("samples", r"first dimension of every array of batch .*batch\['x'\] 8, batch\['y'\] 4"),
            ("fails", r"<lambda> cannot be traced with a batch of 4 samples: TypeError: .*reshape"),
            ("text", r"batch\['name'\] is a str, and has to be an array"),
            ("key", r"params\['key'\] is a key<fry>; give jax.random.key_data"),
            ("devices", r"the plan takes (\d) devices, and there are 1; .*device_count=\1 "),
            ("devices_twice", "^cpu:0 is twice among the devices"),
            ("devices_number", "devices has to be a list of JAX devices"),
            ("no_plan", "^a dict is no plan"),
            ("size", "^micro_batch_size is 'auto', "),
            ("all_counts", "^result .* is state that every micro-batch changes"),
            ("own_counts", r"^opt_state\['count'\]: every micro-batch makes another new value, and a step has one"),
            ("other", "^plan.json: it was made for another file"),
            ("init", "init is given 1 arguments, expected 2: params, opt_state"),
            ("init_shape", r"params\['up'\] is float32\[8,31\], expected float32\[8,32\]"),
            ("batch", r"batch\['x'\] is float32\[9,8\], expected float32\[8,8\]: 2 micro-batches of 4 samples"),
            ("batch_type", r"batch\['x'\] is int32\[8,8\], expected float32\[8,8\]"),
            ("batch_structure", r"^batch\['rate'\] is missing, and 1 more"),
            ("batch_more", r"^batch\['z'\] is one more than expected$"),
            ("batch_list", r"^batch\['rate'\] is missing, and 2 more"),
            ("state", "the state is not one of this run"),
            ("gather", "the state is not one of this run"),
            ("restore_none", "/none cannot be read: No such file"),
            ("restore_text", r"/plan.json is not what pickle wrote \("),
            ("restore_few", r"/few.pickle is no checkpoint of this step: init is given 1 arguments, expected 2"),
            ("restore_shape", r"/shape.pickle is no checkpoint of this step: params\['up'\] is float32\[8,31\], expected float32\[8,32\]"),
            ("restore_folder", "takes the package orbax-checkpoint|is no checkpoint of this step"),
        ):
            with self.subTest(name):
                self.assertRegex(errors.get(name, "nothing was refused"), text)
        self.assertEqual(told["names"], [f"params['dense_{n}']['{of}']" for n in (1, 2) for of in ("bias", "kernel")])
        self.assertTrue(told["shapes"])
        self.assertLess(told["restarted"], 1e-4)
        self.assertGreater(told["loss"], 0)


if __name__ == "__main__":
    unittest.main()
