"""automap emit --to hlo and automap run: the programs of every stage, their manifest, and with JAX their numbers. What
needs JAX is skipped where no Python has it."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from pathlib import Path
from unittest import mock

from programs import BIN, FIXTURES, NO_JAX, SOURCE, environment, free_port, python_with_jax, run

sys.path.insert(0, str(SOURCE / "python"))
from automap import coordinator, launch, measure, processes  # noqa: E402
from automap.processes import dealt, first_host, in_order, place_of  # noqa: E402
from automap.programs import Manifest, ProgramsError, walk  # noqa: E402
from automap.trace import Trace  # noqa: E402

# A decoder whose table is also its head, so that two groups use it; clipped by the global norm, AdamW.
TIED = '''
import sys
import jax
import jax.numpy as jnp

def loss(params, tokens):
    x = params["table"][tokens]
    for layer in params["layers"]:
        q, k, v = (x @ layer[n] for n in "qkv")
        scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), q @ k.swapaxes(-1, -2) / 4, -1e9)
        x = x + jax.nn.softmax(scores) @ v
        x = x + jax.nn.gelu(x @ layer["up"] + layer["bias"]) @ layer["down"]
    logits = x[:, :-1] @ params["table"].T
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1))

def train_step(params, opt_state, batch):
    value, gradients = jax.value_and_grad(loss)(params, batch)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
    gradients = jax.tree.map(lambda g: g * jnp.minimum(1, 1 / norm), gradients)
    count = opt_state["count"] + 1
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, opt_state["mu"], gradients)
    nu = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, opt_state["nu"], gradients)
    new = jax.tree.map(lambda p, m, v: p - 1e-3 * (m / (jnp.sqrt(v) + 1e-8) + 0.01 * p), params, mu, nu)
    return new, {"mu": mu, "nu": nu, "count": count}, value, norm

def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)

layer = {**{n: array(16, 16) for n in "qkv"}, "up": array(16, 32), "bias": array(32), "down": array(32, 16)}
params = {"table": array(11, 16), "layers": [layer] * 3}
state = {"mu": params, "nu": params, "count": jax.ShapeDtypeStruct((), jnp.int32)}
lowered = jax.jit(train_step).lower(params, state, jax.ShapeDtypeStruct((2, 6), jnp.int32))
print(lowered.as_text("hlo", debug_info=True))
'''


# Layers with Adam, an odd dimension among even ones.
DENSE = '''
import jax
import jax.numpy as jnp

def loss(params, x, y):
    for layer in params["layers"]:
        x = jax.nn.gelu(x @ layer["up"] + layer["bias"]) @ layer["down"] + layer["odd"]
    return jnp.mean((x - y) ** 2)

def train_step(params, state, x, y):
    value, gradients = jax.value_and_grad(loss)(params, x, y)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], gradients)
    nu = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["nu"], gradients)
    new = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, mu, nu)
    return new, {"mu": mu, "nu": nu}, value

def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)

params = {"layers": [{"up": array(7, 64), "bias": array(64), "down": array(64, 7), "odd": array(7)}] * 3}
lowered = jax.jit(train_step).lower(params, {"mu": params, "nu": params}, array(4, 7), array(4, 7))
print(lowered.as_text("hlo", debug_info=True))
'''

# What a plan's arrays and programs look like on devices, as JSON.
LOOK = '''
import json, re, sys
sys.path.insert(0, sys.argv[1])
import jax
import numpy as np
from automap.check import draw
from automap.execution import load

manifest, execution = load(sys.argv[2])
name_of = {manifest.input_name(one): one for one in manifest.inputs}
generator = np.random.default_rng(0)
drawn = {name: draw(one, generator) for name, one in name_of.items()}
batches = [{name: drawn[name] for name, one in name_of.items() if one["role"] == "batch"}] * manifest.micro_batches
state = execution.init(drawn)
state, _ = execution.step(state, batches)
shapes = {name_of[name]["name"]: {group: [list(array.shape), list(array.addressable_shards[0].data.shape), len(array.addressable_shards)]
                                  for group, array in held.items()} for name, held in state.items()}
collectives = {name: sorted(set(re.findall(r" (all-reduce|all-gather|reduce-scatter)\\(", program.text())))
               for name, program in execution.run_of.items()}
made = {name: [list(program.shardings[i].shard_shape(program.shapes[i])) for i in range(len(program.shapes))]
        for name, program in execution.run_of.items()}
print(json.dumps([shapes, collectives, made]))
'''


# A plan of a file, run from Python: FOLDER MODULE RANK PORT, without the last two in one process. What it prints is short: of
# two processes that end together one must not wait until somebody has read the other one's.
API = '''
import hashlib, pickle, sys, tempfile
sys.path.insert(0, sys.argv[1])
import jax
import numpy as np
if len(sys.argv) > 3:
    jax.distributed.initialize("127.0.0.1:" + sys.argv[4], 2, int(sys.argv[3]))
import automap, automap.jax
from automap.check import draw

plan = automap.plan(sys.argv[2], cluster="h100-1x8", layout="dp=1,pp=2,micro-batch-size=16", batch_size=32)
run = automap.jax.compile(plan)
generator = np.random.default_rng(0)
state = {one["name"]: draw(one, generator) for one in run._manifest.inputs if one["role"] != "batch"}
batch = {one["name"]: np.tile(draw(one, generator), (2, 1)) for one in run._manifest.inputs if one["role"] == "batch"}
state = run.init(state)
for _ in range(2):
    state, metrics = run.step(state, batch)
with tempfile.NamedTemporaryFile() as checkpoint:
    pickle.dump(run.gather(state), checkpoint)
    checkpoint.flush()
    restored = run.restore(checkpoint.name)
state, metrics = run.step(state, batch)
new = run.gather(state)
again = run.gather(run.step(restored, batch)[0])
assert all(np.array_equal(again[name], new[name]) for name in new)
leaves = [np.asarray(one) for one in jax.tree.leaves((metrics, new))]
print(len(run.devices), len(leaves), float(leaves[0]), hashlib.sha256(b"".join(one.tobytes() for one in leaves)).hexdigest())
'''


# How many programs of a group were begun while the one before still ran.
IN_FLIGHT = '''
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from automap.check import draw
from automap.execution import load

manifest, execution = load(sys.argv[2])
last, late, calls = {}, 0, 0

def call(program, compiled, arrays):
    global late, calls
    calls += 1
    late += any(not array.is_ready() for array in last.get(program.group, ()))
    last[program.group] = compiled(arrays)
    return last[program.group]

generator = np.random.default_rng(0)
drawn = {manifest.input_name(one): draw(one, generator) for one in manifest.inputs}
batch = {name: drawn.pop(name) for name in [manifest.input_name(one) for one in manifest.inputs if one["role"] == "batch"]}
state = execution.init(drawn)
for _ in range(5):
    state, _ = execution.step(state, [batch] * manifest.micro_batches, call=call)
print(f"{late} of {calls}")
'''


class Emitted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="automap_run_"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def plan(self, name, module, *options, samples, count):
        plan = self.folder / f"{name}.json"
        result = run("automap-infer", module, "--cluster", "h100-1x8", "--batch", samples * count, "--micro-batch", samples,
                     *options, "-o", plan)
        self.assertEqual(result.returncode, 0, result.stderr)
        return plan

    def emit(self, name, module, *options, samples, count):
        plan = self.plan(name, module, *options, samples=samples, count=count)
        result = run("automap-emit", plan, "--model", module, "--to", "hlo", "-o", self.folder / name)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("automap run", result.stderr)
        return self.folder / name

    def emit_layout(self, name, module, layout, samples, count=2):
        plan = self.folder / f"{name}.json"
        result = run("automap-infer", module, "--cluster", "h100-2x8", "--batch", samples * count, "--layout", layout, "-o", plan)
        self.assertEqual(result.returncode, 0, result.stderr)
        result = run("automap-emit", plan, "--model", module, "--to", "hlo", "-o", self.folder / name)
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.folder / name

    def export(self, python, name, script):
        module = self.folder / f"{name}.hlo"
        (self.folder / f"{name}.py").write_text(script)
        made = subprocess.run([python, str(self.folder / f"{name}.py")], capture_output=True, text=True, env=environment(JAX_PLATFORMS="cpu"))
        self.assertEqual(made.returncode, 0, made.stderr)
        module.write_text(made.stdout)
        return module

    def automap_run(self, python, folder, *options, devices=4):
        # Enough optimization to run, and no more: compilation is most of the time.
        flags = (f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0 "
                 "--xla_llvm_disable_expensive_passes=true")
        return subprocess.run([python, "-B", str(BIN / "automap-run"), str(folder), *options], capture_output=True, text=True,
                              timeout=300, env=environment(XLA_FLAGS=flags))


class Programs(Emitted):
    def test_manifest_says_what_the_plan_says(self):
        folder = self.emit("tiny", FIXTURES / "tiny_mlp.hlo", "--stages", "2", "--schedule", "1f1b", samples=16, count=4)
        manifest = Manifest(str(folder))
        self.assertEqual((manifest.micro_batches, manifest.samples, manifest.plan.groups), (4, 16, 2))
        self.assertEqual([item[:1] + item[2:] for item in manifest.groups[1]["order"]],
                         [[kind, m] for m in range(4) for kind in "FB"])
        self.assertEqual({one["role"] for one in manifest.inputs}, {"variable", "batch"})
        for program in manifest.plan.programs + manifest.whole.programs:
            self.assertIn("ENTRY", manifest.text(program.file))
        # What is no manifest is said to be none, whatever is wrong with it.
        whole = (folder / "manifest.json").read_text()
        for key, value in (("micro_batches", -5), ("groups", []), ("plan", {**json.loads(whole)["plan"], "groups": 3}), ("samples", None),
                           ("plan", {**json.loads(whole)["plan"], "values": []}), ("plan", {**json.loads(whole)["plan"], "results": ["a"]}), ("schema", "x")):
            changed = json.loads(whole)
            if value is None:
                del changed[key]
            else:
                changed[key] = value
            (folder / "manifest.json").write_text(json.dumps(changed))
            with self.subTest(key=key), self.assertRaisesRegex(ProgramsError, "manifest.json: .*write the folder again"):
                Manifest(str(folder))
        (folder / "manifest.json").write_text("[" * 100000)
        self.assertRaisesRegex(ProgramsError, "no JSON", Manifest, str(folder))
        (folder / "manifest.json").write_text(whole)
        # Every value that is sent is received, and the other way round.
        record = json.loads((folder / "manifest.json").read_text())
        sent = {(v["value"], p["group"], v["to"]) for p in record["plan"]["programs"] for v in p["sends"]}
        received = {(v["value"], v["from"], p["group"]) for p in record["plan"]["programs"] for v in p["receives"]}
        self.assertTrue(sent)
        self.assertEqual(sent, received)

    def test_planned_and_written_in_one_call(self):
        """The files are those that automap-emit makes of the plan, and what cannot be written leaves nothing."""
        tiny, plan = FIXTURES / "tiny_mlp.hlo", self.folder / "one.json"
        asked = ("automap-infer", tiny, "--cluster", "h100-2x8", "--batch", 32, "--layout", "dp=2,pp=2,micro-batch-size=8")
        for options in (("-o", plan), ("--emit-programs", self.folder / "deep" / "one")):
            done = run(*asked, *options)
            self.assertEqual(done.returncode, 0, done.stderr)
        done = run("automap-emit", plan, "--model", tiny, "--to", "hlo", "-o", self.folder / "two")
        self.assertEqual(done.returncode, 0, done.stderr)
        texts = [{path.name: path.read_text() for path in folder.iterdir()} for folder in (self.folder / "deep" / "one", self.folder / "two")]
        self.assertRegex(texts[0]["manifest.json"], '"model_sha256": "[0-9a-f]{64}"')
        self.assertEqual(*texts)
        # Programs are cut out of a module: a profile has none.
        profile, nowhere = self.folder / "tiny.csv", ("--emit-programs", self.folder / "x")
        self.assertEqual(run("automap-profile", tiny, "--device", "h100-80gb", "-o", profile).returncode, 0)
        for code, word, arguments, given in (
                (3, "folder", (*asked, "--emit-programs", tiny), None),
                (2, "--sweep", (*asked[:-2], "--sweep", *nowhere), None),
                (2, "--emit-programs is for one", (*asked[:-2], "--vary", "devices=1,2", *nowhere), None),
                (2, "once", (asked[0], "-", *asked[2:], *nowhere), tiny.read_text()),
                (3, "HLO", (asked[0], profile, *asked[2:], "-o", self.folder / "no.json", *nowhere), None)):
            with self.subTest(word=word):
                failed = run(*arguments, stdin=given)
                self.assertEqual((failed.returncode, failed.stdout), (code, ""), failed.stderr)
                self.assertIn(word, failed.stderr)
        self.assertEqual([(self.folder / name).exists() for name in ("x", "no.json")], [False, False])

    def test_manifest_says_what_the_devices_of_a_group_hold(self):
        tiny = FIXTURES / "tiny_mlp.hlo"
        expected = {  # of the first layer's kernel and the batch, and whether the gradient of the kernel lies as the kernel
            "dp=2,pp=2,micro-batch-size=8": ({}, {"replicas": 0}),
            "tp=2,pp=2,micro-batch-size=16": ({"width": 1}, {}),
            "dp=2,tp=2,pp=1,zero=1,micro-batch-size=8": ({"width": 1}, {"replicas": 0}),
            "dp=2,tp=2,pp=2,zero=3,micro-batch-size=8": ({"width": 1, "replicas": 0}, {"replicas": 0}),
        }
        for number, (layout, (kernel, batch)) in enumerate(expected.items()):
            with self.subTest(layout):
                folder = self.emit_layout(f"held_{number}", tiny, layout, samples=16)
                manifest = Manifest(str(folder))
                name_of = {one["name"]: manifest.input_name(one) for one in manifest.inputs}
                group = manifest.plan.layouts[0]
                self.assertEqual(group.devices, manifest.groups[0]["devices"])
                self.assertEqual(group.split(name_of["params['dense_1']['kernel']"]), kernel)
                self.assertEqual(group.split(name_of["batch['x']"]), batch)
                # What comes from another group is split as its samples are; a gradient as its weight, without ZeRO 1.
                for program in manifest.plan.programs:
                    for name in program.reads:
                        if manifest.plan.is_value(name) and manifest.plan.values[name]["group"] != program.group:
                            self.assertEqual(manifest.plan.layouts[program.group].split(name), batch)
                    for name in program.makes:
                        if manifest.plan.values[name]["what"] == "gradient" and manifest.plan.values[name]["shape"] == "f32[32,64]":
                            self.assertEqual(group.split(name), kernel)
        # Groups of different widths have a partition each.
        part = json.loads((self.folder / "held_0.json").read_text())["parts"][0]
        given, plan = self.folder / "given.json", self.folder / "mixed.json"
        given.write_text(json.dumps({"cuts": [part["last_instruction"]], "device_cuts": [2], "width": [1, 2], "zero": [0, 3],
                                     "micro_batch_samples": 16, "micro_batches": 2, "devices": 6, "schedule": "1f1b"}))
        result = run("automap-infer", tiny, "--cluster", "h100-2x8", "--batch", "32", "--plan", given, "-o", plan)
        self.assertEqual(result.returncode, 0, result.stderr)
        result = run("automap-emit", plan, "--model", tiny, "--to", "hlo", "-o", self.folder / "mixed")
        self.assertEqual(result.returncode, 0, result.stderr)
        groups = Manifest(str(self.folder / "mixed")).plan.layouts
        self.assertEqual([(group.replicas, group.width, group.zero) for group in groups], [(2, 1, 0), (2, 2, 3)])
        self.assertEqual([groups[0].split("p1"), groups[1].split("p3")], [{}, {"width": 0, "replicas": 1}])
        # Eight replicas do not divide ten biases; and layouts that cannot be are refused.
        folder = self.emit_layout("held_whole", tiny, "dp=8,pp=1,zero=3,micro-batch-size=2", samples=16)
        manifest = Manifest(str(folder))
        self.assertIn("p2", manifest.plan.layouts[0].not_divided)
        record = json.loads((folder / "manifest.json").read_text())
        for key, value in (("replicas", 0), ("splits", {"p1": {"rows": 0}}), ("splits", {"p1": {"width": -1}}), ("zero", 4),
                           ("splits", {"p1": {"width": 9}}), ("splits", {"p99": {"replicas": 0}}), ("not_divided", ["p99"]),
                           ("splits", {"p2": {"replicas": 0}})):
            changed = json.loads(json.dumps(record))
            changed["groups"][0][key] = value
            (folder / "manifest.json").write_text(json.dumps(changed))
            with self.subTest(key=key, value=value), self.assertRaisesRegex(ProgramsError, "manifest.json: .*write the folder again"):
                Manifest(str(folder))
        # A partition of a tensor that there is not.
        plan = self.folder / "held_1.json"
        text = plan.read_text()
        self.assertIn("params['dense_1']['kernel']", text)
        plan.write_text(text.replace("params['dense_1']['kernel']\"", "params['dense_9']['kernel']\""))
        result = run("automap-emit", plan, "--model", tiny, "--to", "hlo", "-o", self.folder / "o")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertRegex(result.stderr, "held_1.json: partition: the model has no input .*dense_9")

    def test_groups_that_wait_for_what_they_receive_come_to_the_end(self):
        """A thread for each group, which does its list in order and stops until what it reads has been sent."""
        lit = FIXTURES / "lit_small.stripped.hlo.gz"
        for name, options in (("gpipe", ("--stages", "3", "--schedule", "gpipe")), ("1f1b", ("--stages", "4", "--schedule", "1f1b")),
                              ("zb", ("--stages", "2", "--schedule", "zb-h1")),
                              ("interleaved", ("--stages", "4", "--schedule", "interleaved"))):
            with self.subTest(name):
                folder = self.emit("wait_" + name, lit, *options, samples=16, count=4)
                section = Manifest(str(folder)).plan
                mail, came, ended = set(), threading.Condition(), []

                def work(group):
                    for item in section.order[group]:
                        program = section.program_of(item)
                        if program is None:
                            continue
                        needs = {(group, value, item[2]) for value in program.reads if section.is_value(value)}
                        with came:
                            if not came.wait_for(lambda: needs <= mail, timeout=60):
                                return
                            for value in program.makes:
                                for reader in {group, *(r.group for r in section.readers.get(value, []))}:
                                    mail.add((reader, value, item[2]))
                            came.notify_all()
                    ended.append(group)

                threads = [threading.Thread(target=work, args=(g,)) for g in range(section.groups)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertEqual(sorted(ended), list(range(section.groups)))
                # What the runner walks does the same work.
                ran, sent = [], {}
                walk(section, lambda program, m: ran.append((program.name, m)),
                     lambda program, value, m, to: sent.setdefault(m, []).append((program.name, value, to)))
                # Every group in its own order, so that what processes offer and fetch in the walk's order is in every group's.
                for order in section.order:
                    mine = [(section.program_of(item).name, item[2]) for item in order if section.program_of(item)]
                    self.assertEqual([one for one in ran if one in mine], mine)
                # What goes from group to group is what the manifest announces, in every micro-batch.
                read = {(value, r.group) for value, readers in section.readers.items() for r in readers if r.kind != "update"}
                announced = sorted((one["name"], told["value"], told["to"])
                                   for one in json.loads((folder / "manifest.json").read_text())["plan"]["programs"] if one["kind"] != "update"
                                   for told in one["sends"] if (told["value"], told["to"]) in read)
                self.assertTrue(announced)
                self.assertEqual([sorted(sent[m]) for m in range(section.micro_batches)], [announced] * section.micro_batches)
                self.assertEqual(len(ran), len(set(ran)))
                self.assertEqual(len(ran), sum(section.program_of(i) is not None for order in section.order for i in order))
                # And says so where the lists wait for each other.
                section.order[0].reverse()
                with self.assertRaisesRegex(ProgramsError, "wait for each other: group 1"):
                    walk(section, lambda *_: None, lambda *_: None)

    def test_an_end_that_was_seen_late_is_before_what_it_was_needed_for(self):
        trace = Trace(2)
        trace.finish()
        late, reader = ("forward 1, part 1", "forward", 1, 9, [("v", 0)], []), ("forward 1, part 2", "forward", 2, 5, [], [("v", 0)])
        behind = ("forward 2, part 1", "forward", 3, 10, [("v", 1)], [])
        trace._ran = [[late, behind], [reader]]
        self.assertEqual(trace.finish(), [(0, *late[:2], 1, 5), (0, *behind[:2], 5, 10), (1, *reader[:2], 5, 5)])

    def test_an_update_waits_for_the_gradients_of_all_micro_batches(self):
        manifest = Manifest(str(self.emit("waits", FIXTURES / "tiny_mlp.hlo", "--stages", "2", samples=16, count=3)))
        update = manifest.plan.updates[0]
        summed = [name for name in update.reads if manifest.plan.is_value(name) and manifest.plan.combined(name) == "mean"]
        self.assertTrue(summed)
        reads = manifest.plan.waited_for(update, 0)
        self.assertEqual([one for one in reads if one[0] == summed[0]], [(summed[0], m) for m in range(3)])
        backward = next(program for program in manifest.plan.programs if summed[0] in program.makes)
        self.assertTrue(all(m == 1 for _, m in manifest.plan.waited_for(backward, 1)))
        # A trace of another group's backward of the last micro-batch: the update begins behind it.
        trace = Trace(2)
        trace.ran(update, 0, 1, [], reads)
        trace.finish()
        (name, kind, dispatched, _, keys, reads), = trace._ran[update.group]
        trace._ran = [[("backward 3, part 1", "backward", 0, 7, [(summed[0], 2)], [])], [(name, kind, dispatched, 9, keys, reads)]]
        self.assertEqual(trace.finish()[1], (1, name, kind, 7, 9))

    def test_what_fails_while_it_is_waited_for_is_said(self):
        class Lost:
            def block_until_ready(self):
                raise RuntimeError("the device is lost\nby whom")

        section = Manifest(str(self.emit("lost", FIXTURES / "tiny_mlp.hlo", "--stages", "1", samples=16, count=1))).plan
        trace = Trace(1)
        trace.ran(section.programs[0], 0, trace.dispatching(), [Lost()], [])
        with self.assertRaisesRegex(ProgramsError, "part 1: XLA cannot run it: the device is lost$|phase 1: XLA"):
            trace.finish()

    def test_programs_are_timed_once(self):
        folder = self.emit("timed", FIXTURES / "tiny_mlp.hlo", "--stages", "2", "--schedule", "1f1b", samples=16, count=4)
        manifest = Manifest(str(folder))
        measure.check(manifest)
        calls = []
        stopwatch = measure.Stopwatch()
        array = types.SimpleNamespace(block_until_ready=lambda: None)
        for program in manifest.plan.programs * 2:
            stopwatch(program, lambda arrays, name=program.name: calls.append(name) or [array], [array])
        for program in manifest.plan.programs:
            times = stopwatch.times[program.name]
            self.assertEqual(calls.count(program.name), measure.WARM_UP + len(times) + 1)
            self.assertGreaterEqual(len(times), measure.LEAST)
        path, kinds = measure.write(manifest, "cpu", {program.name: [1, 2e-3, 0] for program in manifest.plan.programs})
        self.assertEqual(kinds, {"forward": 4, "backward": 4, "update": 4})
        result = run("automap-profile", FIXTURES / "tiny_mlp.hlo", "--measured", folder, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        profile = json.loads(result.stdout)
        self.assertAlmostEqual(profile["times_ms"]["forward"], 4)
        self.assertAlmostEqual(profile["times_ms"]["optimizer"], 4)
        self.assertEqual(profile["measured"]["source"], path)
        # Of another model, by its positions.
        result = run("automap-profile", FIXTURES / "lit_small.hlo.gz", "--measured", folder)
        self.assertEqual(result.returncode, 3)
        self.assertIn(f"it is of a model with {manifest.positions} positions", result.stderr)
        manifest.cuts = None
        with self.assertRaisesRegex(ProgramsError, "does not say which positions its parts have"):
            measure.check(manifest)

    def test_what_cannot_be_cut_is_said(self):
        tiny = FIXTURES / "tiny_mlp.hlo"
        plan = self.plan("other", tiny, "--stages", "2", samples=32, count=2)
        for options, error in (
            (["--model", tiny, "-o", self.folder / "o"], "its micro-batches have 32 samples, the shapes of .* 16"),
            (["--model", FIXTURES / "grouped_query.hlo.gz", "-o", self.folder / "o"], "made for another file"),
            (["-o", self.folder / "o"], "needs the model that is cut"),
            (["--model", tiny], "needs the model that is cut, and a folder"),
            (["--model", tiny, "-o", self.folder / "o", "--json"], "has no --json"),
        ):
            result = run("automap-emit", plan, "--to", "hlo", *options)
            self.assertIn(result.returncode, (2, 3))
            self.assertRegex(result.stderr, error)
            self.assertIn("hint:", result.stderr)
            self.assertFalse((self.folder / "o").exists())
        scan = FIXTURES / "transformer_scan.stripped.hlo.gz"
        plan = self.plan("turns", scan, "--stages", "2", samples=4, count=2)
        result = run("automap-emit", plan, "--to", "hlo", "--model", scan, "-o", self.folder / "o")
        self.assertEqual(result.returncode, 3)
        self.assertRegex(result.stderr, "turns of a loop over layers[^\n]*\n.*--whole-loops")

    def test_bad_folders_are_said(self):
        for name, text, error in (("none", None, "No such file"), ("text", "x", "no JSON"), ("list", "[]", "schema is None"),
                                  ("empty", '{"schema": "automap.programs/2"}', "'model' is missing"),
                                  ("new", '{"schema": "automap.programs/9"}', "expected 'automap.programs/2'")):
            folder = self.folder / f"bad_{name}"
            folder.mkdir()
            if text is not None:
                (folder / "manifest.json").write_text(text)
            result = run("automap-run", folder)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertRegex(result.stderr, f"^automap-run: error: .*{error}")


class Places(Emitted):
    """What a launcher says, and who gets which devices."""

    def test_launchers(self):
        torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29400",
                    "TORCHELASTIC_USE_AGENT_STORE": "True"}
        slurm = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
                 "SLURM_STEP_NODELIST": "node[03-05,9],other", "SLURM_JOB_ID": "1234567"}
        mpirun = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "MASTER_ADDR": "head"}
        for environment, expected in (
            (torchrun, (3, 4, "10.0.0.1", 29401, 1, 2)), (slurm, (1, 8, "node03", 24567, 1, 4)), (mpirun, (0, 2, "head", 29500, 0, 1)),
            ({"PMI_RANK": "1", "PMI_SIZE": "2", "MASTER_ADDR": "head", "MASTER_PORT": "7"}, (1, 2, "head", 7, 0, 1)),
        ):
            place = place_of(environment)
            self.assertEqual((place.rank, place.count, place.host, place.port, place.local_rank, place.local_count), expected)
        # A batch script of Slurm is one process, whatever its tasks are.
        for alone in ({}, {"WORLD_SIZE": "1"}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}):
            self.assertIsNone(place_of(alone))
        for environment, error in (({**torchrun, "RANK": "4"}, "RANK: found '4', expected a number from 0 to 3"),
                                   ({**torchrun, "WORLD_SIZE": "two"}, "WORLD_SIZE: found 'two'"),
                                   ({"WORLD_SIZE": "2"}, "RANK is not set"), ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR is not set"),
                                   ({**torchrun, "MASTER_PORT": "70000"}, "MASTER_PORT: found '70000'")):
            with self.subTest(error), self.assertRaisesRegex(ProgramsError, error):
                place_of(environment)
        self.assertEqual([first_host(nodes) for nodes in ("a", "a,b", "n[1,4]", "n[7]")], ["a", "a", "n1", "n7"])

    def test_devices_are_dealt(self):
        self.assertEqual([dealt([4, 2, 2], count) for count in (1, 2, 3, 4, 8)], [[8], [4, 4], [4, 2, 2], [2] * 4, [1] * 8])
        with self.assertRaisesRegex(ProgramsError, "5 processes for 3 groups with 8 devices together; start at most 3, .* divide 8"):
            dealt([4, 2, 2], 5)
        device = lambda number, rank: types.SimpleNamespace(id=number, process_index=rank)  # noqa: E731
        ids = lambda devices: [one.id for one in devices]  # noqa: E731
        all_devices = [device(number, number // 4) for number in range(8)]
        self.assertEqual(ids(in_order(all_devices, [2, 3])), [0, 1, 4, 5, 6])
        self.assertEqual(ids(in_order(all_devices, [6, 2])), list(range(8)))

    def test_files_of_hosts(self):
        path = self.folder / "hosts"
        for text, expected in (("a\n\n# no\nuser@b slots=2 # two\n", ["a", "user@b", "user@b"]), ("x slots=0", "line 1"), ("a\n-oProxy", "line 2"),
                               ("a 4", ["a"] * 4), ("a b c", "line 1"), ("# none", "names no machine")):
            path.write_text(text)
            if isinstance(expected, list):
                self.assertEqual(launch.read_hosts(path), expected)
            else:
                self.assertRaisesRegex(ProgramsError, f"hosts: .*{expected}", launch.read_hosts, path)
        self.assertRaisesRegex(ProgramsError, "No such file", launch.read_hosts, self.folder / "nowhere")
        self.assertEqual(launch.without(["d", "--hosts", "f", "--check", "--processes=2"], ("--hosts", "--processes")), ["d", "--check"])
        for options, error in ((["--processes", "0"], "from 1 to 4096"), (["--processes", "2", "--hosts", path], "not with --hosts"),
                               (["--wait", "0"], "more than 0"),
                               # Shortened, it would go on to every process, each of which would start as many again.
                               (["--process", "2"], "unrecognized arguments"), (["--host", path], "unrecognized arguments")):
            result = run("automap-run", self.folder, *options)
            self.assertEqual(result.returncode, 2)
            self.assertIn(error, result.stderr)
        result = run("automap-run", self.folder / "nothing", "--processes", "2")
        self.assertEqual((result.returncode, result.stderr.count("error:")), (3, 1), result.stderr)


    def test_ports_are_not_shared(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
            self.assertFalse(coordinator.is_free(address, 0))
        self.assertTrue(coordinator.is_free(address, 0))

    def test_one_that_compiles_may_be_silent_for_longer(self):
        class Ended(Exception):
            pass

        clock = iter(range(10000))  # a second for every look
        told = {"name": [("automap/name/1", "process 1 (group 2, on there)")], "there": [("automap/there/1", "7")]}
        client = types.SimpleNamespace(key_value_set=lambda *_, **__: None, key_value_dir_get=lambda where: told.get(where.split("/")[1], []))
        for begun, limit in ((True, 10), (False, 300)):
            known = processes.Processes(client, 0, 2, 300)
            if begun:
                known.has_begun.set()
            watch = processes.Watch(known, processes.Place(0, 2, "here", 1), None, "group 1")
            with mock.patch.object(processes, "time", types.SimpleNamespace(monotonic=lambda: next(clock))), \
                    mock.patch.object(processes, "SAYS_EVERY_S", 0), mock.patch.object(processes, "leave", side_effect=Ended) as leave:
                first = next(clock)
                self.assertRaises(Ended, watch._watch)
                self.assertIn(next(clock) - first, range(limit, limit + 6))
            self.assertRegex(leave.call_args.args[0], rf"^process 1 \(group 2, on there\) is lost: it has said nothing for {limit} s; process 0 ")


class Executed(Emitted):
    """With a Python that has JAX."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.python = python_with_jax()
        if cls.python is None:
            raise unittest.SkipTest(NO_JAX)


class Numbers(Executed):
    def check(self, folder, *says):
        result = self.automap_run(self.python, folder, "--check", "--one-device")
        self.assertEqual(result.returncode, 0, result.stderr)
        for text in ("3 steps equal the unsplit module's", *says):
            self.assertIn(text, result.stdout)

    def test_tied_table_clipping_and_schedules(self):
        module = self.export(self.python, "tied", TIED)
        for name, options in (("1f1b", ("--stages", "3", "--schedule", "1f1b", "--recompute", "none")),
                              ("interleaved", ("--stages", "4", "--schedule", "interleaved"))):
            with self.subTest(name):
                self.check(self.emit("tied_" + name, module, *options, samples=2, count=4))

    def test_groups_of_several_devices(self):
        """About four seconds for each layout: its programs are compiled for all devices, and the whole step for one."""
        module = self.export(self.python, "dense", DENSE)
        for name, layout, devices, says in (
            ("one", "dp=2,tp=2,pp=1,zero=1,micro-batch-size=2", 4, "1 group, 2 micro-batches, adaptive, on 4 devices, groups of 2 x 2 with ZeRO 1"),
            ("replicas", "dp=2,pp=2,zero=3,micro-batch-size=2", 4, "on 4 devices, groups of 2 x 1 with ZeRO 3"),
            ("width", "tp=2,pp=3,micro-batch-size=4", 6, "3 groups, 2 micro-batches, adaptive, on 6 devices, groups of 1 x 2:"),
            ("both", "dp=2,tp=2,pp=2,zero=3,micro-batch-size=2", 8, "on 8 devices, groups of 2 x 2 with ZeRO 3"),
        ):
            with self.subTest(layout):
                folder = self.emit_layout(name, module, layout, samples=4)
                result = self.automap_run(self.python, folder, "--check", devices=devices)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("3 steps equal the unsplit module's", result.stdout)
                self.assertIn(says, result.stdout)
                if "zero" in layout:
                    self.assertRegex(result.stderr, r"note: group 1 holds whole on every replica what has no dimension that 2 replicas "
                                     r"divide: .*\['odd'\]")
                if name == "both":
                    result = self.automap_run(self.python, folder, "--check", devices=4)
                    self.assertEqual(result.returncode, 3)
                    self.assertRegex(result.stderr, "2 groups have 8 devices together, and there are 4 devices; .*device_count=8 makes as many, and --one-device")

        shapes, collectives, made = self.look("both", 8)
        for what in ("params", "state['mu']"):
            self.assertEqual(shapes[what + "['layers'][0]['down']"], {"0": [[64, 7], [16, 7], 4]})  # over the width and the replicas
        self.assertEqual(shapes["params['layers'][0]['odd']"]["0"], [[7], [7], 4])
        self.assertIn([16, 7], made["backward.0"])  # a gradient, in parts
        self.assertIn("all-gather", collectives["forward.0"])
        shapes, collectives, made = self.look("one", 4)
        up = "['layers'][2]['up']"
        self.assertEqual((shapes["params" + up]["0"], shapes["state['nu']" + up]["0"]), ([[7, 64], [7, 32], 4], [[7, 64], [7, 16], 4]))
        self.assertIn([7, 32], made["backward.0"])
        self.assertIn("all-reduce", collectives["backward.0"])
        self.assertEqual(collectives["update.0.0"], ["all-gather"])

    def look(self, name, devices):
        flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
        result = subprocess.run([self.python, "-B", "-c", LOOK, str(SOURCE / "python"), str(self.folder / name)], capture_output=True,
                                text=True, env=environment(XLA_FLAGS=flags, JAX_PLATFORMS="cpu"), timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def trace_has_what_the_lists_have(self, trace, manifest):
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
        by_name = {}
        for group, order in enumerate(manifest.plan.order):
            ran = [event for event in events if event["pid"] == group + 1]
            programs = [(manifest.plan.program_of(item), item[2]) for item in order]
            expected = [f"{program.kind} {m + 1}, part {program.place + 1}" for program, m in programs if program]
            self.assertEqual([event["name"] for event in ran if event["cat"] != "update"], expected)
            self.assertTrue(any(event["cat"] == "update" for event in ran))
            for before, after in zip(ran, ran[1:]):
                self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 1e-3)
            by_name.update({event["name"]: event for event in ran})
        # The second part's forward waits for the first's, of every micro-batch.
        for m in range(1, manifest.micro_batches + 1):
            first, second = by_name[f"forward {m}, part 1"], by_name[f"forward {m}, part 2"]
            self.assertLessEqual(first["ts"] + first["dur"], second["ts"] + 1e-3)

    def test_random_plans(self):
        """Three here; scripts/check_random_plans.py runs forty of each small fixture."""
        result = subprocess.run([sys.executable, "-B", SOURCE / "scripts" / "check_random_plans.py", "--plans", "3", "--bin", BIN,
                                 FIXTURES / "tiny_mlp.hlo"], capture_output=True, text=True, env=environment(AUTOMAP_JAX_PYTHON=str(self.python)))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"^tiny_mlp.hlo +3 equal +0 failed")

    def test_programs_of_a_group_are_begun_one_after_the_other(self):
        """XLA may have as many threads as there are devices: two programs in flight on each of them came to no end after some steps."""
        folder = self.emit_layout("in_flight", FIXTURES / "tiny_mlp.hlo", "dp=4,pp=1,micro-batch-size=4,schedule=1f1b-overlap", samples=16, count=4)
        flags = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
        result = subprocess.run([self.python, "-B", "-c", IN_FLIGHT, str(SOURCE / "python"), str(folder)], capture_output=True, text=True,
                                env=environment(XLA_FLAGS=flags, JAX_PLATFORMS="cpu"), timeout=300)
        self.assertEqual((result.returncode, result.stdout), (0, "0 of 45\n"), result.stderr)

    def test_stablehlo(self):
        tiny, folder = FIXTURES / "tiny_mlp.hlo", self.folder / "stablehlo"
        plan = self.plan("stablehlo", tiny, "--stages", "2", samples=16, count=2)
        ask = ("automap-emit", plan, "--model", tiny, "--to", "stablehlo")
        for python in ("/bin/false", str(self.folder / "none")):
            result = run(*ask, "-o", folder, env=environment(AUTOMAP_JAX_PYTHON=python))
            self.assertNotEqual(result.returncode, 0)
            self.assertRegex(result.stderr, "--to stablehlo: [^\n]*\n  hint: .*AUTOMAP_JAX_PYTHON.*--to hlo")
            self.assertFalse(folder.exists())
        result = run(*ask, "-o", folder, env=environment(AUTOMAP_JAX_PYTHON=self.python))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual({path.suffix for path in folder.iterdir()}, {".mlir", ".json"})
        self.assertIn("stablehlo.dot", (folder / "forward.0.mlir").read_text())
        self.check(folder, "2 groups, 2 micro-batches")

    def test_two_layers_on_two_groups_and_what_differs_is_named(self):
        folder = self.emit("mlp", FIXTURES / "tiny_mlp.hlo", "--stages", "2", "--schedule", "zb-h1", samples=16, count=4)
        self.check(folder, "2 groups, 4 micro-batches, zb-h1")
        trace = self.folder / "ran.json"
        result = self.automap_run(self.python, folder, "--one-device", "--steps", "2", "--trace", trace)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"step 1: .* ms, loss [\d.]+\nstep 2: ")
        self.trace_has_what_the_lists_have(trace, Manifest(str(folder)))
        result = self.automap_run(self.python, folder, "--one-device", "--steps", "1", "--trace", self.folder / "none" / "ran.json")
        self.assertEqual(result.returncode, 3)
        self.assertRegex(result.stderr, "none/ran.json: No such file or directory; name a file in a folder that exists")
        self.assertEqual(self.automap_run(self.python, folder, "--check", "--trace", trace).returncode, 2)
        result = self.automap_run(self.python, folder, "--measure")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, "a micro-batch takes forward .* ms, backward .* ms, update .* ms on one device")
        result = run("automap-profile", FIXTURES / "tiny_mlp.hlo", "--measured", folder, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        measured = json.loads(result.stdout)["measured"]
        self.assertAlmostEqual(measured["attributed_ms"], measured["measured_ms"])
        self.assertEqual(measured["positions"], measured["measured_positions"])
        # Another rate in one group's update, and nothing else.
        path = folder / "update.1.0.hlo.txt"
        text = path.read_text()
        self.assertIn("constant(0.1)", text)
        path.write_text(text.replace("constant(0.1)", "constant(0.2)"))
        result = self.automap_run(self.python, folder, "--one-device", "--check")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, r"step 1: .*dense_2.* differs by [\d.e-]+ \(relative; at most 0.0001\) from the module's own step")
        path.write_text("HloModule nothing")
        result = self.automap_run(self.python, folder, "--one-device", "--check")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertRegex(result.stderr, r"update.1.0.hlo.txt: XLA does not take it")


class Several(Executed):
    """Processes on this machine, each with devices of its own."""

    def setUp(self):
        self.mlp = self.folder / "several"
        if not self.mlp.exists():
            self.emit("several", FIXTURES / "tiny_mlp.hlo", "--stages", "2", "--schedule", "1f1b", samples=16, count=4)

    def start(self, folder, *options, out=subprocess.PIPE, **variables):
        flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        return subprocess.Popen([self.python, "-B", str(BIN / "automap-run"), str(folder), *map(str, options)], stdout=out, stderr=subprocess.PIPE,
                                text=True, env=environment(XLA_FLAGS=flags, **variables))

    def ends(self, process, code):
        out, errors = process.communicate(timeout=300)
        self.assertEqual(process.returncode, code, errors)
        return out, errors

    def test_equal_numbers(self):
        """About eight seconds of the processor for each folder: two processes compile for their devices, and one the whole step."""
        tiny = FIXTURES / "tiny_mlp.hlo"
        module = self.export(self.python, "tied", TIED)
        tied = self.emit("tied", module, "--stages", "3", "--schedule", "1f1b", "--recompute", "none", samples=2, count=2)
        replicas = self.emit_layout("replicas", tiny, "dp=2,pp=1,zero=3,micro-batch-size=8", samples=16)
        # A group of 2 x 1 devices and one of 2 x 2: what goes between them is cut and joined.
        self.emit_layout("even", tiny, "dp=2,pp=2,micro-batch-size=8", samples=16)
        cut = json.loads((self.folder / "even.json").read_text())["parts"][0]["last_instruction"]
        given, plan, mixed = self.folder / "given.json", self.folder / "mixed.json", self.folder / "mixed"
        given.write_text(json.dumps({"cuts": [cut], "device_cuts": [2], "width": [1, 2], "zero": [0, 3], "micro_batch_samples": 16,
                                     "micro_batches": 2, "devices": 6, "schedule": "1f1b"}))
        for command in (("automap-infer", tiny, "--cluster", "h100-2x8", "--batch", "32", "--plan", given, "-o", plan),
                        ("automap-emit", plan, "--model", tiny, "--to", "hlo", "-o", mixed)):
            result = run(*command)
            self.assertEqual(result.returncode, 0, result.stderr)
        for folder, count, says in ((tied, 2, "3 groups, 2 micro-batches, 1f1b, on 5 devices"),
                                    (replicas, 2, "1 group, 2 micro-batches, adaptive, on 2 devices, groups of 2 x 1 with ZeRO 3"),
                                    (mixed, 2, "on 6 devices, groups of 2 x 1, 2 x 2 with ZeRO 3")):
            with self.subTest(folder.name):
                out, _ = self.ends(self.start(folder, "--check", "--processes", count), 0)
                self.assertIn(says, out)
                self.assertIn("in 2 processes: 3 steps equal the unsplit module's", out)

    def test_what_differs_is_named_once_and_hosts_by_ssh(self):
        folder = self.folder / "wrong"
        shutil.copytree(self.mlp, folder)
        path = folder / "update.1.0.hlo.txt"
        text = path.read_text()
        self.assertIn("constant(0.1)", text)
        path.write_text(text.replace("constant(0.1)", "constant(0.2)"))
        # An ssh that stays here: what it was given is what another machine would run.
        bin, hosts, asked = self.folder / "bin", self.folder / "hosts", self.folder / "asked"
        bin.mkdir()
        (bin / "ssh").write_text(f'#!/bin/sh\necho "$5" >> {asked}\nexec sh -c "$6"\n')
        (bin / "ssh").chmod(0o755)
        hosts.write_text("localhost\n127.0.0.2 # another\n")
        process = self.start(folder, "--check", "--hosts", hosts, PATH=f"{bin}:{os.environ['PATH']}")
        _, errors = self.ends(process, 1)
        self.assertRegex(errors, r"in 2 processes: step 1: .*dense_2.* differs by [\d.e-]+ \(relative; at most 0.0001\) from the module's own step")
        self.assertEqual(errors.count("differs by"), 1)
        self.assertEqual(asked.read_text(), "127.0.0.2\n")
        # A failure of one is the end of all, with its name.
        path.write_text("HloModule nothing")
        _, errors = self.ends(self.start(folder, "--processes", "2"), 3)
        self.assertRegex(errors, r"process 1 \(group 2, on .*\): update.1.0.hlo.txt: XLA does not take it")
        self.assertRegex(errors, r"process 1 \(group 2, on .*\) failed: update.1.0.hlo.txt: .*; process 0 \(group 1, on .*\) ends")
        _, errors = self.ends(self.start(self.mlp, "--processes", "3"), 3)
        self.assertRegex(errors, "3 processes for 2 groups with 2 devices together")

    def test_from_python(self):
        def start(*places, devices):
            flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
            return subprocess.Popen([self.python, "-B", "-c", API, str(SOURCE / "python"), str(FIXTURES / "tiny_mlp.hlo"), *places],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    env=environment(XLA_FLAGS=flags, JAX_PLATFORMS="cpu", PATH=f"{BIN}:{os.environ['PATH']}"))

        port = str(free_port())
        outputs = [self.ends(process, 0)[0] for process in [start(rank, port, devices=1) for rank in "01"] + [start(devices=2)]]
        self.assertRegex(outputs[0], r"^2 \d+ \d\.\d+ [0-9a-f]{64}\n$")
        self.assertEqual(outputs, outputs[:1] * 3)

    def place(self, rank, port):
        return {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

    def test_a_lost_process_ends_the_others(self):
        port = free_port()
        first, second = (self.start(self.mlp, "--steps", "1000000", **self.place(rank, port)) for rank in (0, 1))
        try:
            self.assertRegex(first.stdout.readline(), "^step 1: ")
            second.kill()
            _, errors = self.ends(first, 3)
            self.assertRegex(errors, r"process 1 \(group 2, on .*\) is lost: it has said nothing for \d+ s; process 0 \(group 1, on .*\) ends")
        finally:
            for process in (first, second):
                process.kill()
                process.communicate()

    def test_nobody_comes(self):
        for rank in (0, 1):
            _, errors = self.ends(self.start(self.mlp, "--wait", "2", **self.place(rank, free_port())), 3)
            self.assertRegex(errors, f"process {rank} of 2 waited 2 s at 127.0.0.1:.*, and not all came; is every process started")
            self.assertNotIn("Traceback", errors)
        _, errors = self.ends(self.start(self.mlp, "--trace", "x", **self.place(0, free_port())), 3)
        self.assertIn("--trace: not with several processes", errors)


del Emitted

if __name__ == "__main__":
    unittest.main()
