"""What once came out wrong, and what is right: a test for each folder of AUTOMAP_CORPUS/cases.

Each kind has tests of its own beside the code, with inputs of the project's own; these run the inputs by which it was
found. Without AUTOMAP_CORPUS they are skipped and say so.
"""

import gzip
import json
import lzma
import os
import subprocess
import sys
import unittest
from pathlib import Path

from plan_lists import listed
from programs import (FIXTURES, NO_JAX, ProgramTest, SANITIZED, SOURCE, TIMEOUT_S, environment, plan_with_the_default_effort, python_with_jax, run)

plan_with_the_default_effort()

CASES = Path(os.environ["AUTOMAP_CORPUS"]) / "cases" if os.environ.get("AUTOMAP_CORPUS") else None
LIMIT_S = 60  # of what once never ended
JAX = python_with_jax() if CASES else None


@unittest.skipIf(CASES is None, "AUTOMAP_CORPUS is not set: its cases are not run")
class CaseTest(ProgramTest):
    def case(self, name):
        return CASES / name

    def document(self, *command):
        result = run(*command, "--json")
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stderr}")
        return json.loads(result.stdout)

    def infer(self, *arguments):
        return listed(self.document("automap-infer", *arguments))

    def in_shell(self, line, limit_s=LIMIT_S, cwd=None):
        """The result of a line of the shell that finds the programs on its path."""
        return subprocess.run(["bash", "-c", line], cwd=cwd or self.folder, env=environment(), capture_output=True, text=True,
                              timeout=limit_s)

    def assert_no_longer(self, step_ms, than_ms):
        self.assertLessEqual(step_ms, than_ms * (1 + 1e-3))


class Plans(CaseTest):
    def assert_shortest(self, name, batch, *options, profile="profile.csv"):
        """No longer than the shorter plan that comes with the case, bounded by no more, and the same when read again."""
        folder = self.case(name)
        ask = (folder / profile, "--cluster", folder / "cluster.json")
        found = self.infer(*ask, "--batch", batch, *options, "-o", self.folder / "plan.json")
        shorter = self.infer(*ask, "--plan", folder / "shorter.json", *options)
        self.assert_no_longer(found["simulated_step_ms"], shorter["simulated_step_ms"])
        self.assertLessEqual(found["lower_bound_ms"], shorter["simulated_step_ms"] * (1 + 1e-9))
        again = self.infer(*ask, "--plan", self.folder / "plan.json", *options)
        self.assertEqual(again["simulated_step_ms"], found["simulated_step_ms"])
        return found

    def test_numbers_of_devices(self):
        for name, batch in (("plan-devices-2of3-243", 3), ("plan-devices-2of6-378", 4), ("plan-devices-3of4-45", 8)):
            with self.subTest(name):
                self.assert_shortest(name, batch)

    def test_widths(self):
        for name in ("plan-mixed-40", "plan-one-6of8-10"):
            with self.subTest(name):
                self.assert_shortest(name, 8, profile="profile.h5")

    def test_splits(self):
        self.assert_shortest("plan-split-51", 2)

    def test_idle_stages(self):
        self.assert_shortest("plan-idle-1142", 12)
        self.assert_shortest("plan-idle-corner", 6, "--allow-idle-stages", profile="profile.h5")

    def test_odd_servers(self):
        folder = self.case("plan-odd-server")

        def step_of(model, cluster, *more):
            found = self.infer(FIXTURES / f"{model}.hlo.gz", "--cluster", folder / f"{cluster}.json", "--device", "v100-16gb", *more)
            return found["simulated_step_ms"]

        self.assert_no_longer(step_of("vgg19", "five", "--batch", 2), step_of("vgg19", "four", "--batch", 2))
        self.assert_no_longer(step_of("vgg19", "five", "--layout", "dp=1,pp=1,tp=4,micro-batch-size=2", "--batch", 2),
                              step_of("vgg19", "four", "--layout", "dp=1,pp=1,tp=4,micro-batch-size=2", "--batch", 2))
        for model in ("vgg19", "grouped_query", "moe_small"):
            with self.subTest(model):
                seven, six = step_of(model, "seven", "--batch", 2), step_of(model, "six", "--batch", 2)
                self.assertLessEqual(seven, six * 1.01)  # at normal effort

    def test_slow_servers_in_front(self):
        subprocess.run([sys.executable, "-B", self.case("plan-slow-first") / "mk.py"], cwd=self.folder, check=True)
        for model in ("unet", "vgg19", "moe_small", "transformer_bf16"):
            with self.subTest(model):
                ask = (FIXTURES / f"{model}.hlo.gz", "--device", "v100-16gb", "--cluster")
                steps = {c: self.infer(*ask, self.folder / f"{c}.json")["simulated_step_ms"]
                         for c in ("fast8", "fast8slow8", "slow8fast8", "slow2fast8")}
                self.assertEqual(steps["fast8slow8"], steps["slow8fast8"])
                for more in ("fast8slow8", "slow2fast8"):
                    self.assert_no_longer(steps[more], steps["fast8"])

    def test_mixed_device_types(self):
        folder = self.case("mixed-device-types")
        ask = (folder / "decoder8.hlo.gz", "--batch", 96, "--layout", "dp=2,pp=1,micro-batch-size=8", "--cluster")
        steps = [self.infer(*ask, folder / f"{c}.json")["simulated_step_ms"] for c in ("av", "va")]
        self.assertEqual(*steps)
        # Six micro-batches on a V100, and a sum: those of the V100 alone, and a little.
        alone = self.infer(*ask[:3], "--layout", "dp=1,pp=1,micro-batch-size=8", "--cluster", folder / "v1.json")
        self.assertGreaterEqual(steps[0], alone["simulated_step_ms"] / 2)
        # Four of the faster devices alone are a choice; half of all the work on V100s is the slower one.
        all_eight = self.infer(folder / "decoder8.hlo.gz", "--batch", 512, "--cluster", folder / "av8.json")
        four = self.infer(folder / "decoder8.hlo.gz", "--batch", 512, "--cluster", folder / "a4.json")
        self.assert_no_longer(all_eight["simulated_step_ms"], four["simulated_step_ms"])
        forced = self.infer(folder / "decoder8.hlo.gz", "--batch", 512, "--cluster", folder / "av8.json", "--layout",
                            "dp=8,pp=1,micro-batch-size=8")
        slower = self.infer(folder / "decoder8.hlo.gz", "--batch", 256, "--cluster", folder / "v4.json", "--layout",
                            "dp=4,pp=1,micro-batch-size=8")
        self.assertGreaterEqual(forced["simulated_step_ms"], 0.99 * slower["simulated_step_ms"])

    def test_a_batch_of_one(self):
        one, two = (self.case("batch-of-one") / f"decoder8_b{n}.hlo.gz" for n in (1, 2))
        ask = ("--cluster", "h100-1x8", "--limit", "tensor", "--batch", 16)
        steps = [self.infer(model, *ask) for model in (one, two)]
        for found in steps:
            self.assertGreater(found["stages"][0]["width"], 1)
        # The optimizer's time is counted of both, and times at other numbers of samples are known.
        self.assertGreater(steps[0]["stages"][0]["optimizer_ms"], 0)
        self.assertAlmostEqual(steps[0]["simulated_step_ms"], steps[1]["simulated_step_ms"], delta=0.1 * steps[1]["simulated_step_ms"])

    def test_nothing_that_buys_nothing_is_in_flight(self):
        folder = self.case("inflight-ties")
        ask = (folder / "embed.csv", "--cluster", folder / "one4.json", "--stages", 4, "--batch", 64, "--micro-batches", 64)
        adaptive, fixed = self.infer(*ask), self.infer(*ask, "--schedule", "1f1b")
        self.assertEqual(adaptive["simulated_step_ms"], fixed["simulated_step_ms"])
        self.assertEqual(adaptive["in_flight"], fixed["in_flight"])

    def test_orders_where_memory_is_short(self):
        folder = self.case("memory-limited-order")
        found = self.infer(folder / "sixteen.csv", "--cluster", folder / "four40.json", "--plan", folder / "cuts.json", "--batch", 32,
                           "--micro-batches", 32, "--recompute", "none")
        # Strict turns wait, and the report says where; the order that starts a forward wherever there is room does not.
        self.assertTrue(any("too few for the round trip behind it" in limit["text"] for limit in found["limits"]), found["limits"])
        plan = self.infer(folder / "sixteen.csv", "--cluster", folder / "four40.json", "--batch", 32, "--micro-batches", 32,
                          "--recompute", "none", "--stages", 4)
        self.assertLess(plan["simulated_step_ms"], 50e3)

    def test_stages_without_weights(self):
        found = run("automap-infer", self.case("mtp-losses") / "mtp.hlo.gz", "--cluster", "h100-1x8", "--stages", 8, "--max-width", 1,
                    "--batch", 64, "--json")
        self.assertEqual(found.returncode, 0, found.stderr)
        document = json.loads(found.stdout)
        # The rule that binds is named, with what it costs.
        rules = {one["rule"]: one["simulated_step_ms"] for one in document["bounds"]["relaxed"]}
        name = next(rule for rule in rules if "variable of its own" in rule)
        self.assertIn(name, document["bounds"]["premises"]["rules"])
        self.assertLess(rules[name], document["simulated_step_ms"] / 2)

    def test_a_published_plan_is_not_shorter(self):
        folder = self.case("fault-plan-not-shortest")
        found = self.infer(folder / "p.csv", "--cluster", folder / "c.json")
        for other in found["alternatives"]:
            self.assertGreaterEqual(other["step_ms"] or float("inf"), found["simulated_step_ms"] * (1 - 1e-9), other)


class Modules(CaseTest):
    def flops(self, name):
        return self.document("automap-inspect", self.case(name))["flops"]

    def test_forms_that_xla_reads(self):
        for name in ("inline-computation/inline.hlo", "signature-without-colon/sig.hlo", "signature-without-colon/module_colon.hlo",
                     "spaced-layout/spaced.hlo", "missing-shape-inference/call.hlo", "missing-shape-inference/pad.hlo",
                     "dim-labels/spatial_batch.hlo", "async-start-reducer/reduce_scatter_start.hlo"):
            with self.subTest(name):
                result = run("automap-inspect", self.case(name))
                self.assertEqual(result.returncode, 0, result.stderr)

    def test_malformed_attributes(self):
        folder = self.case("malformed-accepted")
        self.assert_fails(run("automap-inspect", folder / "empty_dimensions.hlo"), 3, "empty_dimensions.hlo:")
        # Where it says nothing of what is computed it is only said.
        result = run("automap-inspect", folder / "iota_sizes_differ.hlo")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"iota_sizes_differ.hlo:\d+:\d+: .* puts 4 tiles on 16 devices")

    def test_work_of_new_forms(self):
        self.assertEqual(self.flops("scan-op-flops/scan.hlo"), 32 * 2 * 128**3)
        self.assertEqual(self.flops("scan-op-flops/dot_start.hlo"), 4194304)
        causal = 2 * 2 * 2 * 32 * 4096**2 * 128 / 2
        self.assertAlmostEqual(self.flops("fused-attention-calls/attn.hlo"), causal, delta=0.01 * causal)

    def test_a_partitioned_module(self):
        folder = self.case("partitioned-module")
        ask = ("--cluster", "h100-1x8", "--batch", 1024)
        result = run("automap-infer", folder / "after_spmd.hlo", *ask)
        self.assert_fails(result, 3, "after_spmd.hlo: this is one device's part of a model", "export the step before it is partitioned")
        before = run("automap-infer", folder / "before.hlo", *ask)
        self.assertEqual(before.returncode, 0, before.stderr)
        as_is = run("automap-infer", folder / "after_spmd.hlo", *ask, "--as-is")
        self.assertEqual(as_is.returncode, 0, as_is.stderr)
        self.assertIn("nothing here holds for the whole model", as_is.stderr)


class Faults(CaseTest):
    def test_products_of_nested_loops(self):
        folder = self.case("fault-adp-nested-loops-nan")
        result = run("automap-search", "adp", folder / "w.hlo", "--shards", 4)
        self.assertEqual(result.returncode, 0, result.stderr)
        profile = self.folder / "x.h5"
        self.assertEqual(run("automap-profile", folder / "w5.hlo", "-q", "-o", profile).returncode, 0)
        result = run("automap-inspect", profile)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_absurd_numbers(self):
        for name, profile, cluster, code in (
                ("fault-bw-tiny-check", "v.csv", "c.json", 2), ("fault-csv-1e308", "p.csv", "config-a", 3),
                ("fault-negative-time", "v.csv", "c.json", 2), ("fault-speed-tiny-hang", "v.csv", "c.json", 2)):
            with self.subTest(name):
                folder = self.case(name)
                cluster = folder / cluster if cluster.endswith(".json") else cluster
                result = run("automap-infer", folder / profile, "--cluster", cluster, "--time-limit", "1s", "-q")
                self.assert_fails(result, code, "expected")

    def test_a_pipe_that_a_cluster_names(self):
        result = self.in_shell(f"mkfifo f && cp {self.case('fault-nccl-fifo') / 'c.json'} . && automap-inspect c.json")
        self.assertEqual(result.returncode, 3, result.stderr)

    def test_json_behind_dashes(self):
        result = run("automap-datagen", "--preview", "--", "--json")
        self.assert_json_error(result, 2, "usage")

    def test_a_changed_state_of_an_online_search(self):
        folder = self.case("fault-online-state-segv")
        state = self.put("s.bin", gzip.decompress((folder / "s.bin.gz").read_bytes()))
        result = run("automap-infer", folder / "t.csv", "--cluster", "config-a", "--planner", "online", "--plays", 35, "--time-limit", "1s",
                     "--search-state", state, "-q")
        self.assertIn(result.returncode, (0, 3), result.stderr)

    @unittest.skipIf(SANITIZED, "sanitizers need terabytes of address space")
    def test_limits(self):
        result = self.in_shell("ulimit -s 1024; automap --version")
        self.assertEqual(result.returncode, 0, result.stderr)
        # A window of what the program needs to load: it runs, or says what it lacks.
        for kib in range(33000, 36001, 500):
            result = self.in_shell(f"ulimit -v {kib}; automap-infer --version")
            self.assertIn(result.returncode, (0, 3, 127), f"{kib}: {result.stderr}")
        result = self.in_shell(f"ulimit -t 1; automap-infer {FIXTURES}/gpt2.hlo.gz --cluster config-b --effort thorough -q -o o.json")
        self.assertEqual(result.returncode, 152, result.stderr)
        self.assertEqual(self.leftovers(), [])

    @unittest.skipIf(SANITIZED, "sanitizers need terabytes of address space")
    def test_training_in_little_memory(self):
        for kib in (665600, 819200):
            result = self.in_shell(f"ulimit -v {kib}; automap-train --out r --episodes 16 --round-episodes 8 --evaluate-small 1 "
                                   "--evaluate-middle 0 --evaluate-deep 0 --threads 1 -q")
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn("error: ", result.stderr)

    def test_a_wide_tuple(self):
        make = self.case("fault-wide-tuple-quadratic") / "make.py"
        wide = self.put("in.hlo", subprocess.run([sys.executable, "-B", make, "20000"], capture_output=True, check=True).stdout)
        for command in (("automap-search", "adp", wide, "--shards", 4, "--budget", "1s"),
                        ("automap-infer", wide, "--cluster", "config-a", "--time-limit", "1s")):
            result = self.in_shell(" ".join(map(str, command)))
            self.assertIn(result.returncode, (0, 3), result.stderr)


class Operators(CaseTest):
    def search(self, *arguments):
        result = run("automap-search", *arguments, cwd=self.folder)
        self.assertEqual(result.returncode, 0, f"{arguments}\n{result.stderr}")
        return result

    def test_the_batch_of_a_recurrent_step(self):
        model = self.put("rnn.hlo", lzma.decompress((self.case("partition-rnn_fsdp") / "rnn.hlo.xz").read_bytes()))
        result = self.search("opp", model, "--mesh", "data=8,model=1", "--zero", 3, "-o", "plan.json", "--emit-jax", "specs.py")
        # x is split along its dimension 1, which is the batch, and one array is gathered: before the loops.
        self.assertIn("the batch is taken to be x dimension 1 (16), not dimension 0", result.stderr)
        self.assertEqual(json.loads((self.folder / "plan.json").read_text())["axes"]["data"]["all_gathers"], 1)

    @unittest.skipIf(JAX is None, NO_JAX)
    def test_the_gathers_of_a_recurrent_step_are_those_that_xla_makes(self):
        self.test_the_batch_of_a_recurrent_step()
        self.apply(self.case("partition-rnn_fsdp") / "rnn.py", "make_rnn")

    @unittest.skipIf(JAX is None, NO_JAX)
    def test_arguments_behind_a_star(self):
        case = self.case("apply-varargs")
        model = self.put("model.hlo", lzma.decompress((case / "llama_varargs.hlo.xz").read_bytes()))
        self.search("adp", model, "--shards", 8, "-o", "plan.json", "--emit-jax", "specs.py")
        self.apply(case / "mysteps_varargs.py", "make_llama")

    def apply(self, steps, name):
        """Compiles the step with the specs, compares its collectives with the plan's and its results with one device's."""
        result = subprocess.run([JAX, "-B", SOURCE / "scripts" / "apply_plan.py", "--plan", "plan.json", "--specs",
                                 "specs.py", "--step", f"{steps}:{name}"], cwd=self.folder, env=environment(), capture_output=True,
                                text=True, timeout=TIMEOUT_S)
        if "No module named 'optax'" in result.stderr:
            self.skipTest("the Python with JAX has no optax, which the steps of the case want")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("equal", result.stdout)


if __name__ == "__main__":
    unittest.main()
