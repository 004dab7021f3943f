"""scripts/apply_plan.py, what --emit-jax writes and what --emit-hlo writes, with JAX on 8 host devices; skipped where
no Python has JAX."""

import importlib.util
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from programs import NO_JAX, python_with_jax

SOURCE = Path(__file__).resolve().parents[2]
BIN = os.environ.get("AUTOMAP_BIN")
SCRIPT = SOURCE / "scripts" / "apply_plan.py"

STEP = '''
import jax
import jax.numpy as jnp

def loss(params, batch):
    hidden = jax.nn.gelu(batch["x"] @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return jnp.mean((hidden @ params["output"]["kernel"] - batch["y"]) ** 2)

def train_step(params, opt_state, batch):
    value, gradients = jax.value_and_grad(loss)(params, batch)
    opt_state = jax.tree.map(lambda m, g: 0.9 * m + g, opt_state, gradients)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, opt_state), opt_state, value

def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)

def make_step():
    params = {"hidden": {"kernel": array(32, 64), "bias": array(64)}, "output": {"kernel": array(64, 8)}}
    return train_step, (params, params, {"x": array(16, 32), "y": array(16, 8)})

def make_rest():
    step, (params, state, batch) = make_step()
    def several(params, opt_state, *rest):
        return step(params, opt_state, {"x": rest[0], "y": rest[1]["y"]})
    return several, (params, state, batch["x"], {"y": batch["y"]})

def make_other_step():
    step, (params, _, batch) = make_step()
    params = {**params, "output": {"kernel": array(64, 16)}}
    return step, (params, params, {**batch, "y": array(16, 16)})
'''

# AdamW on an attention: the gradient of the keys' bias is zero but for rounding, and zero moments make it a full update.
ADAMW = '''
import jax
import jax.numpy as jnp
import numpy as np

def loss(params, batch):
    q, k, v = (batch["x"] @ params[n]["kernel"] + params[n]["bias"] for n in ("query", "key", "value"))
    weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k))
    return jnp.mean((jnp.einsum("bqk,bkd->bqd", weights, v) - batch["y"]) ** 2)

def train_step(params, opt_state, batch):
    value, gradients = jax.value_and_grad(loss)(params, batch)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, opt_state["mu"], gradients)
    nu = jax.tree.map(lambda m, g: 0.999 * m + 0.001 * g * g, opt_state["nu"], gradients)
    params = jax.tree.map(lambda p, m, v: p - 0.01 * (m / 0.1 / (jnp.sqrt(v / 0.001) + 1e-8) + 0.01 * p), params, mu, nu)
    return params, {"mu": mu, "nu": nu}, value

def make_step(filled=False):
    rng = np.random.default_rng(0)
    def array(*shape, zero=False):
        if filled:
            return jax.ShapeDtypeStruct(shape, jnp.float32)
        return np.zeros(shape, np.float32) if zero else rng.standard_normal(shape).astype(np.float32) * 0.3
    def params(zero=False):
        return {n: {"kernel": array(16, 64, zero=zero), "bias": array(64, zero=zero)} for n in ("query", "key", "value")}
    return train_step, (params(), {"mu": params(True), "nu": params(True)}, {"x": array(8, 24, 16), "y": array(8, 24, 64)})

def make_filled():
    return make_step(True)

calls = 0

def make_wrong():
    """The second run, which is the one on many devices, has one wrong number."""
    step, arguments = make_step()
    def error():
        global calls
        calls += 1
        return np.float32(0.01 if calls == 2 else 0)
    def wrong(params, opt_state, batch):
        params, opt_state, value = step(params, opt_state, batch)
        more = jax.pure_callback(error, jax.ShapeDtypeStruct((), jnp.float32))
        params["value"]["kernel"] = params["value"]["kernel"].at[3, 5].add(more)
        return params, opt_state, value
    return wrong, arguments

def make_nan():
    """NaN in two entries, wherever it runs."""
    step, arguments = make_step()
    def bad(params, opt_state, batch):
        params, opt_state, value = step(params, opt_state, batch)
        params["key"]["kernel"] = params["key"]["kernel"].at[0, :2].set(jnp.nan)
        return params, opt_state, value
    return bad, arguments

def make_root():
    """A loss that only numbers above zero have."""
    step, arguments = make_step(True)
    def root(params, opt_state, batch):
        params, opt_state, value = step(params, opt_state, batch)
        return params, opt_state, value + jnp.mean(jnp.sqrt(batch["x"]))
    return root, arguments

def make_random():
    """Never twice the same loss."""
    step, arguments = make_step()
    rng = np.random.default_rng()
    def random(params, opt_state, batch):
        params, opt_state, value = step(params, opt_state, batch)
        noise = jax.pure_callback(lambda: np.float32(rng.uniform()), jax.ShapeDtypeStruct((), jnp.float32))
        return params, opt_state, value + noise
    return random, arguments
'''

# A decoder of two layers, scanned and recomputed or written out, with Adam. The weights of queries, keys and values are
# stored apart, or as one that is taken apart, or put together before the product.
DECODER = '''
import jax
import jax.numpy as jnp

L, D, F, V, B, T, H = 2, 64, 256, 512, 16, 32, 4

def norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale

def layer(x, w):
    y = norm(x, w["n1"])
    if "qkv" in w:
        q, k, v = (y @ w["qkv"][:, :D], y @ w["qkv"][:, D:2 * D], y @ w["qkv"][:, 2 * D:])
    elif "joined" in w:
        q, k, v = jnp.split(y @ jnp.concatenate([w["q"], w["k"], w["v"]], 1) * w["joined"], 3, -1)
    else:
        q, k, v = (y @ w[n] for n in "qkv")
    q, k, v = (x.reshape(B, T, H, D // H) for x in (q, k, v))
    scores = jnp.where(jnp.tril(jnp.ones((T, T), bool)), jnp.einsum("bthd,bshd->bhts", q, k) / 4, -1e9)
    x = x + jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v).reshape(B, T, D) @ w["o"]
    return x + jax.nn.silu(norm(x, w["n2"]) @ w["up"]) @ w["down"]

def loss(params, tokens):
    x = params["embed"][tokens[:, :-1]]
    if "layers" in params:
        x, _ = jax.lax.scan(lambda x, w: (jax.checkpoint(layer)(x, w), None), x, params["layers"])
    else:
        for i in range(L):
            x = layer(x, params[f"layer{i}"])
    logits = jax.nn.log_softmax(norm(x, params["norm"]) @ params["head"])
    return -jnp.mean(jnp.take_along_axis(logits, tokens[:, 1:, None], -1))

def train_step(params, opt_state, tokens):
    value, gradients = jax.value_and_grad(loss)(params, tokens)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, opt_state["mu"], gradients)
    nu = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g * g, opt_state["nu"], gradients)
    return jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, mu, nu), {"mu": mu, "nu": nu}, value

def make(scanned, stored="apart"):
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    def weights(*lead):
        stacks = {"qkv": array(*lead, D, 3 * D)} if stored == "one" else {n: array(*lead, D, D) for n in "qkv"}
        stacks.update({"joined": array(*lead)} if stored == "joined" else {})
        return {**stacks, "o": array(*lead, D, D), "up": array(*lead, D, F), "down": array(*lead, F, D),
                "n1": array(*lead, D), "n2": array(*lead, D)}
    params = {"embed": array(V, D), "head": array(D, V), "norm": array(D)}
    params.update({"layers": weights(L)} if scanned else {f"layer{i}": weights() for i in range(L)})
    return train_step, (params, {"mu": params, "nu": params}, jax.ShapeDtypeStruct((B, T + 1), jnp.int32))

def make_scanned():
    return make(True)

def make_unrolled():
    return make(False)

def make_sliced():
    return make(True, "one")

def make_joined():
    return make(True, "joined")

def make_recurrent():
    """A scan over time; the weight does not change in it."""
    def loss(params, x):
        def cell(h, now):
            h = jnp.tanh(now + h @ params["w"])
            return h, h
        return (jax.lax.scan(cell, jnp.zeros((16, 64)), x)[1] ** 2).mean()
    def step(params, x):
        value, gradients = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value
    return step, ({"w": jax.ShapeDtypeStruct((64, 64), jnp.float32)}, jax.ShapeDtypeStruct((32, 16, 64), jnp.float32))
'''

# What XLA makes of a specs file, with what it says inside and without.
COMPILE_SPECS = '''
import importlib, json, sys
from pathlib import Path
import jax, decoder
sys.path.insert(0, sys.argv[1])
import apply_plan
told = {}
for name in sys.argv[2:]:
    specs = importlib.import_module(name)
    step, arguments = getattr(decoder, "make_" + name.split("_")[0])()
    mesh, how = specs.mesh(), {}
    how["in_shardings"] = specs.shardings(specs.argument_specs(*arguments), mesh)
    how["out_shardings"] = specs.shardings(specs.result_specs(jax.eval_shape(step, *arguments)), mesh)
    for kind, jitted in (("inside", specs.jit(step, *arguments)), ("outside", jax.jit(step, **how))):
        if kind == "outside" and name != sys.argv[-1]:
            continue
        compiled = jitted.lower(*arguments).compile(compiler_options={"xla_disable_hlo_passes": "cpu-all-reduce-combiner"})
        told[name + " " + kind] = {"found": apply_plan.collectives_of(compiled.as_text()),
                                   "temporary": compiled.memory_analysis().temp_size_in_bytes}
    told[name] = apply_plan.expected_of(apply_plan.read_plan(name + ".json"))
print(json.dumps(told))
'''

# What fixtures/hlo/tiny_mlp.hlo was exported from (scripts/export_models/small.py), but for the names of layers.
TINY = '''
import jax
import jax.numpy as jnp

def loss(params, batch):
    hidden = jnp.tanh(batch["x"] @ params["dense_1"]["kernel"] + params["dense_1"]["bias"])
    return jnp.mean((hidden @ params["dense_2"]["kernel"] + params["dense_2"]["bias"] - batch["y"]) ** 2)

def train_step(params, batch):
    value, gradients = jax.value_and_grad(loss)(params, batch)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)

def make_step():
    params = {"dense_1": {"kernel": array(32, 64), "bias": array(64)}, "dense_2": {"kernel": array(64, 10), "bias": array(10)}}
    return train_step, (params, {"x": array(16, 32), "y": array(16, 10)})
'''
ROWS = {"batch/x": 0, "batch/y": 0}

EXPORT = '''
import sys, jax, step
for name in ("step", "rest"):
    function, arguments = getattr(step, "make_" + name)()
    open(name + ".hlo", "w").write(jax.jit(function).lower(*arguments).as_text("hlo", debug_info=True))
'''

# The annotated module, as XLA's parser and partitioner see it: parameter and result shardings, and the collectives.
COMPILE = '''
import collections, json, re, sys
import jax, numpy as np
from jaxlib import _hlo, _jax
module = _hlo.hlo_module_from_text(open(sys.argv[1]).read())
options = _jax.CompileOptions()
options.num_replicas, options.num_partitions = 1, 8
options.device_assignment = _jax.DeviceAssignment.create(np.arange(8).reshape(1, 8))
options.executable_build_options.use_spmd_partitioning = True
mlir = _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
loaded = jax.devices()[0].client.compile_and_load(mlir, _jax.DeviceList(tuple(jax.devices()[:8])), options)
text = loaded.hlo_modules()[0].to_string()
print(json.dumps(collections.Counter(re.findall(r" (all-[a-z]+|collective-permute|reduce-scatter)(?:-start)?\\(", text))))
'''


JAX = python_with_jax()
NAMES = ["params['hidden']['bias']", "params['hidden']['kernel']", "params['output']['kernel']"]
COLUMNS_THEN_ROWS = {"params/hidden/kernel": 1, "params/hidden/bias": 0, "params/output/kernel": 0}


def mesh_text(**keys):
    return json.dumps({"schema": "automap.plan/1", "kind": "mesh", "mesh": {"data": 4, "model": 2},
                       "axes": {"data": {"partition": {}}, "model": {"partition": {}}}, **keys})


def load_script():
    spec = importlib.util.spec_from_file_location("apply_plan", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


class WithoutJax(unittest.TestCase):
    def test_help_says_what_it_wants_and_what_its_exit_codes_mean(self):
        done = subprocess.run(["python3", SCRIPT, "--help"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0)
        for word in ("make_step()", "Exit code 0", "--specs", "--strict"):
            self.assertIn(word, done.stdout)

    def test_a_plan_that_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plan.json"
            for text, word in (("{", "plan.json"), ("[]", "no plan"), ('{"schema": "automap.plan/2"}', "automap.plan/2"),
                               ('{"schema": "automap.plan/1", "kind": "pipeline"}', "pipeline"),
                               ('{"schema": "automap.plan/1", "kind": "data", "shards": 0, "partition": {}}', "shards"),
                               ('{"schema": "automap.plan/1", "kind": "data", "shards": 8, "partition": {"a": "b"}}',
                                "partition"),
                               (mesh_text(mesh=[4, 2]), "mesh: expected an object"),
                               (mesh_text(mesh={"data": 4}), "mesh: model: found None"),
                               (mesh_text(mesh={"data": 4, "model": 0}), "mesh: model: found 0"),
                               (mesh_text(mesh={"data": 4096, "model": 2}), "found 8192"),
                               (mesh_text(shards=4), "shards: found 4, but the mesh has 4 x 2 devices"),
                               (mesh_text(axes=None), "axes: expected an object"),
                               (mesh_text(axes={"data": []}), "axes: data: expected an object"),
                               (mesh_text(axes={"data": {"kind": "operator"}}), "axes: data: kind: found 'operator'"),
                               (mesh_text(axes={"model": {"shards": 4}}), "axes: model: shards: found 4"),
                               (mesh_text(axes={"model": {"partition": {"a": "b"}}}), "axes: model: partition")):
                path.write_text(text)
                done = subprocess.run(["python3", SCRIPT, "--plan", path, "--step", "x.py:y"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn(word, done.stderr)
                self.assertNotIn("Traceback", done.stderr)

    def test_what_is_expected_counts_as_xla_does(self):
        # Three partial sums that one all-reduce in a loop could add up: XLA reduces each, in every turn.
        sums = [{"instruction": f"dot.{k}", "bytes": 128, "node": k} for k in range(3)]
        plan = {"partial_sums": 3, "all_reduces": 1, "all_reduce_bytes": 512, "all_gathers": 1, "all_gather_bytes": 256,
                "collectives": [{"kind": "all-reduce", "bytes": 128, "times": 4, "sources": sums},
                                {"kind": "all-gather", "bytes": 64, "times": 4, "sources": []}]}
        script = load_script()
        self.assertEqual(script.expected_of(plan), {"all-reduce": (3, 4 * 384), "all-gather": (1, 256)})
        del plan["collectives"]
        self.assertEqual(script.expected_of(plan), {"all-reduce": (3, None), "all-gather": (1, 256)})

    def test_what_is_compiled_counts_by_turns(self):
        text = """HloModule jit_step
%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}
%inner (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %got = f32[8]{0} all-gather(%part), dimensions={0}
}
%body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %sums = (f32[4]{0}, bf16[2]{0}) all-reduce(%x, %y), to_apply=%add
  %again = (s32[], f32[8]) while(%s), condition=%less, body=%inner, backend_config={"known_trip_count":{"n":"5"}}
}
ENTRY %main (p: f32[8]) -> f32[8] {
  %turns = (s32[], f32[8]) while(%s), condition=%less, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %until = (s32[], f32[8]) while(%s), condition=%less, body=%inner
  ROOT %all = f32[8]{0} all-reduce-start(%p), to_apply=%add
}
"""
        self.assertEqual(load_script().collectives_of(text), {"all-reduce": (2, 3 * 20 + 32), "all-gather": (2, 15 * 32 + 32)})

    def test_what_is_expected_of_a_mesh(self):
        def axis(*nodes):
            return {"collectives": [{"kind": "all-reduce", "bytes": 64 * node, "sources": [{"bytes": 64 * node, "node": node}]}
                                    for node in nodes]}
        plan = {"kind": "mesh", "axes": {"data": axis(1, 2, 3), "model": axis(3, 4)}}
        script = load_script()
        self.assertEqual(script.expected_of(plan), {"all-reduce": (5, 64 * 13)})
        # What both axes sum is one all-reduce, or two.
        self.assertEqual(script.expected_of(plan, {"all-reduce": (5, 0)}), {"all-reduce": (5, 64 * 13)})
        self.assertEqual(script.expected_of(plan, {"all-reduce": (4, 0)}), {"all-reduce": (4, 64 * 10)})
        self.assertEqual(script.expected_of(plan, {"all-reduce": (2, 0)}), {"all-reduce": (4, 64 * 10)})


    def test_what_is_missing(self):
        script = load_script()

        def judged(found, expected):
            missing = script.missing_of(found, expected)
            return missing, script.not_applied(missing, found, expected)
        sums, gathers, scatters = {"all-reduce": (13, 8)}, {"all-gather": (2, 8)}, {"reduce-scatter": (2, 8)}
        for found, expected, missing, wrong in (({}, {}, [], False), (sums, sums, [], False), ({}, sums, ["all-reduce"], True),
                                                (gathers, {**sums, **gathers}, ["all-reduce"], True),
                                                (sums, {**sums, **gathers}, ["all-gather"], False),
                                                (scatters, sums, [], False), (sums, gathers, ["all-gather"], True)):
            self.assertEqual(judged(found, expected), (missing, wrong), (found, expected))


class Comparison(unittest.TestCase):
    """What needs no JAX: which entries of two results differ."""

    def compared(self, alone, sharded, rtol=1e-4, atol=1e-6):
        import numpy as np

        return load_script().Comparison(np, "w", np.array(alone, np.float32), np.array(sharded, np.float32), rtol, atol)

    def test_relative_to_the_largest_entry(self):
        self.assertFalse(self.compared([1, 1000], [1.05, 1000]).open().any())
        self.assertEqual(self.compared([1, 1000], [1.2, 1000]).open().tolist(), [True, False])
        self.assertEqual(self.compared([1e-7, 0], [3e-7, 0]).worst(), 0)  # below --atol

    def test_nan_and_infinity(self):
        nan, inf = float("nan"), float("inf")
        self.assertFalse(self.compared([inf, -inf, 1], [inf, -inf, 1]).open().any())
        for alone, sharded in ((nan, nan), (nan, 1), (1, nan), (inf, -inf), (inf, 1), (1, inf)):
            both = self.compared([2, alone], [2, sharded])
            self.assertEqual(both.open().tolist(), [False, True], (alone, sharded))
            self.assertIsNone(both.worst())
            # And no rerun changes that.
            both.rerun([2, 1], kicked=False)
            both.rerun([3, inf], kicked=True)
            self.assertEqual(both.open().tolist(), [False, True])

    def test_only_what_other_roundings_move_is_excused(self):
        both = self.compared([1, 1, 1, 1], [2, 2, 2, 1])
        both.rerun([1, 1, 5, 1], kicked=False)      # the third is random by itself
        both.rerun([1.6, 1.01, 5, 1], kicked=True)  # the first is decided by rounding, the second moves by too little
        self.assertEqual(both.open().tolist(), [False, True, True, False])
        self.assertEqual(both.worst(), 1)

    def test_an_update_may_differ_by_what_its_moments_explain(self):
        import numpy as np

        # Adam's first step: the update is the sign of the gradient. Both moments of the first two entries are equal within
        # what is allowed, but of the first the sign is not; the second, and a third whose moments are the same, may not move.
        slots = [self.compared([1e-9, 0.5, 0.5, 1], [-1e-9, 0.50001, 0.5, 1])]
        both = self.compared([0.9, 0.9, 0.9, 0.9], [1.1, 1.0, 1.0, 0.9])
        both.excuse_update(np.ones(4), slots)
        self.assertEqual(both.open().tolist(), [False, True, True, False])
        # Nor may anything where a moment differs.
        both = self.compared([0.9, 0.9], [1.1, 0.9])
        both.excuse_update(np.ones(2), [self.compared([1e-9, 1], [0.1, 1])])
        self.assertEqual(both.open().tolist(), [True, False])

    def test_results_in_few_digits_may_differ_by_the_last_one(self):
        import numpy as np

        def half(alone, sharded, rtol=1e-4):
            return load_script().Comparison(np, "mu", np.array(alone, np.float16), np.array(sharded, np.float16), rtol, 1e-6)

        both = half([1, 1, 0.5], [1 + 2.0**-10, 1 - 2.0**-11, 0.5])
        self.assertFalse(both.open().any())
        self.assertEqual(half([1, 1], [1 + 3 * 2.0**-10, 1]).open().tolist(), [True, False])
        self.assertEqual(half([1, 1], [1.02, 1], rtol=0.03).rtol, 0.03)  # what is asked for may be more
        # An update by moments that are stored so, and were not the same before; one of wider moments may not differ.
        for slots, differ in (([half([1, 1], [1, 1])], [False, True]), ([self.compared([1, 1], [1, 1])], [True, True])):
            both = self.compared([0.9, 0.9], [0.9001, 0.95])
            both.excuse_update(np.ones(2), slots)
            self.assertEqual(both.open().tolist(), differ)

    def test_slots_go_with_the_variable_of_the_longest_path(self):
        import types

        script = load_script()
        names = ["params['w']", "params['a']['w']", "opt_state['mu']['w']", "opt_state['mu']['a']['w']"]
        leaves = types.SimpleNamespace(names=[(name,) for name in names], find=names.index)
        asked = []

        class Result:
            name, alone = "", types.SimpleNamespace(shape=(2,), dtype=float)
            np = types.SimpleNamespace(asarray=lambda value: types.SimpleNamespace(astype=lambda kind: value))
            open = staticmethod(lambda: types.SimpleNamespace(any=lambda: True))

            def excuse_update(self, before, slots):
                asked.append((results.index(self), before, [results.index(slot) for slot in slots]))

        results = [Result() for _ in names]
        script.judge_updates(results, names, leaves, ["variable", "variable", "slot", None], list(range(4)))
        self.assertEqual(asked, [(0, 0, [2]), (1, 1, [3])])

    def test_reruns_end(self):
        import numpy as np

        script, calls = load_script(), []
        wrong, right = self.compared([1.0], [2.0]), self.compared([1.0], [1.0])
        script.find_rounding([right], lambda kick: self.fail("nothing to find out"))
        script.find_rounding([wrong, right], lambda kick: calls.append(kick) or [np.ones(1), np.ones(1)])
        self.assertEqual(calls, [False] + [True] * script.RERUNS_WITHOUT_PROGRESS)


@unittest.skipUnless(JAX, NO_JAX)
class ApplyPlan(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        (cls.folder / "step.py").write_text(STEP)
        (cls.folder / "adamw.py").write_text(ADAMW)
        cls.environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([JAX, "-c", EXPORT], cwd=cls.folder, check=True, env=cls.environment)

    def plan(self, partition, **more):
        path = self.folder / "plan.json"
        path.write_text(json.dumps({"schema": "automap.plan/1", "kind": "operator", "shards": 8, "partition": partition,
                                    **more}))
        return path

    def apply(self, plan, *arguments, step="step.py:make_step", code=0):
        done = subprocess.run([JAX, SCRIPT, "--plan", plan, "--step", step, *arguments], cwd=self.folder,
                              capture_output=True, text=True, env=self.environment)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done.stdout if code in (0, 1) else done.stderr

    def search(self, *arguments):
        program = Path(BIN or "") / "automap-search"
        if not BIN or not program.exists():
            self.skipTest(f"automap-search is not built (AUTOMAP_BIN={BIN})")
        done = subprocess.run([program, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_minimal_plan_needs_one_all_reduce(self):
        report = json.loads(self.apply(self.plan(COLUMNS_THEN_ROWS), "--json"))
        self.assertTrue(report["equal"])
        # The second layer's output, 16 x 8 floats.
        self.assertEqual(report["collectives"], {"all-reduce": {"count": 1, "bytes": 512}})
        self.assertEqual((report["partitioned"], report["results"]), (3, 7))

    def test_what_is_printed_for_people(self):
        out = self.apply(self.plan(COLUMNS_THEN_ROWS))
        for word in ("on 8 cpu devices: 3 of the step's arrays are split", "all-reduce", "512", "equal: 7 results"):
            self.assertIn(word, out)

    def test_adamw_with_a_gradient_that_is_zero_but_for_rounding(self):
        plan = self.plan(ROWS)
        report = json.loads(self.apply(plan, "--json", step="adamw.py:make_step"))
        self.assertTrue(report["equal"])
        self.assertEqual([r["result"] for r in report["decided_by_rounding"]], ["result[0]['key']['bias']"])
        # Filled moments are above zero, so that nothing is decided by rounding in the first place.
        report = json.loads(self.apply(plan, "--json", step="adamw.py:make_filled"))
        self.assertTrue(report["equal"])
        self.assertEqual(report["decided_by_rounding"], [])

    def test_results_that_differ_are_named(self):
        out = self.apply(self.plan(ROWS), step="adamw.py:make_wrong", code=1)
        self.assertIn("DIFFERENT: 19 results", out)
        self.assertIn("result[0]['value']['kernel']: 1 of 1,024 entries, by up to", out)
        # What rounding decides is told beside it, and is not among what differs.
        self.assertRegex(out, r"(?s)nothing but rounding.*\n  result\[0\]\['key'\]\['bias'\]: \d+ of 64 entries\n$")

    def test_nan_equals_nothing(self):
        report = json.loads(self.apply(self.plan(ROWS), "--json", step="adamw.py:make_nan", code=1))
        self.assertEqual([(r["result"], r["entries"]) for r in report["differing_results"]], [("result[0]['key']['kernel']", 2)])
        self.assertIn("on one device already", report["differing_results"][0]["why"])
        self.assertIsNone(report["worst_relative_difference"])

    def test_numbers_are_made_up_that_the_step_can_compute_with(self):
        report = json.loads(self.apply(self.plan(ROWS), "--json", step="adamw.py:make_root"))
        self.assertTrue(report["equal"])
        self.assertIsNotNone(report["worst_relative_difference"])

    def test_what_is_random_by_itself_is_not_excused(self):
        report = json.loads(self.apply(self.plan(ROWS), "--json", step="adamw.py:make_random", code=1))
        self.assertEqual([r["result"] for r in report["differing_results"]], ["result[2]"])
        self.assertIn("two runs on one device", report["differing_results"][0]["why"])

    def test_rounding_is_not_allowed_for_where_it_is_asked_about(self):
        # Partial sums are added in another order: not equal to the last bit.
        report = json.loads(self.apply(self.plan(COLUMNS_THEN_ROWS), "--json", "--rtol=1e-12", "--atol=0", code=1))
        self.assertGreater(len(report["differing_results"]), 1)

    def test_plans_that_do_not_fit(self):
        for partition, word in (({"params/hidden/kernle": 1}, "did you mean params['hidden']['kernel']"),
                                ({"params/hidden/kernel": 2}, "no dimension 2"),
                                ({"params/hidden/kernel": 1, "params['hidden']['kernel']": 0}, "twice")):
            self.assertIn(word, self.apply(self.plan(partition), code=3))
        self.assertIn("3 shards do not divide", self.apply(self.plan(COLUMNS_THEN_ROWS, shards=3), code=3))
        self.assertIn("no make_nothing", self.apply(self.plan({}), step="step.py:make_nothing", code=2))
        self.assertIn("no such", self.apply(self.plan({}), step="nothing.py:make_step", code=2))

    def test_plan_of_the_search_by_plan_and_by_specs(self):
        self.search("opp", "step.hlo", "--shards", 8, "--objective", "count", "-o", "found.json", "--emit-jax", "specs.py")
        found = json.loads((self.folder / "found.json").read_text())
        self.assertEqual(list(found["partition"]), NAMES)
        by_plan = json.loads(self.apply("found.json", "--json", "--strict"))
        by_specs = json.loads(self.apply("found.json", "--json", "--strict", "--specs", "specs.py"))
        for report in (by_plan, by_specs):
            self.assertTrue(report["equal"])
            self.assertEqual(report["not_in_plan"], [])
            self.assertEqual(report["collectives"], by_plan["collectives"])
            self.assertEqual(report["collectives"], report["expected"])
        # Of another model: names agree, shapes do not.
        self.assertIn("has shape", self.apply("found.json", step="step.py:make_other_step", code=3))
        self.assertIn("has shape", self.apply(self.plan({}), "--specs", "specs.py", step="step.py:make_other_step", code=3))

    def test_steps_that_take_any_number_of_arguments(self):
        self.search("adp", "rest.hlo", "--shards", 8, "--objective", "count", "-o", "rest.json", "--emit-jax", "rest_specs.py")
        report = json.loads(self.apply("rest.json", "--json", "--specs", "rest_specs.py", "--strict", step="step.py:make_rest"))
        self.assertTrue(report["equal"] and report["applied"])
        self.assertEqual((report["partitioned"], report["not_in_plan"], report["missing"]), (2, [], []))
        self.assertEqual(report["collectives"], report["expected"])
        code = '''
import rest_specs, step
_, arguments = step.make_rest()
assert rest_specs.argument_specs(*arguments)[2:] == (rest_specs.P("devices"), {"y": rest_specs.P("devices")})
'''
        done = subprocess.run([JAX, "-c", code], cwd=self.folder, capture_output=True, text=True, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        # A file that leaves out what the plan splits is no file of the plan.
        text = (self.folder / "rest_specs.py").read_text()
        (self.folder / "less_specs.py").write_text(text.replace('"rest/0": P("devices")', '"rest/0": P()'))
        self.assertIn("less_specs.py: rest[0]: the file says P",
                      self.apply("rest.json", "--specs", "less_specs.py", step="step.py:make_rest", code=3))

    def test_a_step_without_the_collectives_of_the_plan_fails(self):
        out = self.apply(self.plan({"params/hidden/bias": -1}, partial_sums=3), code=1)
        self.assertIn("NOT APPLIED: the plan expects 3 x all-reduce, XLA compiled none", out)

    def test_a_minimal_mesh_plan(self):
        path = self.folder / "mesh.json"
        axes = {"data": {"partition": ROWS}, "model": {"partition": COLUMNS_THEN_ROWS}}
        path.write_text(mesh_text(axes=axes))
        report = json.loads(self.apply(path, "--json"))
        self.assertTrue(report["equal"])
        self.assertEqual((report["devices"], report["mesh"], report["partitioned"]), (8, {"data": 4, "model": 2}, 5))
        # The second layer's output over the model axis, 4 x 8 floats of a replica; over the data axis the loss and every
        # gradient, half of it on each device.
        self.assertEqual(report["collectives"],
                         {"all-reduce": {"count": 5, "bytes": 4 * (4 * 8 + (32 * 64 + 64 + 64 * 8) // 2 + 1)}})
        self.assertIn("on 8 cpu devices (data 4, model 2): 5 of", self.apply(path))
        # Both axes may split one dimension: columns of the kernel over all 8 devices.
        axes["data"]["partition"] = {**ROWS, "params/hidden/kernel": 1}
        path.write_text(mesh_text(axes=axes))
        self.assertTrue(json.loads(self.apply(path, "--json"))["equal"])
        for axis, partition, word in (("data", {"params/output/kernel": 1, "batch/w": 0}, "batch/w"),
                                      ("data", {"params/output/kernel": 2}, "no dimension 2")):
            path.write_text(mesh_text(axes={**axes, axis: {"partition": partition}}))
            self.assertIn(word, self.apply(path, code=3))
        # 8 columns divide by each axis, but not by both.
        path.write_text(mesh_text(mesh={"data": 4, "model": 4}, axes={a: {"partition": {"params/output/kernel": 1}} for a in axes}))
        self.assertIn("is split by both axes, into 4 x 4 parts, which do not divide 8", self.apply(path, code=3))

    def test_mesh_plan_of_the_search_by_plan_and_by_specs(self):
        for zero in (0, 2, 3):
            self.search("opp", "step.hlo", "--mesh", "data=4,model=2", "--zero", zero, "-o", "mesh.json", "--emit-jax", "specs.py")
            by_plan = json.loads(self.apply("mesh.json", "--json"))
            by_specs = json.loads(self.apply("mesh.json", "--json", "--specs", "specs.py"))
            for report in (by_plan, by_specs):
                self.assertTrue(report["equal"])
                self.assertEqual(report["not_in_plan"], [])
                if zero < 3 or report is by_specs:
                    self.assertEqual(report["collectives"], report["expected"])
                else:
                    # Without the file nothing says where a stored variable is gathered: XLA may do it for the gradient again.
                    self.assertEqual(report["collectives"]["all-reduce"], report["expected"]["all-reduce"])
                    self.assertEqual(report["unexpected"], [])
        self.search("opp", "step.hlo", "--mesh", "data=2,model=4", "-o", "other.json")
        self.assertIn("is for the mesh", self.apply("other.json", "--specs", "specs.py", code=3))

    def test_mesh_plan_of_a_fixture(self):
        self.search("opp", SOURCE / "fixtures" / "hlo" / "tiny_mlp.hlo", "--mesh", "data=4,model=2", "-o", "tiny.json")
        (self.folder / "tiny.py").write_text(TINY)
        report = json.loads(self.apply("tiny.json", "--json", "--strict", step="tiny.py:make_step"))
        self.assertTrue(report["equal"])
        self.assertEqual(report["not_in_plan"], [])
        self.assertEqual(report["collectives"], report["expected"])

    def test_fsdp_of_a_decoder_runs_as_planned(self):
        (self.folder / "decoder.py").write_text(DECODER)
        export = EXPORT.replace('("step", "rest")', '("scanned", "unrolled", "sliced", "joined", "recurrent")').replace("step.make", "decoder.make")
        export = export.replace("getattr(step,", "getattr(decoder,").replace(", step\n", ", decoder\n")
        subprocess.run([JAX, "-c", export], cwd=self.folder, check=True, env=self.environment)
        names = []
        for model, data, width in (("scanned", 8, 1), ("unrolled", 8, 1), ("sliced", 8, 1), ("sliced", 2, 4), ("joined", 8, 1),
                                   ("recurrent", 8, 1), ("scanned", 2, 4)):
            names.append(f"{model}_{data}x{width}")
            self.search("opp", model + ".hlo", "--mesh", f"data={data},model={width}", "--zero", 3, "-o", names[-1] + ".json",
                        "--emit-jax", names[-1] + ".py")
        done = subprocess.run([JAX, "-c", COMPILE_SPECS, SCRIPT.parent, *names], cwd=self.folder, capture_output=True, text=True,
                              env={**self.environment, "XLA_FLAGS": "--xla_force_host_platform_device_count=8 "
                                                                    "--xla_backend_optimization_level=0"})
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        for name in names[:-1]:  # one by one, and byte by byte, every turn of a loop
            self.assertEqual(told[name + " inside"]["found"], told[name], name)
        # The weight is gathered once, in front of both loops; the batch is where no time runs.
        self.assertEqual(told[names[-2]]["all-gather"], [1, 64 * 64 * 4])
        warnings = json.loads((self.folder / (names[-2] + ".json")).read_text())["warnings"]
        self.assertTrue(any("the batch is taken to be x dimension 1 (16), not dimension 0 of x" in w for w in warnings), warnings)
        # On two axes XLA takes less than the whole of one gather, and permutes two vectors of bytes.
        found, expected = told[names[-1] + " inside"]["found"], told[names[-1]]
        self.assertEqual(found["all-reduce"], expected["all-reduce"])
        self.assertEqual(found["all-gather"][0], expected["all-gather"][0])
        self.assertLess(abs(found["all-gather"][1] / expected["all-gather"][1] - 1), 0.01)
        self.assertLess(found.get("collective-permute", (0, 0))[1], 1000)
        self.assertNotIn("all-to-all", found)
        # Specs of arguments and results alone leave the batch whole inside.
        self.assertIn("all-to-all", told[names[-1] + " outside"]["found"])
        self.assertLess(told[names[-1] + " inside"]["temporary"], 0.6 * told[names[-1] + " outside"]["temporary"])

    def test_inside_of_another_step(self):
        # Of alike equations the plan says one thing, or as many as there are; else they are left to XLA, aloud.
        self.plan(COLUMNS_THEN_ROWS)
        self.search("apply", "step.hlo", "--plan", "plan.json", "--emit-jax", "inner.py")
        code = '''
import warnings
import inner, jax, step
function, arguments = step.make_step()
mesh = inner.mesh(jax.devices())
text = str(jax.make_jaxpr(inner.constrained(jax.jit(function), mesh))(*arguments))
assert text.count("sharding_constraint") > 3, text
inner.INSIDE["dot_general (16, 32) (32, 64) -> (16, 64)"] *= 2
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    less = str(jax.make_jaxpr(inner.constrained(function, mesh))(*arguments))
assert less.count("sharding_constraint") == text.count("sharding_constraint") - 3, less
print(said[0].message)
'''
        done = subprocess.run([JAX, "-c", code], cwd=self.folder, capture_output=True, text=True,
                              env={**self.environment, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("left to XLA at: dot_general (16, 32) (32, 64) -> (16, 64)", done.stdout)

    def test_data_parallel_plan(self):
        self.search("adp", "step.hlo", "--shards", 8, "--objective", "count", "-o", "data.json")
        report = json.loads(self.apply("data.json", "--json", "--strict"))
        self.assertTrue(report["equal"])
        # Every gradient and the loss.
        self.assertEqual(report["collectives"]["all-reduce"], {"count": 4, "bytes": 4 * (32 * 64 + 64 + 64 * 8 + 1)})
        self.assertEqual(report["collectives"], report["expected"])

    def test_emitted_hlo_is_partitioned_as_planned(self):
        self.plan(COLUMNS_THEN_ROWS)
        self.search("apply", "step.hlo", "--plan", "plan.json", "--emit-hlo", "sharded.hlo", "--emit-jax", "applied.py")
        text = (self.folder / "sharded.hlo").read_text()
        self.assertIn("num_partitions=8", text)
        done = subprocess.run([JAX, "-c", COMPILE, "sharded.hlo"], cwd=self.folder, capture_output=True, text=True,
                              env={**self.environment, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"})
        if "ImportError" in done.stderr or "AttributeError" in done.stderr:
            self.skipTest("this jaxlib compiles no HLO text: " + done.stderr.strip().splitlines()[-1])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), {"all-reduce": 1})

    def test_specs_complain(self):
        self.plan(COLUMNS_THEN_ROWS)
        self.search("apply", "step.hlo", "--plan", "plan.json", "--emit-jax", "applied.py")
        code = '''
import applied, step
_, (params, opt_state, batch) = step.make_step()
specs = applied.specs_for(params, "params")
assert specs["hidden"]["kernel"] == applied.P(None, "devices") and specs["output"]["kernel"] == applied.P("devices")
assert applied.argument_specs(params, opt_state, batch)[1]["hidden"]["bias"] == applied.P("devices")
for tree, more in ((({"hidden": params["hidden"]}), {}), ({**params, "new": batch["x"]}, {}),
                   ({**params, "output": {"kernel": batch["x"]}}, {"unknown": "replicate"})):
    try:
        applied.specs_for(tree, "params", **more)
    except ValueError as error:
        print(error)
assert applied.specs_for({**params, "new": batch["x"]}, "params", unknown="replicate")["new"] == applied.P()
try:
    applied.argument_specs(params)
except ValueError as error:
    print(error)
try:
    applied.mesh([])
except ValueError as error:
    print(error)
'''
        done = subprocess.run([JAX, "-c", code], cwd=self.folder, capture_output=True, text=True, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        for line, word in zip(lines, ("missing: params/output/kernel", "not in the plan: params/new",
                                      "params/output/kernel has shape (16, 32), the plan's has (64, 8)",
                                      "1 arguments, but the plan knows 3: params, opt_state, batch",
                                      "this plan is for 8 devices, and there are 0"), ):
            self.assertIn(word, line)
        self.assertEqual(len(lines), 5)


if __name__ == "__main__":
    unittest.main()
