"""automap-search soap: strategies found, written, read back, and everything that can be wrong with them."""

import json
import unittest

from plan_commands import INSPECT_SCHEMA, PlanCommandTest
from programs import FIXTURES, run

TINY = FIXTURES / "tiny_mlp.hlo"
VGG = FIXTURES / "vgg19.hlo.gz"
QUICK = ("--effort", "quick")


class SoapTest(PlanCommandTest):
    command = "soap"


class Plans(SoapTest):
    def test_beats_data_parallelism_and_experts_on_vgg(self):
        plan = self.plan(VGG, "--cluster", "config-a", *QUICK)
        self.assertEqual((plan["schema"], plan["kind"], plan["devices"]), ("automap.plan/1", "soap", 16))
        self.assertLess(plan["step_ms"], plan["expert_ms"])
        self.assertLess(plan["expert_ms"], plan["data_parallel_ms"] / 2)
        self.assertLess(plan["moved_bytes"], plan["data_parallel_moved_bytes"])
        for operator in plan["operators"]:
            parts = 1
            for degree, dim in zip(operator["degrees"], operator["dims"]):
                self.assertEqual(dim["extent"] % degree, 0)
                parts *= degree
            self.assertEqual(parts, len(operator["devices"]))
            self.assertTrue(all(1 <= device <= 16 for device in operator["devices"]))
        self.assertLessEqual(sum(chain["proposals"] for chain in plan["chains"]), plan["proposals"])

    def test_same_question_same_answer(self):
        plans = [self.plan(TINY, "--devices", 4, *QUICK, "--seed", seed) for seed in (1, 1, 2)]
        for plan in plans:
            plan.pop("planning_ms")
        self.assertEqual(plans[0], plans[1])
        self.assertNotEqual(plans[0]["chains"], plans[2]["chains"])

    def test_starts(self):
        for start, name in (("data-parallel", "data parallel"), ("expert", "expert"), ("random", "random")):
            plan = self.plan(TINY, "--devices", 2, *QUICK, "--start", start)
            self.assertEqual(plan["chains"][0]["start"], name)
            self.assertLessEqual(plan["step_ms"], min(plan["data_parallel_ms"], plan["expert_ms"]))

    def test_time_and_any_placement(self):
        plan = self.plan(TINY, "--devices", 4, "--time", "300ms", "--placement", "any")
        self.assertTrue(plan["cut_by_time"])
        self.assertLessEqual(plan["step_ms"], plan["data_parallel_ms"])

    def test_one_device(self):
        plan = self.plan(TINY, "--devices", 1, *QUICK)
        self.assertEqual(plan["step_ms"], plan["data_parallel_ms"])
        self.assertTrue(plan["same_devices"])

    def test_report(self):
        result = run("automap-search", "soap", TINY, "--devices", 4, *QUICK)
        self.assertEqual(result.returncode, 0, result.stderr)
        for text in ("Step time", "Over links", "For XLA", "chain from", "dense_1"):
            self.assertIn(text, result.stdout)
        self.assertRegex(result.stdout, r"Memory +fits: .* of 16.0 GiB on device \d")
        self.assertNotIn("warning: the strategy needs", result.stderr)

    def test_memory(self):
        plan = self.plan(VGG, "--cluster", "config-a", *QUICK, "--fit")
        memory = plan["memory"]
        self.assertTrue(memory["fits"])
        self.assertEqual(len(memory["devices"]), 16)
        self.assertEqual(max(sum(device.values()) for device in memory["devices"]), memory["bytes"])
        self.assertEqual(sum(memory["devices"][memory["fullest_device"] - 1].values()), memory["bytes"])
        # Devices of a hundredth of that: nothing fits, and it is said how much is needed of what.
        small = self.put("small.json", json.dumps({
            "schema": "automap.cluster/1", "name": "small", "devices": {"v100-16gb": {"memory_gib": 0.05}}, "servers": [
                {"count": 1, "devices": 4, "intra_gbytes_per_s": 100, "inter_gbytes_per_s": 10, "device": "v100-16gb"}]}))
        result = run("automap-search", "soap", VGG, "--cluster", small, *QUICK)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"Memory +needs .* of 51.2 MiB")
        self.assertRegex(result.stderr, r"warning: the strategy needs .* of 51.2 MiB .*; --fit looks for one that fits")
        result = run("automap-search", "soap", VGG, "--cluster", small, *QUICK, "--fit")
        self.assertIn("nothing that fits was found", result.stderr)

    def test_a_mesh(self):
        plan = self.plan(TINY, "--devices", 6, *QUICK, "--placement", "mesh")
        # Samples 16, 10 columns: 2 x 1 is the most of 6 devices that they divide into, or 3 of none.
        for operator in plan["operators"]:
            self.assertEqual(6 % len(operator["devices"]), 0)
            self.assertEqual(operator["devices"][0], 1)


class Files(SoapTest):
    def test_a_plan_read_back_is_where_the_search_begins(self):
        path = self.folder / "plan.json"
        first = self.plan(TINY, "--devices", 4, *QUICK, "-o", path)
        again = self.plan(TINY, "--devices", 4, *QUICK, "--plan", path, "--start", "expert")
        self.assertEqual(json.loads(path.read_text()), first)
        self.assertEqual(again["chains"][0]["start"], "the plan given")
        self.assertEqual(again["chains"][0]["start_ms"], first["step_ms"])
        self.assertLessEqual(again["step_ms"], first["step_ms"])

    def test_inspect_describes_it(self):
        path = self.folder / "plan.json"
        plan = self.plan(TINY, "--devices", 4, *QUICK, "-o", path)
        result = run("automap-inspect", path, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        described = json.loads(result.stdout)
        self.check(described, INSPECT_SCHEMA)
        self.assertEqual((described["plan_kind"], described["operators"], described["devices"]), ("soap", 3, 4))
        self.assertEqual(described["step_ms"], plan["step_ms"])
        self.assertIn("SOAP plan for 4 devices", run("automap-inspect", path).stdout)
        path.write_text(json.dumps({"schema": "automap.plan/1", "kind": "soap"}))
        self.assert_fails(run("automap-inspect", path), 3, "missing key \"operators\"")

    def test_strategies_that_are_none(self):
        path = self.folder / "plan.json"
        good = self.plan(TINY, "--devices", 4, *QUICK)

        def refused(change, *says):
            plan = json.loads(json.dumps(good))
            change(plan)
            path.write_text(json.dumps(plan))
            self.fails(3, TINY, "--devices", 4, "--plan", path, says=says)

        refused(lambda p: p["operators"][0].update(degrees=[3, 1], devices=[1, 2, 3]),
                "operator 1 (dot_general.5): degree 3 does not divide its sample dimension of 16",
                "parts have equal sizes: 1, 2, 4 divide it")
        refused(lambda p: p["operators"][0].update(degrees=[2, 1], devices=[1, 5]), "there is no device 5", "has 4")
        refused(lambda p: p["operators"][0].update(degrees=[2, 1], devices=[1]), "2 parts, but 1 devices are named")
        refused(lambda p: p["operators"][0].update(degrees=[2]), "1 degrees, expected one for each of its 2 dimensions")
        refused(lambda p: p["operators"][0].update(name="other"), "operator 1: name: found \"other\"")
        refused(lambda p: p["operators"].pop(), "2 operators, but the model has 3")
        refused(lambda p: p.update(kind="data"), "kind: found \"data\", expected \"soap\"")
        refused(lambda p: p.update(schema="automap.plan/9"), "automap.plan/9")
        path.write_text("{")
        self.fails(3, TINY, "--plan", path, says=["plan.json"])
        self.fails(3, TINY, "--plan", self.folder / "none.json", says=["none.json"])


    def test_provenance_says_what_was_asked(self):
        path = self.folder / "plan.json"
        names = self.put("names.txt", "".join(f"{i}\n" for i in range(4)))
        plan = self.plan(TINY, "--devices", 4, *QUICK, "-o", path, "--variables", names)
        self.assertEqual(plan["provenance"]["option_variables"], str(names))
        again = self.plan(TINY, "--devices", 4, *QUICK, "--plan", path)
        self.assertEqual(again["provenance"]["option_plan"], str(path))
        self.assertEqual(len(again["provenance"]["plan_sha256"]), 64)

    def test_a_module_for_xla(self):
        module, path = self.folder / "sharded.hlo", self.folder / "plan.json"
        plan = self.plan(TINY, "--devices", 4, *QUICK, "--emit-hlo", module, "-o", path)
        self.assertEqual(plan["provenance"]["option_placement"], "mesh")
        text = module.read_text()
        self.assertIn("num_partitions=4", text)
        self.assertIn("sharding={devices=[", text)
        self.assertIn("For XLA        one mesh", run("automap-search", "soap", TINY, "--devices", 4, *QUICK, "--placement", "mesh").stdout)
        module.unlink()
        # What is found without that condition leaves devices to others.
        self.fails(2, VGG, *QUICK, "--placement", "range", "--emit-hlo", module, says=["no single program for XLA", "--placement mesh"])
        self.assertFalse(module.exists())


class Errors(SoapTest):
    def test_wrong_usage(self):
        self.fails(2, TINY, "--start", "nowhere", says=["nowhere", "data-parallel, expert, random"])
        self.fails(2, TINY, "--devices", 17, says=["found 17 devices, expected 1 to 16", "config-a"])
        self.fails(2, TINY, "--cluster", "config-q", says=["config-q"])
        cluster = self.folder / "large.json"
        cluster.write_text(json.dumps({"schema": "automap.cluster/1", "name": "large", "servers": [
            {"count": 40, "devices": 8, "intra_gbytes_per_s": 130, "inter_gbytes_per_s": 3, "device": "v100-16gb"}]}))
        self.fails(2, TINY, "--cluster", cluster, says=["found 320 devices, expected 1 to 256", "--devices N"])
        self.fails(2, TINY, "--time", "soon", says=["soon"])
        result = run("automap-search", "soap", TINY, "--json", "-o", "-")
        self.assertEqual(result.returncode, 2)
        self.assertIn("both want standard output", json.loads(result.stdout)["error"]["message"])

    def test_modules_without_operators(self):
        path = self.folder / "constant.hlo"
        path.write_text("HloModule m\nENTRY e {\n  ROOT c = f32[2] constant({1, 2})\n}\n")
        self.fails(3, path, says=["the module has no operator"])


if __name__ == "__main__":
    unittest.main()
