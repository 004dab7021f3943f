"""Models without HLO: a config.json, a name, a table; beside what JAX exports, and as XLA reads and runs it."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from programs import BIN, FIXTURES, NO_JAX, SOURCE, TIMEOUT_S, python_with_jax

TINY = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 24, "vocab_size": 16, "max_position_embeddings": 8}
EXPERTS = {"model_type": "deepseek_v3", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
           "intermediate_size": 24, "vocab_size": 16, "max_position_embeddings": 8, "n_routed_experts": 4,
           "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 8, "first_k_dense_replace": 1,
           "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 6}
IMAGES = {"schema": "automap.layers/1", "input": "images", "image": 9, "channels": 4, "classes": 8, "layers": [
    {"blocks": [{"block": "convolution", "channels": 4, "activation": "gelu"}]},
    {"blocks": [{"block": "convolution", "channels": 8, "stride": 2, "activation": "silu", "bias": True}]}]}

# The step's gradients (what SGD keeps of them at first) beside differences of its loss along a random direction.
CHECK = '''
import re, sys
import numpy as np
import jax
from jax._src import xla_bridge
from jax._src.lib import xla_client
from jaxlib import _hlo

for path in sys.argv[1:]:
    text = "HloModule step\\n" + open(path).read().split("\\n", 1)[1]
    entry = text[text.index("\\nENTRY"):]
    found = {}
    for kind, dims, number, name in re.findall(r'= (\\w+)\\[([\\d,]*)\\]\\S* parameter\\((\\d+)\\).*?op_name="([^"]*)"', entry):
        found[int(number)] = (name, kind, tuple(int(d) for d in dims.split(",") if d))
    module = _hlo.hlo_module_from_text(text)
    backend = xla_bridge.get_backend("cpu")
    mlir = xla_client._xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    step = backend.compile_and_load(mlir, xla_client.DeviceList(tuple(backend.local_devices()[:1])), xla_client.CompileOptions())
    random = np.random.default_rng(3)
    values, direction = [], []
    for number in range(len(found)):
        name, kind, dims = found[number]
        weight = name.startswith("params")
        value = random.integers(0, 8, dims) if kind in ("s32", "u32") else random.standard_normal(dims) * (0.3 if weight else 1) + ("scale" in name)
        if name.startswith("opt_state"):
            value = np.zeros(dims)
        values.append(np.asarray(value, {"s32": np.int32, "u32": np.uint32}.get(kind, np.float32)))
        direction.append(random.standard_normal(dims).astype(np.float32) if weight else np.zeros(dims, values[-1].dtype))

    def run(far):
        moved = [v + (far * d).astype(v.dtype) for v, d in zip(values, direction)]
        return [np.asarray(result) for result in step.execute([jax.numpy.array(v) for v in moved])]

    results = run(0)
    weights = [number for number in sorted(found) if found[number][0].startswith("params")]
    said = sum(float((direction[number] * results[2 * i]).sum()) for i, number in enumerate(weights))
    e = 5e-4
    seen = (8 * (float(run(e)[-1]) - float(run(-e)[-1])) - (float(run(2 * e)[-1]) - float(run(-2 * e)[-1]))) / (12 * e)
    if not (abs(said - seen) < 0.02 * abs(seen) + 0.02 and abs(seen) > 0.1):
        sys.exit(f"{path}: the gradients say {said}, the loss {seen}")
print("right")
'''

EXPORT_MIXTRAL = '''
import sys
sys.path.insert(0, sys.argv[1])
import jax
from export_models.mixture import mixtral
model = mixtral()
open(sys.argv[2], "w").write(jax.jit(model.function).lower(*model.arguments).as_text("hlo", debug_info=True))
'''


def profile(*words):
    done = subprocess.run([BIN / "automap-profile", *words, "--json"], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Descriptions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, document):
        path = self.folder / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    def run_program(self, program, *words):
        return subprocess.run([BIN / program, *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT_S,
                              cwd=self.folder)

    def near(self, ours, other, share):
        for keys in (("forward_flops",), ("total_flops",), ("totals", "w_bytes"), ("totals", "stash_bytes"),
                     ("totals", "c_ms"), ("memory_bytes", "slots"), ("times_ms", "optimizer")):
            a, b = ours, other
            for key in keys:
                a, b = a[key], b[key]
            self.assertLess(abs(a - b), share * b, keys)

    def test_gpt2_is_near_what_jax_exports(self):
        exported = profile(FIXTURES / "gpt2.hlo.gz", "--device", "h100")
        described = profile("gpt2", "--model-samples", "4", "--model-optimizer", "adam", "--device", "h100")
        self.near(described, exported, 0.02)
        self.assertEqual(described["totals"]["w_bytes"], exported["totals"]["w_bytes"])

    def test_experts_are_near_what_jax_exports(self):
        python = python_with_jax()
        if python is None:
            self.skipTest(NO_JAX)
        done = subprocess.run([python, "-B", "-c", EXPORT_MIXTRAL, SOURCE / "scripts", self.folder / "mixtral.hlo"], capture_output=True,
                              text=True, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        config = self.write("config.json", {
            "model_type": "mixtral", "hidden_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 4,
            "intermediate_size": 7168, "vocab_size": 4096, "max_position_embeddings": 1024, "num_local_experts": 8, "num_experts_per_tok": 2})
        exported = profile(self.folder / "mixtral.hlo", "--device", "h100")
        described = profile(config, "--model-samples", "4", "--model-optimizer", "adam", "--device", "h100")
        self.near(described, exported, 0.02)
        self.assertEqual(described["totals"]["w_bytes"], exported["totals"]["w_bytes"])

    def test_the_report_says_what_was_taken_first(self):
        path = self.write("config.json", TINY)
        done = self.run_program("automap-infer", path, "--cluster", "h100-1x8", "--effort", "quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        first = " ".join(" ".join(done.stdout.splitlines()[:2]).split())
        self.assertIn("Model llama of 2 layers", first)
        self.assertIn("sequence 8, f32, AdamW; assumed: a batch of 256 samples", first)
        self.assertNotIn("export it", done.stdout)

    def test_what_a_leaner_plan_costs_is_said_once(self):
        done = self.run_program("automap-infer", "llama3-8b", "--cluster", "h100-8x8", "--batch", "512", "--sequence", "8192", "--for",
                                "torchtitan", "--stages", "1", "--effort", "quick", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        self.assertEqual([w for w in plan["warnings"] if "short" in w], [w for w in plan["warnings"] if "shortest found" in w])
        self.assertEqual(len([w for w in plan["warnings"] if "shortest found" in w]), 1)
        shortest = min(plan["corners"], key=lambda corner: corner["simulated_step_ms"] if corner["fits"] else float("inf"))
        self.assertIn("the leaner of plans as long is taken", shortest["left_out"])

    def test_devices_of_a_replica_hold_parts_of_the_weights(self):
        """Not rows of what they multiply, which is what replicas are for: less to move here, but all weights everywhere."""
        path = self.write("gpt.args", "--num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 1024\n"
                                      "--max-position-embeddings 1024 --vocab-size 1024 --fp16\n")
        for options in ((), ("--attention", "as-written"), ("--attention", "as-written", "--sequence-parallel", "off")):
            weights = {}
            for width in (1, 8):
                done = self.run_program("automap-infer", path, "--cluster", "a100-1x8", "--batch", "128", "--json", *options,
                                        "--layout", f"dp={8 // width},tp={width},micro-batch-size={2 * width}")
                self.assertEqual(done.returncode, 0, done.stderr)
                weights[width] = json.loads(done.stdout)["groups"][0]["memory"]["weights"]
            # The tables of tokens and positions, which are whole, are a seventh of all.
            self.assertLess(weights[8], 0.3 * weights[1], options)
        # Queries, keys and values come out of one product, head by head: no device needs another's.
        plan = self.run_program("automap-search", "opp", path, "--cluster", "a100-1x8", "--shards", "8", "--attention",
                                "as-written", "--sequence-parallel", "off", "--json")
        self.assertEqual(plan.returncode, 0, plan.stderr)
        inputs = {one["name"]: one.get("dim") for one in json.loads(plan.stdout)["inputs"]}
        kernels = {name: dim for name, dim in inputs.items() if name.endswith("['qkv']['kernel']") and name.startswith("params")}
        self.assertEqual(list(kernels.values()), [1, 1], inputs)

    def test_dropout_takes_time_and_memory_and_hides_no_attention(self):
        sizes = "--num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --vocab-size 1024 --fp16\n"
        with_it = self.write("gpt.args", sizes)
        without = self.write("plain.args", sizes + "--attention-dropout 0 --hidden-dropout 0\n")
        for options in ((), ("--attention", "as-written")):
            dropped, plain = (profile(path, "--device", "a100-80gb", *options) for path in (with_it, without))
            self.assertGreater(dropped["totals"]["c_ms"], plain["totals"]["c_ms"], options)
            # Kept is a byte for every value: of the embeddings, of two blocks in both layers, and of scores that are written.
            masks = 5 * 16 * 1024 * 512 + (2 * 16 * 8 * 1024 * 1024 if options else 0)
            more = dropped["totals"]["stash_bytes"] - plain["totals"]["stash_bytes"]
            self.assertLess(abs(more - masks), 0.01 * masks, options)
        said = self.run_program("automap-profile", with_it, "--device", "a100-80gb").stdout
        self.assertIn("2 attentions (2 causal), 2 attention gradients", said)

    def test_every_command_takes_one(self):
        path = self.write("model.json", TINY)
        for words in (["automap-inspect", path], ["automap-profile", path],
                      ["automap-search", "opp", path, "--shards", "2"]):
            done = self.run_program(*words)
            self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")

    def test_a_profile_says_what_it_was_made_of(self):
        path = self.write("config.json", TINY)
        self.assertRegex(self.run_program("automap-profile", path).stdout, r"(?m)^model .*\(config\.json\)")
        self.assertEqual(json.loads(self.run_program("automap-profile", path, "--json").stdout)["form"], "config.json")
        plan = json.loads(self.run_program("automap-search", "opp", path, "--shards", "2", "--json").stdout)
        self.assertEqual(plan["provenance"]["model_form"], "config.json")

    def test_what_is_wrong_is_said(self):
        for words, says in ((["lama3-8b"], "llama3-8b"), ([FIXTURES / "tiny_mlp.hlo", "--sequence", "8"], "--sequence"),
                            ([self.write("bad.json", {"model_type": "rwkv"})], "'rwkv' is not known")):
            done = self.run_program("automap-profile", *words)
            self.assertIn(done.returncode, (2, 3))
            self.assertIn(says, done.stderr)
            self.assertNotIn("bug", done.stderr)

    def test_xla_reads_and_runs_the_step(self):
        python = python_with_jax()
        if python is None:
            self.skipTest(NO_JAX)
        files = []
        dropped = {**TINY, "dropout_rate": 0.3}
        for name, document, words in (("tiny", TINY, []), ("again", dropped, ["--remat", "layer"]), ("experts", EXPERTS, []),
                                      ("images", IMAGES, [])):
            files.append(self.folder / f"{name}.hlo")
            done = self.run_program("automap-profile", self.write(name + ".json", document), "--model-samples", "2",
                                    "--model-optimizer", "sgd", "--hlo", files[-1], *words)
            self.assertEqual(done.returncode, 0, done.stderr)
        done = subprocess.run([python, "-c", CHECK, *files], capture_output=True, text=True, timeout=TIMEOUT_S)
        self.assertEqual(done.stdout.strip(), "right", done.stderr)


if __name__ == "__main__":
    unittest.main()
