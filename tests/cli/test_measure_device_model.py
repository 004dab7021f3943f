"""scripts/measure_device_model.py: what it reads of the measured tables; and, with AUTOMAP_CORPUS and JAX, the accuracy of
the device model that docs/device-model.md states."""

import functools
import os
import statistics
import subprocess
import sys
import unittest
from pathlib import Path

from programs import BIN, NO_JAX, SOURCE, ProgramTest, environment, python_with_jax

sys.path.insert(0, str(SOURCE / "scripts"))

import measure_device_model  # noqa: E402
from device_model import aceso, comparisons  # noqa: E402

SCRIPT = SOURCE / "scripts/measure_device_model.py"
BENCH = BIN / "bench/bench-module_times"
NO_BENCH = "the benchmarks are not built (AUTOMAP_BUILD_BENCH)"
CORPUS = os.environ.get("AUTOMAP_CORPUS")
HEADER = "op_name,forward-compute,backward-compute,input_size,output_size,weights,activations,fwd_reserved,bwd_reserved"
# One layer and a head of 64 features in 4 heads, 256 in the MLP, 1 000 words: activations in MiB of f16.
OPERATORS = {
    "encoder-embedding": 0.375, "enc-1st-layernorm": 0.25, "enc-attention-qkv": 0.75, "enc-attention-score": 32,
    "enc-attention-softmax": 32, "enc-attention-dropout": 48, "enc-attention-context": 0.25, "enc-attention-dense": 0.25,
    "enc-MLP-GEMM-1": 1, "enc-MLP-gelu": 1, "enc-MLP-GEMM-2": 0.25, "gpt-post-process": 7.8125,
}


class Tables(ProgramTest):
    def write(self, name, scale=1.0):
        rows = [f"{operator},{100 * scale},{200 * scale},0,0,{1000 * 64 * 2 / 2**20 if 'post' in operator else 0},{mib},0,0"
                for operator, mib in OPERATORS.items()]
        (self.folder / name).write_text("\n".join([HEADER, *rows]) + "\n")

    def test_extents_are_read_off_the_sizes(self):
        self.write("gpt_350M_mbs1_tp1_algo0.csv")
        self.write("gpt_350M_mbs2_tp2_algo1.csv", scale=20)
        (self.folder / "prim_gpt_350M_all_reduce_2gpus.csv").write_text("data_size(MB),time(ms)\n1,0.4\n0.25,0.1\n0,9\n")
        rows = {(row.width, row.operator): row for row in aceso.read(self.folder)}
        score = rows[1, "enc-attention-score"]
        self.assertEqual(score.spec, aceso.spec("score", b=1, heads=4, queries=2048, keys=2048, per_head=16))
        self.assertEqual(rows[2, "enc-attention-score"].spec.name, "score-b2-heads2-queries2048-keys2048-per_head16")
        # Inputs split: k halves, and the whole result is reduced inside the forward; 1.5 MiB lie beyond the table.
        qkv = rows[2, "enc-attention-qkv"]
        self.assertEqual(qkv.spec, aceso.spec("linear_bias", b=2, length=2048, inputs=32, outputs=192))
        self.assertAlmostEqual(qkv.forward_reduced_us, 600)
        self.assertAlmostEqual(qkv.forward_us, 2000 - 600)
        self.assertEqual(qkv.backward_us, 4000)
        # Half a MiB: a third of the way from 0.25 to 1.
        self.assertAlmostEqual(rows[2, "enc-MLP-GEMM-1"].backward_reduced_us, 200)
        self.assertNotEqual(score.fitted, rows[2, "enc-attention-score"].fitted)

    def test_layers_and_operators_add_up(self):
        self.write("gpt_350M_mbs1_tp1_algo0.csv")
        self.write("gpt_350M_mbs1_tp1_algo1.csv")
        rows = aceso.read(self.folder)
        predicted = {row.spec: (110.0, 150.0) for row in rows}
        kinds = comparisons.operator_ratios(rows, predicted)
        self.assertEqual(kinds["score forward"], [1.1])  # measured once, in two files
        for ratios in comparisons.layer_ratios(rows, predicted).values():
            for ratio, wanted in zip(ratios, (1.1, 0.75, 260 / 300)):
                self.assertAlmostEqual(ratio, wanted)

    def test_summary_and_ranks(self):
        self.assertEqual(comparisons.summary([0.5, 1.0, 1.2, 1.0, 1.1])[:2], (5, 1.0))
        self.assertEqual(comparisons.summary([0.4, 1.0, 1.2])[4], 0.4)
        self.assertAlmostEqual(comparisons.rank_correlation([1, 2, 3, 4], [10, 20, 30, 400]), 1)
        self.assertAlmostEqual(comparisons.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]), -1)

    def test_what_is_missing_is_said(self):
        for options, wanted in ((["page"], "no corpus"), (["compare", "--corpus", self.folder, "--only", "x"], "no measured row")):
            result = subprocess.run([sys.executable, "-B", SCRIPT, *options], env=environment(), capture_output=True, text=True)
            self.assertEqual(result.returncode, 1)
            self.assertIn(wanted, result.stderr)


@unittest.skipUnless(BENCH.exists(), NO_BENCH)
class ModuleTimes(ProgramTest):
    def estimate(self, device, text):
        module = self.folder / "m.hlo"
        module.write_text(text)
        return subprocess.run([BENCH, *device], input=f"{module}\n", capture_output=True, text=True)

    def test_constants_are_changed_by_name(self):
        product = comparisons.product_module("f16", "f16", 1, 4096, 4096, 4096)
        result = self.estimate(["h100", "h100:matmul.f16.share=0.475,launch_us=0", "h100:host_us=1e6"], product)
        self.assertEqual(result.returncode, 0, result.stderr)
        full, half, bound = map(float, result.stdout.split("\t")[1:])
        self.assertAlmostEqual(half / full, 2, delta=0.1)
        self.assertEqual(bound, 1000)

    def test_wrong_constants_are_named(self):
        for device, wanted in (("h100:colour=1", "colour"), ("h100:host_us", "KEY=NUMBER"), ("h101", "unknown device")):
            result = self.estimate([device], comparisons.product_module("f16", "f16", 1, 8, 8, 8))
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(wanted, result.stderr)


@unittest.skipUnless(CORPUS, "AUTOMAP_CORPUS is not set: the device model was not held against measurements")
@unittest.skipUnless(BENCH.exists(), NO_BENCH)
class Accuracy(unittest.TestCase):
    """The aims of docs/device-model.md, on what no constant was fitted on."""

    @classmethod
    def setUpClass(cls):
        cls.estimate = staticmethod(functools.partial(measure_device_model.estimate, build=BIN))
        cls.folder = measure_device_model.module_cache()

    def modules(self, specs):
        missing = [spec for spec in specs if not (self.folder / f"{spec.name}.step.hlo").exists()]
        if missing:
            python = python_with_jax()
            if python is None:
                self.skipTest(NO_JAX)
            subprocess.run([python, "-B", SCRIPT, "modules", "--corpus", CORPUS, "--out", self.folder], check=True)
        return self.folder

    def test_operators_and_layers_on_a_v100(self):
        rows = [row for row in aceso.read(Path(CORPUS) / "measured/aceso-v100") if not row.fitted]
        specs = measure_device_model.operators_of(rows)
        predicted = comparisons.predict_specs(specs, self.modules(specs), comparisons.V100, self.estimate)
        ratios = [ratio for kind in comparisons.operator_ratios(rows, predicted).values() for ratio in kind]
        self.assertGreater(len(ratios), 3000)
        self.assertLess(comparisons.summary(ratios)[5], 0.17)  # aim: 0.20
        groups = {}
        for (family, _, b, t, _, block), (_, _, both) in comparisons.layer_ratios(rows, predicted).items():
            groups.setdefault((family, block, b, t), []).append(both)
        self.assertEqual(len(groups), 48)
        within = {group: abs(statistics.median(both) - 1) <= 0.1 for group, both in groups.items()}
        for (family, block, b, t), good in within.items():
            if b >= 4:  # smaller ones are bound by the host
                self.assertTrue(good, (family, block, b, t, groups[family, block, b, t]))
        self.assertGreaterEqual(sum(within.values()), 40)

    def test_matrix_products(self):
        ratios = comparisons.product_ratios(Path(CORPUS) / "hlo/perf/default_matmul_perf_table.txtpb", self.folder, self.estimate)
        for key, most in ((("sm_90", "bf16xbf16->bf16"), 0.05), (("sm_100_B200", "bf16xbf16->bf16"), 0.05),
                          (("sm_90", "f32xf32->f32"), 0.15), (("sm_100_B200", "f32xf32->f32"), 0.08)):
            other = [ratio for fitted, ratio in ratios[key] if not fitted]
            self.assertGreater(len(other), 180)
            self.assertLess(comparisons.summary(other)[5], most, key)

    def test_steps_rank_as_measured(self):
        steps = comparisons.read_steps(Path(CORPUS) / "measured/vtrain-a100-single-server.csv")
        specs = list(dict.fromkeys(spec for step in steps for spec in comparisons.step_specs(step).values()))
        predicted = comparisons.predict_specs(specs, self.modules(specs), comparisons.A100, self.estimate)
        estimated = [comparisons.step_ms(step, predicted) for step in steps]
        self.assertEqual(len(estimated), 720)
        self.assertGreater(comparisons.rank_correlation([step.measured_ms for step in steps], estimated), 0.96)


if __name__ == "__main__":
    unittest.main()
