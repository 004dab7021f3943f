"""Every plan can be run as it is printed: whole samples, no idle stage, and the step that the file itself comes to."""

import hashlib
import json
import os
import unittest

from plan_replay import ALTERNATING, replay_ms
from plan_lists import listed
from programs import FIXTURES, ProgramTest, profile_csv, run

CLUSTERS = ("config-a", "config-b", "config-c", "h100-2x8", "h100-4x8", "a100-4x8")
MODELS = sorted(p.name for p in FIXTURES.iterdir() if p.name.endswith((".hlo", ".hlo.gz")) and ".stripped" not in p.name)
# All pairs take minutes: AUTOMAP_ALL_PLANS=1 plans them all with the default effort.
ALL = os.environ.get("AUTOMAP_ALL_PLANS", "") not in ("", "0")


class Runnable(ProgramTest):
    def check(self, plan, samples=None):
        """What is true of a plan that somebody could run."""
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
            if plan["schedule"] in (*ALTERNATING, "eager"):
                self.assertLessEqual(stage["in_flight"], before)
            self.assertLessEqual(stage["memory_bytes"], stage["capacity_bytes"])
            self.assertAlmostEqual(sum(stage["memory"].values()), stage["memory_bytes"], delta=8)
            before = stage["in_flight"]
        self.assertAlmostEqual(replay_ms(plan), plan["simulated_step_ms"], delta=1e-6 * plan["simulated_step_ms"])

    def plan(self, model, *arguments):
        result = run("automap-infer", model, "--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return listed(json.loads(result.stdout))

    def test_fixtures_on_clusters(self):
        for i, model in enumerate(MODELS):
            # One cluster for each model, all of them for all models when asked for.
            for cluster in CLUSTERS if ALL else (CLUSTERS[i % len(CLUSTERS)],):
                with self.subTest(model=model, cluster=cluster):
                    result = run("automap-infer", FIXTURES / model, "--cluster", cluster, "--json",
                                 *(() if ALL else ("--effort", "quick")))
                    if result.returncode == 4:
                        self.assertIn("fits", result.stderr)
                        continue
                    self.assertEqual(result.returncode, 0, result.stderr)
                    plan = json.loads(result.stdout)
                    self.assertEqual(plan["schema"], "automap.plan/3")
                    self.check(listed(plan))

    def test_ordered_schedules(self):
        """Each that is named is the plan's, whoever made the module; its file scores as it says, and only whole lists do."""
        for name in ("eager", "interleaved", "searched", "zb-h1", "zb-v"):
            model = FIXTURES / ("transformer_bf16.hlo.gz" if name.startswith("zb") else "tiny_mlp.hlo")
            with self.subTest(schedule=name):
                path = self.folder / f"{name}.json"
                done = run("automap-infer", model, "--cluster", "config-a", "--effort", "quick", "--schedule", name, "-o", path,
                           *(("--batch", "64") if name.startswith("zb") else ()))
                self.assertEqual(done.returncode, 0, done.stderr)
                plan = json.loads(path.read_text())
                self.assertEqual(plan["schedule"]["name"], name)
                self.check(listed(plan))
                again = run("automap-infer", model, "--cluster", "config-a", "--plan", path, "--json")
                self.assertEqual(json.loads(again.stdout)["simulated_step_ms"], plan["simulated_step_ms"])
        plan = json.loads((self.folder / "searched.json").read_text())
        first, *others = plan["schedule"]["order"]
        kept = {"order": [first, *others]}
        for change, says in (({"order": [first.replace("B", "G", 1), *others]}, "expected F, B or W"),
                             ({"order": [first.rsplit(" ", 1)[0], *others]}, "is missing"),
                             ({"order": [first + " F1.1", *others]}, "stands twice"),
                             ({"order": others}, "one for each"), ({"chunks": 65}, "chunks"), ({"placement": "x"}, "placement"),
                             ({"name": "interleaved", "split_backward": True, **kept}, "one pass"),
                             ({"name": "zb-h1", **kept}, "zb-h1")):
            given = self.put("wrong.json", json.dumps({**plan, "schedule": {**plan["schedule"], **change}}))
            self.assert_fails(run("automap-infer", FIXTURES / "tiny_mlp.hlo", "--cluster", "config-a", "--plan", given), 3, "wrong.json", says)
        self.assert_fails(run("automap-infer", FIXTURES / "tiny_mlp.hlo", "--cluster", "config-a", "--schedule", "searched", "--explore", "off"), 2,
                          "--explore off")

    def test_eager_keeps_no_more_in_flight_than_its_step_needs(self):
        # Stages alike: 1F1B's step, with as many in flight; memory would hold all 32.
        ask = (self.put("model.csv", profile_csv(16, a_bytes=1.0)), "--cluster", "config-a", "--stages", 4, "--batch", 32,
               "--micro-batches", 32, "--max-width", 1)
        eager, usual = (self.plan(*ask, "--schedule", name) for name in ("eager", "1f1b"))
        self.assertAlmostEqual(eager["simulated_step_ms"], usual["simulated_step_ms"], delta=0.002 * usual["simulated_step_ms"])
        self.assertLessEqual(max(eager["in_flight"]), 8)

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
                (("--layout", "dp=8,pp=4"), ("32 devices", "16", "dp=8,pp=1 would do")),
                (("--layout", "dp=1,pp=30"), ("30 devices", "dp=1,pp=1 would do")),
                (("--layout", "dp=2,pp=2,tp=2"), ("tp=2",)),
                (("--layout", "dp=two"), ("dp", "two")),
                (("--layout", "dq=2"), ("dq", "known")),
                (("--layout", "dp=2,dp=4"), ("twice",)),
                (("--layout", "dp=2,"), ("'' is no KEY=VALUE",)),
                (("--stages", 3, "--max-stages", 2), ("--stages 3 is above --max-stages 2", "drop one")),
                (("--layout", "dp=3,pp=1", "--batch", 32), ("3 replicas do not divide a batch of 32", "30 or 33")),
                (("--batch", 1000000, "--micro-batch", 1), ("1000000 micro-batches", "65536", "--micro-batch of 16")),
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
        def minimal(**more):
            return json.dumps({"cuts": [30], "device_cuts": [8], **more})
        for text, parts in ((json.dumps({"cuts": [30]}), ("device_cuts",)), ("{", ("JSON", "cuts and device_cuts")),
                            (json.dumps({"cuts": [60], "device_cuts": [8]}), ("cuts",)),
                            (json.dumps({"cuts": [30, 20], "device_cuts": [8, 16]}), ("cuts: found 20 behind 30", "rise")),
                            (json.dumps({"cuts": [30], "device_cuts": [8, 9]}), ("device_cuts: found 2", "expected 1")),
                            (json.dumps({"schema": "mine/1", "cuts": [30], "device_cuts": [8]}), ("mine/1", "automap.plan/3")),
                            (minimal(in_flight=[1, 2]), ("in_flight: found 2 at stage 2",)),
                            (minimal(in_flight=[1]), ("in_flight: found 1 entry, expected 2",)),
                            (minimal(in_flight=[9, 1], micro_batches=8), ("in_flight: found 9", "at most the 8 micro_batches")),
                            (minimal(in_flight=[9, 1]), ("in_flight: found 9", "at most the 4 micro-batches")),
                            (minimal(in_flight=[3, 1], schedule="1f1b", micro_batches=4), ("in_flight", "[3, 1]", "[2, 1]")),
                            (minimal(schedule="2f2b"), ("schedule: found", "2f2b", "1f1b, 1f1b-overlap, adaptive, gpipe")),
                            (minimal(recompute=["none", "layr"]), ("recompute: found", "layr", "layer")),
                            (minimal(recompute=["none"]), ("recompute: found 1 entry, expected 2",)),
                            (minimal(zero=[0, 4]), ("zero: found 4", "0 to 3")),
                            (minimal(micro_batch_samples=2.5), ("micro_batch_samples: found 2.5", "whole number")),
                            (minimal(gradient_sync="never"), ("gradient_sync: found", "never", "overlap")),
                            (minimal(provenance={"option_optimizer": "perhaps"}), ("optimizer", "perhaps", "on or off")),
                            (minimal(micro_batchs=2), ("micro_batchs: unknown key", "did you mean micro_batches?")),
                            (minimal(devices=100), ("100 devices", "24")),
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
        alike = self.put("alike.csv", profile_csv(60, c_ms=2.0))
        result = run("automap-infer", alike, "--cluster", "config-b", "--plan", path)
        self.assert_fails(result, 3, "another model", hashlib.sha256(model.read_bytes()).hexdigest()[:12],
                          hashlib.sha256(alike.read_bytes()).hexdigest()[:12])
        del plan["provenance"]["model_sha256"]
        path.write_text(json.dumps(plan))
        self.plan(alike, "--cluster", "config-b", "--plan", path)

    def test_a_given_plan_is_counted_as_it_was_made(self):
        model = self.put("model.csv", profile_csv(60, c_ms=[1 + (i * 7919) % 13 for i in range(60)]))
        common = (model, "--cluster", "config-b")
        path = self.folder / "plan.json"
        for made in (("--gradient-sync", "after"), ("--replicas", "fractional", "--micro-batch", 3), ("--optimizer", "off"),
                     ("--replicas", "equal"), ("--bucket-mib", 1), ("--memory-reserve", 0), ("--state-factor", 8),
                     ("--value", "paper"), ("--schedule", "gpipe"), ("--zero", 1, "--stages", 2)):
            with self.subTest(made=made):
                result = run("automap-infer", *common, "--micro-batches", 8, "--effort", "quick", *made, "--json")
                self.assertEqual(result.returncode, 0, result.stderr)
                plan = listed(json.loads(result.stdout))
                path.write_text(result.stdout)  # with the devices that it stands on
                again = self.plan(*common, "--plan", path)
                for key in ("simulated_step_ms", "step_ms"):
                    self.assertAlmostEqual(again[key], plan[key], delta=1e-9 * plan[key])
                for key in ("cuts", "device_cuts", "in_flight", "schedule", "replicas", "gradient_sync", "batch"):
                    self.assertEqual(again[key], plan[key])
                self.assertEqual([s["memory_bytes"] for s in again["stages"]], [s["memory_bytes"] for s in plan["stages"]])
                self.assertFalse([w for w in again["warnings"] if "counted with" in w])
        # The command line goes first, and that is said.
        plan = self.plan(*common, "--batch", 64, "--stages", 2)
        path.write_text(json.dumps(plan))
        for asked, key, value in ((("--gradient-sync", "after"), "gradient_sync", "after"), (("--schedule", "gpipe"), "schedule", "gpipe"),
                                  (("--batch", 128), "batch", 128), (("--micro-batches", 2), "micro_batches", 2)):
            with self.subTest(asked=asked):
                other = self.plan(*common, "--plan", path, *asked)
                self.assertEqual(other[key], value)
                self.assertTrue([w for w in other["warnings"] if "counted with" in w], other["warnings"])
        other = self.plan(*common, "--plan", path, "--zero", 3)
        self.assertEqual([s["zero"] for s in other["stages"]], [3, 3])
        self.assertTrue([w for w in other["warnings"] if "--zero" in w], other["warnings"])
        # A file of version 1 was made with the papers' assumptions.
        papers = self.plan(*common, "--batch", 64, "--stages", 2, "--replicas", "fractional", "--gradient-sync", "after", "--optimizer",
                           "off", "--memory-reserve", 0, "--schedule", "1f1b", "--zero", 0, "--recompute", "none")
        old = {k: v for k, v in papers.items() if k not in ("batch", "micro_batch_samples", "replicas", "gradient_sync", "bounds")}
        new = ("replicas", "width", "samples", "zero", "recompute", "in_flight", "forward_ms", "backward_ms", "sync", "optimizer_ms",
               "memory")
        old.update(schema="automap.plan/1", provenance={}, stages=[{k: v for k, v in s.items() if k not in new} for s in papers["stages"]])
        path.write_text(json.dumps(old))
        again = self.plan(*common, "--plan", path)
        self.assertAlmostEqual(again["simulated_step_ms"], papers["simulated_step_ms"], delta=1e-9 * papers["simulated_step_ms"])

    def test_no_option_is_ignored(self):
        model = self.put("model.csv", profile_csv(64, layer=[f"h/{i // 4}" for i in range(64)]))
        plan = self.put("plan.json", json.dumps({"cuts": [30], "device_cuts": [8]}))
        common = ("automap-infer", model, "--cluster", "config-a", "--batch", 64)
        modes = {"--plan": ("--plan", plan), "--layout": ("--layout", "dp=4,pp=4"), "--sweep": ("--sweep",)}
        for arguments in (("--planner", "exact"), ("--objective", "value"), ("--effort", "quick"), ("--beam", 4), ("--grid", 64),
                          ("--all-planners",), ("--planner-table",), ("--no-refine",)):
            for mode in modes.values():
                self.assert_fails(run(*common, *mode, *arguments), 2, mode[0], f"drop {arguments[0]}")
        for mode in ("--plan", "--layout"):
            for arguments in (("--stages", 2), ("--max-stages", 4), ("--time-limit", "1s")):
                self.assert_fails(run(*common, *modes[mode], *arguments), 2, mode, f"drop {arguments[0]}")
            self.assert_fails(run(*common, *modes[mode], "--schedule", "auto"), 2, "1f1b-overlap")
        self.assert_fails(run(*common, *modes["--plan"], "--replicas", "equal"), 2, "drop --replicas")
        self.assert_fails(run(*common, *modes["--layout"], "--replicas", "fractional"), 2, "drop --replicas")
        self.assert_fails(run(*common, "--layout", "dp=4,pp=4,zero=1", "--zero", 2), 2, "contradicts", "--zero")
        layout = self.plan(model, "--cluster", "config-a", "--batch", 64, "--layout", "dp=4,pp=4", "--zero", 2, "--schedule", "gpipe")
        self.assertEqual((layout["stages"][0]["zero"], layout["schedule"]), (2, "gpipe"))

        def sweep(*arguments):
            result = run(*common, "--sweep", "--json", *arguments)
            self.assertEqual(result.returncode, 0, result.stderr)
            return json.loads(result.stdout)["layouts"]
        every = sweep()
        for arguments, kept in ((("--stages", 4), lambda row: row["pp"] == 4), (("--max-stages", 4), lambda row: row["pp"] <= 4),
                                (("--zero", 1), lambda row: row["zero"] == 1), (("--recompute", "layer"), lambda row: row["recompute"] == "layer"),
                                (("--micro-batch", 16), lambda row: row["dp"] * row["micro_batch_size"] == 16),
                                (("--micro-batches", 8), lambda row: row["micro_batches"] == 8)):
            with self.subTest(arguments=arguments):
                rows = sweep(*arguments)
                self.assertTrue(rows)
                self.assertCountEqual([row["layout"] for row in rows], [row["layout"] for row in every if kept(row)])
        self.assertEqual({row["schedule"] for row in sweep("--schedule", "auto")}, {"adaptive", "1f1b", "1f1b-overlap", "gpipe", "eager", "interleaved"})
        self.assertEqual({row["schedule"] for row in sweep("--schedule", "interleaved", "--stages", 4)}, {"interleaved"})
        self.assert_fails(run(*common, "--sweep", "--schedule", "searched"), 2, "--sweep", "a layout says no lists")
        gpt2 = (FIXTURES / "gpt2.hlo.gz", "--cluster", "config-a", "--max-width", "1")
        swept = run("automap-infer", *gpt2, "--sweep", "--schedule", "zb-v", "--stages", "2", "--json")
        row = json.loads(swept.stdout)["layouts"][0]
        self.assertIn("schedule=zb-v", row["layout"])
        again = run("automap-infer", *gpt2, "--layout", row["layout"], "--batch", str(row["dp"] * row["micro_batch_size"] * row["micro_batches"]), "--json")
        self.assertEqual(json.loads(again.stdout)["simulated_step_ms"], row["simulated_step_ms"], again.stderr)
        self.assert_fails(run(*common, "--sweep", "--stages", 3), 2, "3 stages", "1, 2, 4, 8, 16")

    def test_a_sweep_of_a_large_batch_looks_at_divisors_and_at_the_clock(self):
        model = self.put("model.csv", profile_csv(64, layer=[f"h/{i // 4}" for i in range(64)]))
        common = ("automap-infer", model, "--cluster", "config-a", "--batch", 1 << 30, "--micro-batches", 1 << 14, "--sweep", "--json")
        sizes = {row["micro_batch_size"] * row["dp"] for row in json.loads(run(*common, "--schedule", "1f1b").stdout)["layouts"]}
        self.assertEqual(sizes, {1 << 16})
        result = run(*common, "--time-limit", "1ms")
        sweep = json.loads(result.stdout)
        self.assertEqual(result.returncode, 0)
        self.assertGreaterEqual(len(sweep["layouts"]), 1)
        self.assertIn("the time was over", result.stderr)
        self.assertGreater(sweep["left_out"], 0)

    def test_few_samples_use_few_devices(self):
        model = self.put("model.csv", profile_csv(60, c_ms=[1 + (i * 7919) % 13 for i in range(60)]))
        for cluster, devices in (("config-a", 16), ("config-b", 24)):
            for batch in (1, 2, 3, 5, 7):
                for stages in ((), ("--stages", 3)):
                    with self.subTest(cluster=cluster, batch=batch, stages=stages):
                        plan = self.plan(model, "--cluster", cluster, "--batch", batch, "--effort", "quick", *stages)
                        self.check(plan, batch)
                        if plan["devices"] < devices:
                            self.assertTrue([w for w in plan["warnings"] if f"uses {plan['devices']} of {devices} devices" in w])
        plan = self.plan(model, "--cluster", "config-a", "--batch", 256, "--micro-batch", 1, "--effort", "quick")
        self.check(plan, 256)
        # A stage too short for a pipeline of all devices: work in few instructions.
        lump = self.put("lump.csv", profile_csv(20, c_ms=[100.0 if i == 10 else 0.01 for i in range(20)]))
        for batch in (1, 2, 3):
            plan = self.plan(lump, "--cluster", "config-b", "--batch", batch)
            self.check(plan, batch)
        equal = self.plan(model, "--cluster", "config-b", "--batch", 2, "--replicas", "equal")
        self.check(equal, 2)

    def test_bounds_say_which_numbers_of_devices_they_are_about(self):
        """A batch that no number near all devices divides: fewer are looked at, and the certificate covers no others."""
        model = self.put("model.csv", profile_csv(60, c_ms=[1 + (i * 7919) % 13 for i in range(60)]))
        plan = self.plan(model, "--cluster", "config-c", "--batch", 37, "--effort", "quick")
        self.check(plan, 37)
        bounds = plan["bounds"]
        looked_at = bounds["devices"] + bounds["devices_in_part"]
        self.assertIn(plan["devices"], looked_at)
        self.assertIn(16, looked_at)  # sixteen stages of one device
        for stages in (2, 8, 16):
            narrow = run("automap-infer", model, "--cluster", "config-c", "--batch", 37, "--stages", stages, "--json", "--effort", "quick")
            if narrow.returncode == 4:
                continue
            narrow = json.loads(narrow.stdout)
            if narrow["devices"] in bounds["devices"]:
                self.assertGreaterEqual(narrow["step_ms"], bounds["value"] * (1 - 1e-9))
                self.assertGreaterEqual(narrow["simulated_step_ms"], bounds["simulated"] * (1 - 1e-9))
        report = run("automap-infer", model, "--cluster", "config-c", "--batch", 37, "--effort", "quick", "--details").stdout
        self.assertRegex(report, r"Lower bound .*: no plan (?:of one width )?on [\d, or]+ devices?,? .*(?:has a smaller V|is simulated shorter)")
        # All devices share the micro-batches of the usual batch.
        self.assertEqual(self.plan(model, "--cluster", "config-a", "--batch", 256, "--micro-batch", 16)["bounds"]["devices"], [16])

    def test_slower_servers_in_front_are_said(self):
        servers = [{"devices": 4, "intra_gbytes_per_s": 100, "inter_gbytes_per_s": 10, "device": name} for name in ("v100-16gb", "h100")]
        model = FIXTURES / "vgg19.hlo.gz"
        for order, said in ((servers, True), (servers[::-1], False)):
            cluster = self.put("mixed.json", json.dumps({"name": "mixed", "servers": order}))
            result = run("automap-infer", model, "--cluster", cluster, "--effort", "quick")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual("v100-16gb in front of h100" in result.stderr, said, result.stderr)

    def test_kernels_of_attention_that_not_all_types_have(self):
        """What it keeps is as written on all: a premise of what is proven, and what fits on the others alone is said."""
        servers = [{"devices": 4, "intra_gbytes_per_s": 200, "inter_gbytes_per_s": 10, "device": name} for name in ("a100-80gb", "v100-16gb")]
        asked = (FIXTURES / "transformer_bf16.hlo.gz", "--batch", 512, "--effort", "quick", "--stages", 1, "--max-width", 1,
                 "--micro-batch", 128, "--recompute", "none")
        def cluster(name, some, **more):
            return self.put(name, json.dumps({"name": "some", "servers": some, **more}))
        # A replica of 32 samples keeps 1.5 GiB as written, 1.25 GiB in kernels.
        memory = {"devices": {server["device"]: {"memory_gib": 1.5} for server in servers}}
        both, one = cluster("both.json", servers, **memory), cluster("one.json", servers[:1], **memory)
        premise = "what attention keeps is counted as written on every device"
        plan, alone = self.plan(*asked, "--cluster", both), self.plan(*asked, "--cluster", one)
        self.assertIn(premise, plan["bounds"]["premises"]["rules"])
        self.assertNotIn(premise, alone["bounds"]["premises"]["rules"])
        self.assertEqual(plan["bounds"]["relaxed"][0], {"rule": premise, "options": "a cluster of a100-80gb alone",
                                                        "simulated_step_ms": alone["simulated_step_ms"]})
        self.assertLess(alone["simulated_step_ms"], 0.98 * plan["simulated_step_ms"])
        report = run("automap-infer", *asked, "--cluster", both)
        self.assertIn("no kernels of libraries for attention are known for v100-16gb", report.stderr)
        self.assertRegex(report.stdout, r"Try +a cluster of a100-80gb alone: ")
        self.assertRegex(" ".join(report.stdout.split()), rf"Proven no plan of the kinds searched [^(]*\([^)]*{premise}")
        # Where memory is no matter, the devices that have kernels are as quick among others as alone.
        both, one = cluster("both.json", servers), cluster("one.json", servers[:1])
        plan, alone = self.plan(*asked, "--cluster", both), self.plan(*asked, "--cluster", one)
        self.assertEqual(plan["simulated_step_ms"], alone["simulated_step_ms"])
        self.assertEqual(plan["bounds"]["relaxed"], alone["bounds"]["relaxed"])

    def servers(self, *kinds):
        servers = [{"devices": devices, "device": device, "intra_gbytes_per_s": inside, "inter_gbytes_per_s": 3} for devices, device, inside in kinds]
        return self.put("servers.json", json.dumps({"name": "some", "servers": servers, "intra_latency_us": 3, "inter_latency_us": 10}))

    def test_links_inside_servers_that_differ(self):
        """A replica of several devices takes as long as its own server's links make it, whichever server is named first."""
        model = FIXTURES / "transformer_bf16.hlo.gz"
        fast, slow = (8, "a100-80gb", 300), (8, "a100-80gb", 5)
        def step(batch, layout, *kinds):
            return self.plan(model, "--cluster", self.servers(*kinds), "--batch", batch, "--layout", layout)
        both = [step(128, "dp=4,tp=4,micro-batch-size=8", *kinds)["simulated_step_ms"] for kinds in ((fast, slow), (slow, fast))]
        self.assertEqual(*both)
        # The slower one decides; alone the faster one takes less for as many samples on each device.
        halves = [step(64, "dp=2,tp=4,micro-batch-size=8", kind)["simulated_step_ms"] for kind in (fast, slow)]
        self.assertLess(2 * halves[0], halves[1])
        self.assertGreaterEqual(both[0], halves[1])
        across = [step(64, "dp=2,tp=8,micro-batch-size=8", *kinds) for kinds in ((fast, slow), (slow, fast), (fast, fast))]
        self.assertEqual(across[0]["stages"][0]["forward_ms"], across[1]["stages"][0]["forward_ms"])
        self.assertGreater(across[0]["stages"][0]["forward_ms"], 2 * across[2]["stages"][0]["forward_ms"])
        # In a pipeline each stage has its own.
        stages = step(64, "dp=1,pp=2,tp=8,micro-batch-size=8", fast, slow)["stages"]
        same = step(64, "dp=1,pp=2,tp=8,micro-batch-size=8", slow, slow)["stages"]
        self.assertEqual(stages[1]["forward_ms"], same[1]["forward_ms"])
        self.assertLess(stages[0]["forward_ms"], same[0]["forward_ms"] / 2)
        # Plans are the same in either order.
        plans = [self.plan(model, "--cluster", self.servers(*kinds), "--batch", 24, "--schedule", "adaptive")
                 for kinds in (((2, "v100-32gb", 30), (6, "v100-32gb", 130)), ((6, "v100-32gb", 130), (2, "v100-32gb", 30)))]
        self.assertEqual(plans[0]["simulated_step_ms"], plans[1]["simulated_step_ms"])
        alone = self.plan(model, "--cluster", self.servers((6, "v100-32gb", 130)), "--batch", 24, "--schedule", "adaptive")
        self.assertLessEqual(plans[0]["simulated_step_ms"], alone["simulated_step_ms"] * 1.001)

    def test_types_with_fewer_devices_than_a_replica(self):
        for few in ((1, "a10", 30), (2, "v100-32gb", 30)):
            plan = self.plan(FIXTURES / "tiny_mlp.hlo", "--cluster", self.servers((7, "h100", 130), few), "--batch", 64)
            self.check(plan, 64)

    def test_a_layout_is_scored_where_its_width_does_not_pay(self):
        ask = (FIXTURES / "transformer_bf16.hlo.gz", "--cluster", self.servers((8, "v100-32gb", 0.01)), "--batch", 16)
        plan = self.plan(*ask)
        self.assertEqual({stage["width"] for stage in plan["stages"]}, {1})
        path = self.folder / "layout.json"
        layout = self.plan(*ask, "--layout", "dp=1,tp=8,micro-batch-size=4", "-o", path)
        self.assertEqual(layout["stages"][0]["width"], 8)
        self.assertGreater(layout["simulated_step_ms"], plan["simulated_step_ms"])
        self.assertEqual(self.plan(*ask[:3], "--plan", path)["simulated_step_ms"], layout["simulated_step_ms"])

    def test_layouts_in_the_words_that_people_type(self):
        ask = (FIXTURES / "transformer_bf16.hlo.gz", "--cluster", "a100-2x8", "--batch", 64)
        for words, ours in (("mbs=4,dp=2", "micro-batch-size=4,dp=2"), ("fsdp=8,MBS=4", "dp=8,zero=3,micro-batch-size=4"),
                            ("tensor-model-parallel-size=2,pipeline_model_parallel_size=2,micro_batch_size=4,data-parallel-size=2",
                             "tp=2,pp=2,micro-batch-size=4,dp=2"), ("dp=8,cp=1,ep=1,mbs=4,zero_stage=1", "dp=8,micro-batch-size=4,zero=1"),
                            ("dp_replicate=1,dp_shard=8,mbs=4", "dp=8,zero=3,micro-batch-size=4"), ("dp_shard=-1,tp=2,mbs=4", "dp=8,tp=2,zero=3,micro-batch-size=4"),
                            ("dp_replicate=8,dp_shard=1,gas=2", "dp=8,micro-batch-size=4"), ("pp=4,vp=1,mbs=4", "pp=4,micro-batch-size=4")):
            with self.subTest(words):
                self.assertEqual(self.plan(*ask, "--layout", words)["simulated_step_ms"], self.plan(*ask, "--layout", ours)["simulated_step_ms"])
        # As many micro-batches as are said, whatever the batch is.
        plan = self.plan(*ask[:3], "--layout", "dp=8,mbs=4,gradient_accumulation_steps=3")
        self.assertEqual((plan["micro_batches"], plan["micro_batch_samples"]), (3, 32))
        for words, said in (("dp=8,cp=2", "parallelism of sequences is not planned"), ("ep=2", "parallelism of experts is not planned"),
                            ("dp=8,gbs=128", "--batch 128"), ("fsdp=8,dp=2", "dp stands twice"), ("zero=1,fsdp=8", "leave one of them out"), ("fsdp=8,zero=1", "leave one of them out"),
                            ("tp=2,tensor-parallel-size=2", "tp stands twice"), ("dp=8,sp=true", "--sequence-parallel says it"),
                            ("dp_shard=4,dp_replicate=2", "dp=8,zero=3 keeps one part"), ("hsdp=2x4", "(HSDP) are not planned"), ("dp_shard=4,fsdp=4", "dp_shard and fsdp say the same"), ("dp_replicate=2,fsdp=-1", "dp=auto,zero=3"),
                            ("dp_shard=8,dp=2", "dp stands twice"), ("zero=2,dp_shard=8", "dp_shard is dp with zero=3"), ("dp=8,gas=0", "gas is '0'"),
                            ("dq=8", "unknown key 'dq'")):
            with self.subTest(words):
                self.assert_fails(run("automap-infer", *ask, "--layout", words), 2, said)
        self.assert_fails(run("automap-infer", *ask, "--layout", "dp=8,gas=2", "--micro-batches", 4), 2, "leave --micro-batches out")

    def test_a_forward_pass_is_called_one(self):
        result = run("automap-infer", FIXTURES / "vit_forward.hlo.gz", "--cluster", "config-a", "--effort", "quick")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("no backward pass", result.stderr)

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
        text = run("automap-infer", model, *layout, "dp=4,pp=4,micro-batch-size=1", "--details").stdout
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
        for layout, would_do in (("dp=8,pp=4", "dp=4,pp=4"), ("dp=2,pp=40", "dp=1,pp=16"), ("dp=16,pp=2", "dp=8,pp=2")):
            self.assert_fails(run("automap-infer", *common, "--layout", layout), 2, f"{would_do} would do")
            self.plan(*common, "--layout", would_do)
        # Too large for the devices: said, and by how much.
        large = self.put("large.csv", profile_csv(64, layer=[f"h/{i // 4}" for i in range(64)], w_bytes=[4e8] * 64))
        result = run("automap-infer", large, "--cluster", "config-a", "--batch", 64, "--layout", "dp=16,pp=1,micro-batch-size=1")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertRegex(result.stderr, r"lacks [\d.]+ GiB")


if __name__ == "__main__":
    unittest.main()
