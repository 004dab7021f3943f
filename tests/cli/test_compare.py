"""automap-compare: published systems and ours on one model."""

import json
import shutil
import unittest

from programs import FIXTURES, SANITIZED, SOURCE, ProgramTest, environment, run

SYSTEMS = ["automap", "data-parallel", "gpipe", "megatron", "pipedream", "dapple", "alpa", "galvatron", "aceso", "flexflow", "heuristics", "tarnawski"]
PLACE_ONLY = ["placement-orders", "placement-greedy", "placement-local", "placement-scotch", "placement-chain"]


class Compare(ProgramTest):
    def test_every_system_answers_and_none_is_shorter(self):
        page = self.folder / "page.html"
        result = run("automap-compare", FIXTURES / "tiny_mlp.hlo", "--cluster", "config-a", "--json", "--html", page, "--time", "5s")
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        self.assertEqual(document["schema"], "automap.systems/1")
        self.assertEqual([row["system"] for row in document["systems"]], SYSTEMS)
        ours = document["systems"][0]
        self.assertTrue(ours["found"])
        self.assertGreaterEqual(ours["gap"], 0)
        for row in document["systems"]:
            self.assertGreater(row["search_s"], 0)
            if row["found"] and row["judged_by"] != "our simulation":
                self.assertIn(row["system"], ("flexflow", "heuristics"))
                self.assertEqual(row["judged_by"], "its own simulator")
                self.assertGreater(row["step_ms"], 0)
                self.assertNotIn("simulated_step_ms", row)
            elif row["found"]:
                # Of plans within 0.1 % ours is the one that shards and recomputes less.
                self.assertLessEqual(ours["simulated_step_ms"], row["simulated_step_ms"] * 1.001, row["system"])
                self.assertLessEqual(row["fullest_share"], 1)
            else:
                self.assertTrue(row["why_not"])
        self.assertTrue(all(row["found"] and row["fits"] for row in document["systems"][-3:]))
        self.assertGreaterEqual(sum(row["found"] for row in document["systems"]), 6)
        self.assertIn("<svg", page.read_text())
        self.assertEqual(self.leftovers(), ["page.html"])

    def test_the_command_of_search_is_the_same(self):
        options = [FIXTURES / "tiny_mlp.hlo", "--cluster", "config-b", "--systems", "alpa,automap"]
        result = run("automap-search", "compare", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^Alpa +[\d.]+ +[\d.]+ +\d\.\d{3} ")
        self.assertRegex(result.stdout, r"Shortest: .*AutoMap")
        self.assertNotIn("DAPPLE", result.stdout)

    def test_models(self):
        for name in ("t5_6_6.hlo.gz", "vgg19.hlo.gz", "bert48.hlo.gz"):
            with self.subTest(name=name):
                result = run("automap-compare", FIXTURES / name, "--cluster", "config-a", "--systems", "data-parallel,flexflow,heuristics,tarnawski,placement-greedy",
                             "--time", "20s" if SANITIZED else "2s", "--json")
                self.assertEqual(result.returncode, 0, result.stderr)
                rows = {row["system"]: row for row in json.loads(result.stdout)["systems"]}
                self.assertTrue(all(row["found"] for row in rows.values()))
                # Single devices: longer than replicas of all, and the greedy one longer still.
                self.assertEqual(rows["tarnawski"]["judged_by"], "our simulation")
                self.assertLessEqual(rows["tarnawski"]["simulated_step_ms"], rows["placement-greedy"]["simulated_step_ms"])
                self.assertIn("of 1 device", rows["tarnawski"]["plan"])
                self.assertIn("operators split", rows["flexflow"]["plan"])
                # The step of one batch alone on devices that wait for each other.
                self.assertGreater(rows["heuristics"]["step_ms"], rows["heuristics"]["own_ms"])
                self.assertIn("kernels on", rows["heuristics"]["plan"])

    def test_a_published_model_by_its_name(self):
        result = run("automap-compare", "gpt2", "--cluster", "h100-2x8", "--batch", "64", "--systems", "data-parallel,megatron", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = {row["system"]: row for row in json.loads(result.stdout)["systems"]}
        self.assertTrue(all(row["found"] for row in rows.values()))
        self.assertRegex(rows["data-parallel"]["plan"], r"^1 stage of 16 devices, .*, ZeRO [1-3]$")

    def test_a_profile(self):
        profile = self.folder / "vgg.csv"
        run("automap-profile", FIXTURES / "vgg19.hlo.gz", "-o", profile)
        result = run("automap-compare", profile, "--cluster", "config-a", "--systems", "dapple,flexflow,heuristics,tarnawski", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = {row["system"]: row for row in json.loads(result.stdout)["systems"]}
        self.assertEqual([rows[name]["found"] for name in ("dapple", "flexflow", "heuristics", "tarnawski")], [True, False, False, True])
        for name in ("flexflow", "heuristics"):
            self.assertIn("give it the HLO", rows[name]["why_not"])

    def test_a_pipedream_profile(self):
        graph = self.put("graph.txt", "".join(
            f"node{i} -- Layer{i} -- forward_compute_time={i}.000, backward_compute_time={2 * i}.000, activation_size={1000.0 * i}, "
            f"parameter_size={4000.0 * i}\n" for i in range(1, 7)) + "".join(f"\tnode{i} -- node{i + 1}\n" for i in range(1, 6)))
        result = run("automap-compare", graph, "--cluster", "config-a", "--systems", "pipedream,tarnawski", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(all(row["found"] for row in json.loads(result.stdout)["systems"]))

    def test_a_workload(self):
        path = SOURCE / "fixtures/placement/training.json"
        result = run("automap-compare", path, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        self.assertNotIn("batch", document)
        rows = {row["system"]: row for row in document["systems"]}
        self.assertEqual(list(rows), SYSTEMS + PLACE_ONLY)
        # A program of its own, which may not be there.
        scotch = rows.pop("placement-scotch")
        self.assertTrue(scotch["asked"])
        self.assertEqual(scotch["found"], shutil.which("scotch_gpart") is not None)
        for name, row in rows.items():
            self.assertEqual(row["found"], name in ["tarnawski"] + PLACE_ONLY, name)
            if row["found"]:
                self.assertEqual(row["judged_by"], "the largest load")
                if name != "placement-local":  # contiguous ones
                    self.assertGreaterEqual(row["load_ms"], rows["tarnawski"]["load_ms"] * (1 - 1e-9))
            else:
                self.assertFalse(row["asked"])
                self.assertIn("says nothing of samples", row["why_not"])
        own = json.loads(run("automap-search", "placement", path, "--json").stdout)
        self.assertEqual(rows["tarnawski"]["load_ms"], own["value_ms"])
        text = run("automap-compare", path, "--cluster", "config-a")
        self.assertIn("Least: Tarnawski et al.", text.stdout)
        self.assertIn("Not asked: AutoMap, data parallel,", text.stdout)
        self.assertNotRegex(text.stdout, r"(?m)^ *(AutoMap|GPipe)")
        self.assertIn("--cluster is not looked at", text.stderr)
        self.assert_fails(run("automap-compare", self.put("cycle.json", json.dumps({
            "maxSizePerFPGA": 1, "maxFPGAs": 1, "maxCPUs": 0, "nodes": [], "edges": []}))), 3, "cycle.json", "no nodes")

    def test_without_scotch(self):
        for content, says in ((None, ["Scotch is not installed", "apt-get install scotch"]), ("#!/bin/sh\necho broken >&2\nexit 3\n", ["scotch_gpart ended with exit code 3"])):
            if content:
                self.put("scotch_gpart", content).chmod(0o755)
            result = run("automap-compare", SOURCE / "fixtures/placement/training.json", "--systems", "placement-scotch,placement-local", "--json",
                         env=environment(PATH=str(self.folder)))
            self.assertEqual(result.returncode, 0, result.stderr)
            scotch, local = json.loads(result.stdout)["systems"]
            self.assertEqual((scotch["asked"], scotch["found"], local["found"]), (True, False, True))
            for part in says:
                self.assertIn(part, scotch["why_not"])

    def test_workloads_of_nothing_and_of_too_much(self):
        node = {"id": 0, "supportedOnFpga": True, "cpuLatency": 5, "fpgaLatency": 0, "isBackwardNode": False, "size": 0}
        workload = {"maxSizePerFPGA": 1e9, "maxFPGAs": 3, "maxCPUs": 1, "nodes": [node], "edges": []}
        path = self.put("nothing.json", json.dumps(workload))
        result = run("automap-compare", path, "--html", self.folder / "page.html")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("3 accelerators and 1 CPU core\n", result.stdout)
        self.assertIn("Largest load", (self.folder / "page.html").read_text())
        node["cpuLatency"] = node["fpgaLatency"] = 1e308
        self.assert_fails(run("automap-compare", self.put("much.json", json.dumps(workload))), 3, "much.json", "expected a number whose size is 0 or from 1e-30 to 1e30")
        result = run("automap-compare", path, "--batch", "5", "--systems", "tarnawski")
        self.assertIn("--batch is not looked at", result.stderr)
        self.assert_fails(run("automap-compare", path, "--systems", "automap,alpa"), 2, "none of them places", "tarnawski")

    def test_memory_is_what_plans_may_use(self):
        # 97 % of what a device has is above the 90 % that are asked of everyone.
        rows = json.loads(run("automap-compare", FIXTURES / "vgg19.hlo.gz", "--cluster", "config-a", "--systems", "heuristics", "--json").stdout)["systems"]
        self.assertTrue(rows[0]["fits"])
        self.assertLessEqual(rows[0]["fullest_share"], 1)

    def test_a_model_that_fits_nowhere(self):
        cluster = json.dumps({"schema": "automap.cluster/1", "name": "small", "devices": {"v100-16gb": {"memory_gib": 0.001}},
                              "servers": [{"count": 1, "devices": 2, "intra_gbytes_per_s": 100, "inter_gbytes_per_s": 10, "device": "v100-16gb"}]})
        result = run("automap-compare", FIXTURES / "gpt2.hlo.gz", "--cluster", self.put("small.json", cluster), "--systems",
                     "automap,megatron,alpa")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("No system has a plan.", result.stdout)
        self.assertRegex(result.stdout, r"(?m)^AutoMap has no plan: \S")

    def test_a_strategy_that_does_not_fit_is_none_to_compare_with(self):
        cluster = json.dumps({"schema": "automap.cluster/1", "name": "small", "devices": {"v100-16gb": {"memory_gib": 0.9}},
                              "servers": [{"count": 1, "devices": 2, "intra_gbytes_per_s": 100, "inter_gbytes_per_s": 10, "device": "v100-16gb"}]})
        command = ["automap-compare", FIXTURES / "vgg19.hlo.gz", "--cluster", self.put("small.json", cluster), "--systems", "flexflow", "--time", "2s"]
        row = json.loads(run(*command, "--json").stdout)["systems"][0]
        self.assertTrue(row["found"])
        self.assertGreater(row["fullest_share"], 1)
        self.assertFalse(row["fits"])
        text = run(*command).stdout
        self.assertIn("does not fit", text)
        self.assertIn("No system has a plan that fits", text)

    def test_what_is_wrong_is_said(self):
        model = FIXTURES / "tiny_mlp.hlo"
        for code, part, options in ((2, "no system is called 'alpha'", [model, "--cluster", "config-a", "--systems", "alpha"]),
                                    (2, "--cluster", [model]),
                                    (3, "no training step", [FIXTURES / "gpt2_forward.hlo.gz", "--cluster", "config-a"]),
                                    (3, "nowhere", [model, "--cluster", "config-a", "--html", self.folder / "nowhere" / "page.html"])):
            self.assert_fails(run("automap-compare", *options), code, part)
        self.assertEqual(self.leftovers(), [])


if __name__ == "__main__":
    unittest.main()
