"""Every plan can be run as it is printed: whole samples, no idle stage, and the step that the file itself comes to."""

import json
import os
import unittest

from plan_replay import replay_ms
from programs import FIXTURES, ProgramTest, profile_csv, run

CLUSTERS = ("config-a", "config-b", "config-c", "h100-2x8", "h100-4x8", "a100-4x8")
MODELS = sorted(p.name for p in FIXTURES.iterdir() if p.name.endswith((".hlo", ".hlo.gz")) and ".stripped" not in p.name)
# All pairs take minutes: AUTOMAP_ALL_PLANS=1 plans them all with the default effort.
RELEASE = "Release)" in run("automap-infer", "--version").stdout
ALL = os.environ.get("AUTOMAP_ALL_PLANS", "") not in ("", "0")


class Runnable(ProgramTest):
    def check(self, plan, samples=None):
        """What is true of a plan that somebody could run."""
        self.assertEqual(plan["schema"], "automap.plan/2")
        if samples:
            self.assertEqual(plan["batch"], samples)
        self.assertEqual(plan["micro_batch_samples"] * plan["micro_batches"], plan["batch"])
        mean = sum(stage["compute_ms"] for stage in plan["stages"]) / len(plan["stages"])
        before = plan["micro_batches"]
        for stage in plan["stages"]:
            self.assertEqual(stage["replicas"] * stage["width"], stage["devices"])
            self.assertEqual(stage["samples"], int(stage["samples"]))
            self.assertGreaterEqual(stage["samples"], 1)
            self.assertEqual(stage["samples"] * stage["replicas"], plan["micro_batch_samples"])
            self.assertGreaterEqual(stage["compute_ms"], 0.05 * mean)
            self.assertAlmostEqual(stage["forward_ms"] + stage["backward_ms"], stage["compute_ms"], delta=1e-9 * stage["compute_ms"])
            self.assertLessEqual(stage["in_flight"], before)
            self.assertLessEqual(stage["memory_bytes"], stage["capacity_bytes"])
            self.assertAlmostEqual(sum(stage["memory"].values()), stage["memory_bytes"], delta=8)
            before = stage["in_flight"]
        self.assertAlmostEqual(replay_ms(plan), plan["simulated_step_ms"], delta=1e-6 * plan["simulated_step_ms"])

    def plan(self, model, *arguments):
        result = run("automap-infer", model, "--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_fixtures_on_clusters(self):
        # Sanitized programs take ten times as long.
        for i, model in enumerate(MODELS if RELEASE or ALL else MODELS[::5]):
            # One cluster for each model, all of them for all models when asked for.
            for cluster in CLUSTERS if ALL else (CLUSTERS[i % len(CLUSTERS)],):
                with self.subTest(model=model, cluster=cluster):
                    result = run("automap-infer", FIXTURES / model, "--cluster", cluster, "--json",
                                 *(() if ALL else ("--effort", "quick")))
                    if result.returncode == 4:
                        self.assertIn("fits", result.stderr)
                        continue
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.check(json.loads(result.stdout))

    def test_schedules(self):
        model = self.put("model.csv", profile_csv(60, c_ms=[1 + (i * 7919) % 13 for i in range(60)]))
        steps = {}
        for schedule in ("adaptive", "1f1b", "1f1b-overlap", "gpipe"):
            plan = self.plan(model, "--cluster", "config-b", "--batch", 64, "--schedule", schedule)
            self.assertEqual(plan["schedule"], schedule)
            self.check(plan, 64)
            steps[schedule] = plan["simulated_step_ms"]
        self.assertLessEqual(steps["adaptive"], min(steps.values()) * 1.002)

    def test_batches(self):
        model = self.put("model.csv", profile_csv(60))
        common = (model, "--cluster", "config-a")
        self.check(self.plan(*common, "--batch", 48), 48)
        plan = self.plan(*common, "--batch", 48, "--micro-batch", 12)
        self.assertEqual((plan["micro_batch_samples"], plan["micro_batches"]), (12, 4))
        plan = self.plan(*common, "--batch", 48, "--micro-batches", 6)
        self.assertEqual((plan["micro_batch_samples"], plan["micro_batches"]), (8, 6))
        self.assertEqual(self.plan(*common, "--micro-batch", 8, "--micro-batches", 6)["batch"], 48)
        equal = self.plan(*common, "--batch", 64, "--replicas", "equal")
        self.check(equal, 64)
        self.assertEqual(len({stage["devices"] for stage in equal["stages"]}), 1)

    def test_batches_that_do_not_fit_together(self):
        model = self.put("model.csv", profile_csv(20))
        for arguments, parts in (
                (("--batch", 48, "--micro-batch", 10), ("48", "10", "8 or 12")),
                (("--batch", 48, "--micro-batches", 7), ("7 micro-batches", "6 or 8")),
                (("--batch", 48, "--micro-batch", 8, "--micro-batches", 7), ("56", "48")),
                (("--batch", 0), ("batch",)),
                (("--micro-batch", "x"), ("micro-batch", "auto")),
                (("--layout", "dp=8,pp=4"), ("32 devices", "16")),
                (("--layout", "dp=2,pp=2,tp=2"), ("tp=2",)),
                (("--layout", "dp=two"), ("dp", "two")),
                (("--layout", "dq=2"), ("dq", "known")),
                (("--layout", "dp=2,dp=4"), ("twice",)),
                (("--layout", "dp=4,pp=1", "--sweep"), ("exclude",)),
                (("--batch", 16, "--layout", "dp=4,pp=4,micro-batch-size=3"), ("16", "12"))):
            with self.subTest(arguments=arguments):
                self.assert_fails(run("automap-infer", model, "--cluster", "config-a", *arguments), 2, *parts)

    def test_scoring_reproduces_the_plan(self):
        model = self.put("model.csv", profile_csv(60, c_ms=[1 + (i * 7919) % 13 for i in range(60)]))
        common = (model, "--cluster", "config-b", "--batch", 64)
        path = self.folder / "plan.json"
        plan = self.plan(*common)
        path.write_text(json.dumps(plan))
        again = self.plan(model, "--cluster", "config-b", "--plan", path)
        self.assertAlmostEqual(again["simulated_step_ms"], plan["simulated_step_ms"], delta=1e-9 * plan["simulated_step_ms"])
        self.assertEqual(again["in_flight"], plan["in_flight"])
        self.assertEqual(again["planner"], "given")
        self.check(again, 64)
        # A minimal plan, and what is none.
        path.write_text(json.dumps({"cuts": [30], "device_cuts": [8]}))
        minimal = self.plan(*common, "--plan", path, "--micro-batch", 16)
        self.check(minimal, 64)
        for text, parts in ((json.dumps({"cuts": [30]}), ("device_cuts",)), ("{", ("JSON",)),
                            (json.dumps({"cuts": [60], "device_cuts": [8]}), ("cuts",)),
                            (json.dumps({"cuts": [30, 20], "device_cuts": [8, 16]}), ("rise",)),
                            (json.dumps({"cuts": [30], "device_cuts": [8], "in_flight": [1, 2]}), ("in_flight",)),
                            (json.dumps({"cuts": [30], "device_cuts": [7]}), ("7 devices", "samples"))):
            with self.subTest(text=text):
                path.write_text(text)
                self.assert_fails(run("automap-infer", *common, "--plan", path, "--micro-batch", 16), 3, "plan.json", *parts)
        # Files that contradict themselves.
        for change in ({"batch": 65}, {"in_flight": [k + 1 for k in plan["in_flight"]]},
                       {"stages": [{**plan["stages"][0], "recompute": "x"}, *plan["stages"][1:]]},
                       {"stages": [{**plan["stages"][0], "width": 2}, *plan["stages"][1:]]}):
            with self.subTest(change=list(change)):
                path.write_text(json.dumps({**plan, **change}))
                self.assert_fails(run("automap-infer", model, "--cluster", "config-b", "--plan", path), 3, "plan.json")
        # A plan for another model, or for more devices.
        path.write_text(json.dumps(plan))
        other = self.put("other.csv", profile_csv(20))
        self.assert_fails(run("automap-infer", other, "--cluster", "config-b", "--plan", path), 3, "60", "20")
        self.assert_fails(run("automap-infer", model, "--cluster", "h100-1x8", "--plan", path), 3, "devices")

    def test_zero_is_not_free(self):
        """The sync is half as long and the updated weights are gathered behind the optimizer, which nothing hides: sharding it
        saves memory, and no more time than the optimizer takes."""
        model = FIXTURES / "gpt2.hlo.gz"
        steps, memory, optimizer = [], [], []
        for zero in (0, 1):
            plan = self.plan(model, "--cluster", "config-a", "--batch", 64, "--layout", f"dp=16,pp=1,micro-batch-size=4,zero={zero}")
            self.check(plan, 64)
            steps.append(plan["simulated_step_ms"])
            memory.append(plan["stages"][0]["memory"]["slots"])
            optimizer.append(plan["stages"][0]["optimizer_ms"])
        self.assertGreater(optimizer[1], optimizer[0])
        self.assertGreater(steps[1], steps[0] - optimizer[0])
        self.assertLess(memory[1], memory[0] / 8)

    def test_tied_embeddings_are_exchanged(self):
        model = FIXTURES / "gpt2.hlo.gz"
        layout = ("--cluster", "config-a", "--batch", 64, "--layout")
        plan = self.plan(model, *layout, "dp=4,pp=4,micro-batch-size=1")
        self.check(plan, 64)
        exchanged = [stage["shared_gradients_ms"] for stage in plan["stages"]]
        table = 50257 * 768 * 4  # bytes; each holder's server has one port of 3.125 GB/s
        self.assertAlmostEqual(exchanged[0], table / 3.125e6, delta=0.02 * exchanged[0])
        self.assertEqual(exchanged[0], exchanged[3])
        self.assertEqual(exchanged[1:3], [0, 0])
        self.assertEqual([stage["shared_gradients_ms"] for stage in self.plan(model, *layout, "dp=16,pp=1,micro-batch-size=1")["stages"]], [0])
        text = run("automap-infer", model, *layout, "dp=4,pp=4,micro-batch-size=1").stdout
        self.assertRegex(text, r"stages 1 and 4 exchange")

    def test_faster_devices_alone_where_the_others_only_slow_them_down(self):
        servers = [{"count": 1, "devices": 8, "intra_gbytes_per_s": 300, "inter_gbytes_per_s": 50, "device": device}
                   for device in ("h100-80gb", "v100-16gb")]
        mixed = self.put("mixed.json", json.dumps({"schema": "automap.cluster/1", "name": "mixed", "servers": servers}))
        fast = self.put("fast.json", json.dumps({"schema": "automap.cluster/1", "name": "fast", "servers": servers[:1]}))
        model = FIXTURES / "gpt2.hlo.gz"
        both, alone = (self.plan(model, "--cluster", cluster, "--batch", 128, "--effort", "quick") for cluster in (mixed, fast))
        self.assertLessEqual(both["simulated_step_ms"], alone["simulated_step_ms"] * 1.005)
        self.assertLessEqual(both["bounds"]["simulated"], both["simulated_step_ms"])

    def test_layouts_and_sweep(self):
        model = self.put("model.csv", profile_csv(64, layer=[f"h/{i // 4}" for i in range(64)]))
        common = (model, "--cluster", "config-a", "--batch", 64)
        plan = self.plan(*common, "--layout", "dp=4,pp=4,micro-batch-size=2")
        self.check(plan, 64)
        self.assertEqual(plan["cuts"], [16, 32, 48])
        self.assertEqual(plan["device_cuts"], [4, 8, 12])
        self.assertEqual(plan["micro_batch_samples"], 8)
        self.assertEqual(self.plan(*common, "--layout", "dp=4,pp=3,micro-batch-size=2")["cuts"], [24, 44])
        sweep = json.loads(run("automap-infer", *common, "--sweep", "--json").stdout)
        steps = [row["simulated_step_ms"] for row in sweep["layouts"] if row["fits"]]
        self.assertEqual(steps, sorted(steps))
        same = [row for row in sweep["layouts"] if row["layout"] == "dp=4,pp=4,micro-batch-size=2"]
        self.assertAlmostEqual(same[0]["simulated_step_ms"], plan["simulated_step_ms"], delta=1e-9 * plan["simulated_step_ms"])
        best = self.plan(*common, "--effort", "normal")
        self.assertLessEqual(best["simulated_step_ms"], steps[0] * 1.005)
        for row in sweep["layouts"]:
            self.assertEqual(row["dp"] * row["pp"], 16)
            self.assertEqual(row["dp"] * row["micro_batch_size"] * row["micro_batches"], 64)
        # Too large for the devices: said, and by how much.
        large = self.put("large.csv", profile_csv(64, layer=[f"h/{i // 4}" for i in range(64)], w_bytes=[4e8] * 64))
        result = run("automap-infer", large, "--cluster", "config-a", "--batch", 64, "--layout", "dp=16,pp=1,micro-batch-size=1")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertRegex(result.stderr, r"lacks [\d.]+ GiB")


if __name__ == "__main__":
    unittest.main()
