"""automap-search placement: plans, what they say, and bad input. The algorithms themselves: tests/plan/systems/placement."""

import json
import os
import shutil
import time
import unittest
from pathlib import Path

from programs import FIXTURES, SOURCE, ProgramTest, environment, run

try:
    import jsonschema
except ImportError:
    jsonschema = None

BRANCHES, TRAINING = SOURCE / "fixtures/placement/branches.json", SOURCE / "fixtures/placement/training.json"
SCHEMA = json.loads((SOURCE / "docs/formats/plan.schema.json").read_text())
INSPECT = json.loads((SOURCE / "docs/formats/inspect.schema.json").read_text())
CORPUS = os.environ.get("AUTOMAP_CORPUS")


class Placement(ProgramTest):
    def ask(self, *arguments, **options):
        result = run("automap-search", "placement", *arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def plan(self, *arguments):
        plan = json.loads(self.ask(*arguments, "--json").stdout)
        if jsonschema:
            jsonschema.validate(plan, SCHEMA)
        return plan

    def fails(self, code, *arguments, says=()):
        self.assert_fails(run("automap-search", "placement", *arguments, cwd=self.folder), code, *says)
        self.assertFalse([name for name in self.leftovers() if name == "out.json"])

    def test_every_node_is_somewhere(self):
        for workload in (BRANCHES, TRAINING):
            plan = self.plan(workload)
            given = json.loads(workload.read_text())
            nodes = sorted(node for device in plan["devices"] for node in device["nodes"])
            self.assertEqual(nodes, sorted(node["id"] for node in given["nodes"]))
            self.assertEqual(plan["value_ms"], max(device["load_ms"] for device in plan["devices"]))
            self.assertTrue(plan["proven"])
            self.assertTrue(plan["contiguous"])
            self.assertEqual(plan["gap"], 0)
            self.assertEqual((plan["schema"], plan["kind"]), ("automap.plan/1", "placement"))

    def test_the_same_on_every_run(self):
        def without_times(plan):
            for entry in plan["alternatives"] + [plan]:
                del entry["planning_ms"]
            return plan
        for algorithm in ("dp", "local-search"):
            first, second = (without_times(self.plan(TRAINING, "--algorithm", algorithm)) for _ in range(2))
            self.assertEqual(first, second)

    def test_a_plan_is_judged(self):
        path = self.folder / "plan.json"
        self.ask(BRANCHES, "-o", path)
        plan = json.loads(path.read_text())
        again = self.plan(BRANCHES, "--placement", path)
        self.assertEqual((again["value_ms"], again["planner"]), (plan["value_ms"], "given"))
        self.assertEqual(again["devices"], plan["devices"])
        # As the authors' programs write them.
        theirs = {"maxLoad": -1, "fpgas": [{"nodes": d["nodes"]} for d in plan["devices"] if d["kind"] == "accelerator"],
                  "cpus": [{"nodes": d["nodes"]} for d in plan["devices"] if d["kind"] == "cpu"]}
        given = self.put("theirs.json", json.dumps(theirs))
        self.assertEqual(self.plan(BRANCHES, "--placement", given)["devices"], plan["devices"])
        latency = self.plan(BRANCHES, "--placement", given, "--objective", "latency")
        self.assertGreater(latency["value_ms"], plan["value_ms"])

    def test_inspect(self):
        path = self.folder / "plan.json"
        self.ask(BRANCHES, "-o", path)
        plan = json.loads(path.read_text())
        document = json.loads(run("automap-inspect", path, "--json").stdout)
        if jsonschema:
            jsonschema.validate(document, INSPECT)
        self.assertEqual((document["kind"], document["plan_kind"]), ("plan", "placement"))
        self.assertEqual(document["value_ms"], plan["value_ms"])
        self.assertEqual([d["nodes"] for d in document["devices"]], [len(d["nodes"]) for d in plan["devices"]])
        text = run("automap-inspect", path).stdout
        for part in ("placement on 4 devices", "contiguous", "accelerator 3"):
            self.assertIn(part, text)
        plan["devices"][0]["kind"] = "gpu"
        self.assert_fails(run("automap-inspect", self.put("bad.json", json.dumps(plan))), 3, "gpu")

    def test_the_machine_can_be_changed(self):
        values = [self.plan(TRAINING, "--accelerators", k, "--memory", "off")["value_ms"] for k in range(1, 6)]
        self.assertEqual(values, sorted(values, reverse=True))
        self.assertGreater(values[0], values[3])
        plan = self.plan(BRANCHES, "--accelerators", "0", "--cpus", "2")
        self.assertEqual([d["kind"] for d in plan["devices"]], ["cpu", "cpu"])
        free = self.plan(BRANCHES, "--transfer-scale", "0")
        self.assertEqual([d["in_ms"] + d["out_ms"] for d in free["devices"]], [0] * 4)

    def test_algorithms(self):
        best = self.plan(BRANCHES)["value_ms"]
        for algorithm in ("dp", "dpl", "greedy", "local-search", "pipedream"):
            plan = self.plan(BRANCHES, "--algorithm", algorithm)
            self.assertEqual(plan["algorithm"], algorithm)
            if plan["contiguous"]:
                self.assertGreaterEqual(plan["value_ms"], best)
        self.assertEqual(self.plan(BRANCHES, "--max-ideals", "5")["planner"], "dpl")

    def test_report(self):
        text = self.ask(BRANCHES).stdout
        for part in ("26 nodes on 3 accelerators", "accelerator 3", "CPU core 1", "contiguous", "none is better", "ideals"):
            self.assertIn(part, text)
        self.assertIn("Latency", self.ask(BRANCHES, "--objective", "latency", "--algorithm", "dp").stdout)

    def test_integer_programmes(self):
        result = run("automap-search", "placement", BRANCHES, "--algorithm", "milp-noncontiguous", "--json")
        if result.returncode == 2 and "solver" in result.stderr:
            self.skipTest("the solver CBC is not there: " + result.stderr.splitlines()[0])
        plan = json.loads(result.stdout)  # nothing of the solver's is on standard output
        self.assertLessEqual(plan["value_ms"], self.plan(BRANCHES)["value_ms"])
        self.assertEqual(plan["bound_of"], "all placements")
        # Out of time: the best so far and a bound, soon (only a hanging one takes longer than a minute of the clock).
        start = time.monotonic()
        late = self.plan(BRANCHES, "--algorithm", "milp", "--objective", "latency", "--time", "1s", "--gap", "0")
        self.assertLess(time.monotonic() - start, 300)
        self.assertLessEqual(late["lower_bound_ms"], late["value_ms"])

    def test_models(self):
        model = FIXTURES / "t5_6_6.hlo.gz"
        operators = self.plan(model, "--cluster", "config-a")
        self.assertEqual((operators["granularity"], operators["accelerators"], operators["cpus"]), ("operators", 16, 0))
        self.assertNotIn("pipeline", operators)
        layers = self.plan(model, "--cluster", "config-a", "--granularity", "layers")
        for plan in (operators, layers):
            names = [name for device in plan["devices"] for name in device[plan["granularity"]]]
            instructions = [name for device in plan["devices"] for name in device["instructions"]]
            # Forward and backward are together.
            self.assertEqual(2 * len(names), sum(len(device["nodes"]) for device in plan["devices"]))
            # A function that is called in several places has its instructions in each.
            self.assertGreater(len(set(instructions)), 1000)
        self.assertIn("decoder/layer/5", [name for device in layers["devices"] for name in device["layers"]])
        pipeline = layers["pipeline"]
        self.assertEqual(len(pipeline["cuts"]) + 1, len(pipeline["accelerators"]))
        self.assertEqual(sorted(pipeline["cuts"]), pipeline["cuts"])
        text = self.ask(model, "--granularity", "layers", "--accelerators", "2").stdout
        for part in ("As pipeline  2 stages", "accelerator 2", "decoder/layer/"):
            self.assertIn(part, text)
        # Faster transfers, never a worse placement.
        fast = self.plan(model, "--granularity", "layers", "--transfer-gbytes-per-s", "1000")
        self.assertLess(fast["value_ms"], layers["value_ms"])

    def test_profiles(self):
        profile = self.folder / "vgg.csv"
        run("automap-profile", FIXTURES / "vgg19.hlo.gz", "-o", profile)
        plan = self.plan(profile, "--cluster", "config-a")
        self.assertEqual(plan["granularity"], "layers")
        self.assertEqual(plan["value_ms"], self.plan(FIXTURES / "vgg19.hlo.gz", "--granularity", "layers")["value_ms"])
        self.fails(2, profile, "--granularity", "operators", says=["vgg.csv is a profile", "--granularity layers"])
        self.fails(2, profile, "--device", "a100-40gb", says=["--device", "is a profile already"])

    def test_a_workload_that_was_saved_is_read_again(self):
        for options in (("--granularity", "layers"), ("--granularity", "operators", "--accelerators", "3", "--cpus", "1", "--memory", "4GiB")):
            saved, path = self.folder / "workload.json", self.folder / "plan.json"
            first = self.plan(FIXTURES / "vgg19.hlo.gz", *options, "--save-workload", saved, "-o", path)
            again = self.plan(saved)
            self.assertAlmostEqual(again["value_ms"], first["value_ms"], delta=1e-9 * first["value_ms"])
            self.assertEqual((again["accelerators"], again["cpus"]), (first["accelerators"], first["cpus"]))
            # A plan of the model is one of its workload, too.
            self.assertAlmostEqual(self.plan(saved, "--placement", path)["value_ms"], first["value_ms"], delta=1e-9 * first["value_ms"])

    def test_models_that_cannot_be_placed(self):
        self.fails(2, BRANCHES, "--cluster", "config-a", says=["--cluster is for models", "branches.json is a workload"])
        self.fails(2, FIXTURES / "tiny_mlp.hlo", "--transfer-scale", "2", says=["--transfer-scale is for workloads"])
        self.fails(2, FIXTURES / "tiny_mlp.hlo", "--granularity", "words", says=["words", "operators"])
        self.fails(2, FIXTURES / "tiny_mlp.hlo", "--objective", "latency", says=["backward"])
        self.fails(2, FIXTURES / "tiny_mlp.hlo", "--cluster", "config-q", says=["config-q"])
        self.fails(3, self.put("cut.hlo", "HloModule m\nENTRY"), says=["cut.hlo"])
        self.fails(4, FIXTURES / "vgg19.hlo.gz", "--memory", "100MiB", "--save-workload", "out.json", says=["--memory"])

    def test_programmes_that_end_badly(self):
        result = run("automap-search", "placement", BRANCHES, "--algorithm", "milp", "--accelerators", "1", "--cpus", "1", "--memory", "1MiB",
                     "--json")
        if result.returncode == 2 and "solver" in result.stderr:
            self.skipTest("the solver CBC is not there: " + result.stderr.splitlines()[0])
        # With a CPU core there is always a placement; without one, and with too little memory, none.
        self.assertEqual(result.returncode, 0, result.stderr)
        self.fails(4, TRAINING, "--algorithm", "milp", "--accelerators", "2", "--cpus", "0", "--memory", "1500MiB", says=["fit"])

    def test_without_a_solver(self):
        # Found before the real one, and none.
        (self.folder / "libCbcSolver.so.3").write_bytes(b"no library")
        hidden = environment(LD_LIBRARY_PATH=str(self.folder))
        result = run("automap-search", "placement", BRANCHES, "--algorithm", "milp", env=hidden)
        self.assert_fails(result, 2, "solver CBC", "install_dependencies.sh --milp")
        # Everything else goes on without it.
        auto = run("automap-search", "placement", BRANCHES, env=hidden)
        self.assertEqual(auto.returncode, 0, auto.stderr)

    def scotch(self, *lines):
        """An environment whose only program is a Scotch of these shell commands; none of them: none."""
        if lines:
            self.put("scotch_gpart", "\n".join(["#!/bin/sh", *lines]) + "\n").chmod(0o755)
        return environment(PATH=str(self.folder))

    @unittest.skipUnless(shutil.which("scotch_gpart"), "Scotch is not installed (no scotch_gpart in PATH): it placed nothing")
    def test_scotch(self):
        first, second = (self.plan(BRANCHES, "--algorithm", "scotch") for _ in range(2))
        self.assertEqual(first["devices"], second["devices"])
        self.assertEqual(first["planner"], "scotch")
        self.assertFalse(first["proven"])
        # What it cannot know is said.
        self.fails(4, TRAINING, "--algorithm", "scotch", "--cpus", "1", "--memory", "1MiB", "-o", "out.json",
                   says=["scotch does not heed memory", "does not fit: ", "local-search"])

    def test_without_scotch(self):
        self.assert_fails(run("automap-search", "placement", BRANCHES, "--algorithm", "scotch", env=self.scotch()), 2,
                          "Scotch is not installed", "apt-get install scotch", "install_dependencies.sh --milp")
        auto = run("automap-search", "placement", BRANCHES, env=self.scotch())
        self.assertEqual(auto.returncode, 0, auto.stderr)

    def test_a_scotch_that_is_broken(self):
        def asked(*lines, options=()):
            return run("automap-search", "placement", BRANCHES, "--algorithm", "scotch", *options, env=self.scotch(*lines), cwd=self.folder)
        self.assert_fails(asked("echo out of luck >&2", "exit 3"), 3, "scotch_gpart ended with exit code 3", "out of luck", "Scotch 7")
        for answer in ("echo hello", "echo 1; echo 0 0", "while :; do echo 1 1; done", ":"):
            self.assert_fails(asked(answer), 3, "scotch_gpart wrote no placement")
        # Longer than run() waits for whoever waits for it.
        self.assert_fails(asked("exec /bin/sleep 100000", options=["--time", "1s"]), 4, "no placement was found in time", "--time")
        self.assertEqual(self.leftovers(), ["scotch_gpart"])

    def test_bad_input(self):
        def changed(change):
            document = json.loads(BRANCHES.read_text())
            change(document)
            return self.put("bad.json", json.dumps(document))
        self.fails(3, self.put("empty", ""), says=["empty"])
        self.fails(3, self.put("cut.json", BRANCHES.read_text()[:900]), says=["cut.json:"])
        self.fails(3, self.folder / "none.json", says=["none.json"])
        cycle = changed(lambda d: d["edges"].append({"sourceId": 25, "destId": 0, "cost": 0}))
        self.fails(3, cycle, "-o", "out.json", says=["cycle", "(block0/join) -> "])
        self.fails(3, changed(lambda d: d["nodes"][3].update(fpgaLatency=-1)), says=["nodes[3].fpgaLatency", "-1"])
        self.fails(4, BRANCHES, "--cpus", "0", says=["node 0 (decode) runs on no accelerator", "--cpus"])
        self.fails(4, TRAINING, "--cpus", "0", "--memory", "200MiB", says=["--memory"])
        self.fails(2, TRAINING, "--objective", "latency", says=["backward"])
        self.fails(2, BRANCHES, "--objective", "latency", "--algorithm", "local-search", says=["latency"])
        self.fails(2, BRANCHES, "--algorithm", "dpp", says=["dpp"])
        self.fails(2, BRANCHES, "--memory", "much", says=["--memory"])
        self.fails(4, BRANCHES, "--algorithm", "dp", "--max-ideals", "5", says=["more than 5 ideals", "dpl"])
        other = self.put("other.json", json.dumps({"fpgas": [{"nodes": [0, 99]}], "cpus": []}))
        self.fails(3, BRANCHES, "--placement", other, says=["fpgas[0].nodes[1]", "99"])
        self.fails(2, "-", "--placement", "-", says=["standard input"])

    @unittest.skipUnless(CORPUS, "AUTOMAP_CORPUS is not set: no workload of the paper was placed")
    def test_a_workload_of_the_paper(self):
        result = self.ask(Path(CORPUS) / "dnn-partitioning/throughput/layer_bert24_inference.json", "--json")
        self.assertAlmostEqual(json.loads(result.stdout)["value_ms"], 17.7899, delta=1e-4)
        self.assertIn("seconds", result.stderr)


if __name__ == "__main__":
    unittest.main()
