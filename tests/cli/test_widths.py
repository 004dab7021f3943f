"""Replicas of several devices: plans, given plans, layouts, sweeps, and every kind of plan side by side."""

import json
import os
import unittest
from pathlib import Path

from plan_replay import replay_ms
from plan_lists import listed
from programs import FIXTURES, SOURCE, ProgramTest, run

MODEL = FIXTURES / "transformer_bf16.hlo.gz"
SCHEMA = json.loads((SOURCE / "docs" / "formats" / "plan.schema.json").read_text())
try:
    import jsonschema
except ImportError:
    jsonschema = None


class Widths(ProgramTest):
    def infer(self, *arguments):
        result = run("automap-infer", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def plan(self, *arguments):
        plan = json.loads(self.infer(*arguments, "--json").stdout)
        if jsonschema:
            jsonschema.validate(plan, SCHEMA)
        return listed(plan)

    def test_more_stages_than_the_widest_has_replicas(self):
        """Without data parallelism the other widths are left."""
        plan = self.plan(MODEL, "--cluster", "config-b", "--limit", "pipeline,tensor", "--stages", "4", "--planner", "policy")
        self.assertEqual([stage["replicas"] for stage in plan["stages"]], [1] * 4)

    def test_the_width_and_split_of_the_plan_get_all_of_the_effort(self):
        """A row of even grids is the first to find width 8 in 2048 micro-batches."""
        common = (FIXTURES / "llama_8b.hlo.gz", "--cluster", "config-c", "--batch", "4096", "--effort", "quick", "--max-stages", "4")
        chosen, asked = self.plan(*common), self.plan(*common, "--micro-batch", "2")
        self.assertLessEqual(chosen["simulated_step_ms"], 1.01 * asked["simulated_step_ms"])

    def test_a_plan_of_wide_replicas(self):
        plan = self.plan(MODEL, "--cluster", "config-b", "--effort", "quick", "--mixed-widths", "off", "--schedule", "adaptive")
        widths = {stage["width"] for stage in plan["stages"]}
        self.assertEqual(len(widths), 1)
        width = widths.pop()
        self.assertGreater(width, 1)
        first = 1
        for stage in plan["stages"]:
            self.assertEqual(stage["replicas"] * width, stage["devices"])
            self.assertEqual(stage["samples"] * stage["replicas"], plan["micro_batch_samples"])
            self.assertEqual(stage["first_device"], first)
            # A replica stands in one server.
            self.assertEqual((stage["first_device"] - 1) % width, 0)
            first += stage["devices"]
        self.assertEqual(first - 1, plan["devices"])
        lengths = {w["width"]: w["simulated_step_ms"] for w in plan["widths"]}
        self.assertEqual(min(lengths.values()), plan["simulated_step_ms"])
        self.assertIn(1, lengths)
        # How the devices of a replica hold the tensors is a plan by itself.
        self.assertEqual(plan["partition"]["shards"], width)
        given = self.put("partition.json", json.dumps(plan["partition"]))
        applied = run("automap-search", "apply", MODEL, "--plan", given, "--json")
        self.assertEqual(applied.returncode, 0, applied.stderr)
        # The whole of it again, from the file.
        path = self.put("plan.json", json.dumps(plan))
        again = self.plan(MODEL, "--cluster", "config-b", "--plan", path)
        for key in ("simulated_step_ms", "step_ms", "stages", "partition"):
            self.assertEqual(again[key], plan[key], key)
        text = self.infer(MODEL, "--cluster", "config-b", "--plan", path, "--details").stdout
        self.assertIn(f"replicas of {width} devices", text)
        self.assertIn("variables in parts", text)

    @unittest.skipUnless(os.environ.get("AUTOMAP_CORPUS"), "AUTOMAP_CORPUS is not set: no module here fills its devices")
    def test_where_memory_decides_both_are_planned(self):
        """Splitting the sequence keeps copies: where they take the room, keeping it whole is planned, too, and the shorter
        counts. The file says which it was."""
        model, = (Path(os.environ["AUTOMAP_CORPUS"]) / "hlo").glob("*/llama3_8b_train_fsdp8*")
        common = ("--cluster", "config-c", "--effort", "quick", "--explore", "off", "--memory-reserve", 15)
        path = self.folder / "plan.json"
        plan, whole = self.plan(model, *common, "-o", path), self.plan(model, *common, "--sequence-parallel", "off")
        split = self.plan(model, *common, "--sequence-parallel", "auto")  # named, and so nothing else is looked at
        self.assertEqual(plan["simulated_step_ms"], min(split["simulated_step_ms"], whole["simulated_step_ms"]))
        taken = plan["provenance"]["option_sequence_parallel"]
        self.assertEqual(taken, "off" if plan["simulated_step_ms"] == whole["simulated_step_ms"] else "auto")
        self.assertEqual(plan["bounds"].get("within", []), ["--sequence-parallel off"] if taken == "off" else [])
        self.assertEqual(self.plan(model, *common[:2], *common[-2:], "--plan", path)["simulated_step_ms"], plan["simulated_step_ms"])

    def test_the_partition_of_a_plan_file(self):
        """Tensors that the model does not have are refused; another partition than is found here is said."""
        plan = self.plan(MODEL, "--cluster", "config-b", "--layout", "dp=1,pp=2,tp=4,micro-batch-size=8")
        path = self.folder / "plan.json"

        def given(change):
            changed = json.loads(json.dumps(plan))
            change(changed["partition"]["partition"])
            path.write_text(json.dumps(changed))
            return run("automap-infer", MODEL, "--cluster", "config-b", "--plan", path, "--json")
        name = next(iter(plan["partition"]["partition"]))
        same = given(lambda dims: None)
        self.assertEqual(same.returncode, 0, same.stderr)
        self.assertFalse([w for w in json.loads(same.stdout)["warnings"] if "another partition" in w])
        unknown = given(lambda dims: dims.update({name[:-1]: dims.pop(name)}))
        self.assertEqual(unknown.returncode, 3, unknown.stderr)
        for part in ("plan.json: partition: partition: unknown tensor", "did you mean", "the model that the plan was made for"):
            self.assertIn(part, unknown.stderr)
        missing = given(lambda dims: dims.pop(name))
        self.assertEqual(missing.returncode, 3, missing.stderr)
        self.assertIn("there is nothing of", missing.stderr)
        other = given(lambda dims: dims.update({key: 0 for key in dims}))
        self.assertEqual(other.returncode, 0, other.stderr)
        said, = [w for w in json.loads(other.stdout)["warnings"] if "another partition for replicas of 4 devices" in w]
        self.assertIn("the one found here is counted", said)

    def test_bounds_name_the_options_that_leave_plans_out(self):
        common = (FIXTURES / "tiny_mlp.hlo", "--cluster", "h100-1x8", "--effort", "quick")
        self.assertNotIn("within", self.plan(*common)["bounds"])
        asked = ("--micro-batch", 8, "--limit", "pipeline,tensor")
        plan = self.plan(*common, *asked)
        self.assertEqual(plan["bounds"]["within"], ["--micro-batch 8", "--limit pipeline,tensor"])
        self.assertRegex(self.infer(*common, *asked, "--details").stdout,
                         r"no plan(?: of one width|, whatever the widths of its stages)?,? within --micro-batch 8, --limit pipeline,tensor, on ")

    def test_one_device_each(self):
        wide = self.plan(MODEL, "--cluster", "config-b", "--effort", "quick")
        narrow = self.plan(MODEL, "--cluster", "config-b", "--effort", "quick", "--max-width", 1)
        self.assertEqual({stage["width"] for stage in narrow["stages"]}, {1})
        self.assertNotIn("partition", narrow)
        self.assertLess(wide["simulated_step_ms"], narrow["simulated_step_ms"])
        # A profile knows no partition.
        profile = self.folder / "model.h5"
        self.assertEqual(run("automap-profile", MODEL, "-o", profile).returncode, 0)
        of_file = self.plan(profile, "--cluster", "config-b", "--effort", "quick")
        self.assertEqual(of_file["simulated_step_ms"], narrow["simulated_step_ms"])

    def test_sequence_parallel(self):
        """Norms and residuals whole: longer, nothing gathered between products; the plan file remembers."""
        common = ("--cluster", "config-b", "--effort", "quick", "--limit", "tensor")
        split, whole = self.plan(MODEL, *common), self.plan(MODEL, *common, "--sequence-parallel", "off")
        self.assertLess(split["simulated_step_ms"], whole["simulated_step_ms"])
        path = self.put("whole.json", json.dumps(whole))
        again = self.plan(MODEL, "--cluster", "config-b", "--plan", path)
        self.assertEqual(again["simulated_step_ms"], whole["simulated_step_ms"])
        profile = self.folder / "whole.h5"
        made = run("automap-profile", MODEL, "--cluster", "config-b", "--widths", "1,2,4,8", "--sequence-parallel", "off",
                   "-o", profile)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(self.plan(profile, *common)["simulated_step_ms"], whole["simulated_step_ms"])
        self.assertEqual(self.plan(profile, "--cluster", "config-b", "--plan", path)["simulated_step_ms"],
                         whole["simulated_step_ms"])
        self.assert_fails(run("automap-infer", profile, *common, "--sequence-parallel", "off"), 2, "is a profile already")

    def test_of_a_profile(self):
        """What automap-profile writes down of widths gives the plan that the model gives."""
        profile = self.folder / "wide.h5"
        made = run("automap-profile", MODEL, "--cluster", "config-b", "--widths", "1,2,4,8", "-o", profile, "--json")
        self.assertEqual(made.returncode, 0, made.stderr)
        rows = json.loads(made.stdout)["widths"]
        self.assertEqual([row["width"] for row in rows], [2, 4, 8])
        for wider, row in zip(rows[1:], rows):
            self.assertLess(wider["w_bytes"], row["w_bytes"])
            self.assertLess(wider["stash_bytes"], row["stash_bytes"])
            self.assertGreater(wider["collective_ms"], 0)
            self.assertLess(wider["collective_ms"], wider["forward_ms"] + wider["backward_ms"])
        inspected = json.loads(run("automap-inspect", profile, "--json").stdout)
        self.assertEqual(inspected["widths"], [1, 2, 4, 8])
        common = ("--cluster", "config-b", "--effort", "quick")
        of_file, of_model = self.plan(profile, *common), self.plan(MODEL, *common)
        for key in ("simulated_step_ms", "step_ms", "lower_bound_ms", "stages", "partition", "partitions", "widths", "bounds"):
            self.assertEqual(of_file.get(key), of_model.get(key), key)
        self.assertEqual(self.plan(profile, *common, "--max-width", 1)["simulated_step_ms"],
                         self.plan(MODEL, *common, "--max-width", 1)["simulated_step_ms"])
        self.assertIn("over the links of config-b", self.infer(profile, "--cluster", "config-a", "--effort", "quick").stderr)

    def test_widths_of_one_server(self):
        """Without a cluster: the links that are known of the device."""
        made = run("automap-profile", MODEL, "--device", "h100", "--widths", "4", "--json")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual([row["width"] for row in json.loads(made.stdout)["widths"]], [4])
        for arguments, says in ((("--widths", "4,x"), "found 'x'"), (("--widths", "4", "-o", self.folder / "a.csv"), "CSV"),
                                (("--widths", "16", "--cluster", "config-b"), "more than the 8 devices of the largest server"),
                                (("--widths", "2", "--also-device", "h100"), "--cluster"),
                                (("--cluster", "config-b", "--device", "h100"), "give one of them")):
            result = run("automap-profile", MODEL, *arguments)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(says, result.stderr)
        # Nothing to split by 3: said, and the rest is there.
        none = run("automap-profile", MODEL, "--widths", "3", "--json")
        self.assertEqual(none.returncode, 0, none.stderr)
        self.assertEqual(json.loads(none.stdout)["widths"], [])
        self.assertIn("there is none beyond 1", none.stderr)

    def test_layouts(self):
        narrow = self.plan(MODEL, "--cluster", "config-a", "--layout", "dp=8,pp=2,micro-batch-size=4")
        wide = self.plan(MODEL, "--cluster", "config-a", "--layout", "dp=2,pp=2,tp=4,micro-batch-size=16")
        self.assertEqual([stage["width"] for stage in wide["stages"]], [4, 4])
        self.assertEqual(wide["batch"], narrow["batch"])
        for a, b in zip(wide["stages"], narrow["stages"]):
            self.assertLess(a["memory"]["weights"], 0.5 * b["memory"]["weights"])
        sweep = json.loads(self.infer(MODEL, "--cluster", "config-a", "--sweep", "--json").stdout)["layouts"]
        self.assertEqual({row["tp"] for row in sweep}, {1, 2, 4, 8})
        for row in sweep:
            self.assertEqual(row["dp"] * row["pp"] * row["tp"], 16)

    def test_replicas_that_several_servers_make_up(self):
        llama, cluster = FIXTURES / "llama_8b.hlo.gz", ("--cluster", "h100-4x8", "--batch", "64")
        path = self.folder / "wide.json"
        for layout, stages in (("tp=16,dp=2,micro-batch-size=4", 1), ("tp=16,pp=2,dp=1,micro-batch-size=4", 2)):
            wide = self.plan(llama, *cluster, "--layout", layout, "-o", path)
            self.assertEqual([stage["width"] for stage in wide["stages"]], [16] * stages)
            self.assertEqual(sum(stage["devices"] for stage in wide["stages"]), 32)
            again = self.plan(llama, *cluster, "--plan", path)
            self.assertEqual(again["simulated_step_ms"], wide["simulated_step_ms"])
            # What is inside a replica goes over the ports.
            slow = self.plan(llama, "--cluster", "h100-4x8@100g", "--batch", "64", "--layout", layout)
            self.assertGreater(slow["simulated_step_ms"], 2 * wide["simulated_step_ms"])
        # The operators' own search says the same of a step.
        layout = self.plan(llama, *cluster[:2], "--layout", "tp=16,dp=1,micro-batch-size=2", "--micro-batches", "1")
        opp = run("automap-search", "opp", llama, *cluster[:2], "--shards", "16", "--json")
        self.assertEqual(opp.returncode, 0, opp.stderr)
        self.assertAlmostEqual(json.loads(opp.stdout)["simulated_step_ms"], layout["simulated_step_ms"], delta=1e-9 * layout["simulated_step_ms"])
        # Whole servers that are alike, or none; and nothing is planned so that nobody asked for.
        self.assert_fails(run("automap-infer", llama, *cluster, "--layout", "tp=12,dp=1"), 2, "several whole servers")
        self.assertIn("servers 1-2", self.infer(llama, *cluster, "--layout", "tp=16,dp=1,micro-batch-size=4", "--details").stdout)
        planned = self.plan(llama, *cluster, "--effort", "quick", "--max-width", "16")
        self.assertLessEqual(max(stage["width"] for stage in planned["stages"]), 8)

    def test_every_kind_of_plan(self):
        plan = self.plan(MODEL, "--cluster", "config-b")
        corners = {corner["name"]: corner for corner in plan["corners"]}
        lengths = [corner["simulated_step_ms"] for corner in plan["corners"] if corner["fits"]]
        self.assertEqual(lengths, sorted(lengths))
        own = corners["this plan"]
        self.assertEqual(own["simulated_step_ms"], plan["simulated_step_ms"])
        # With a grid of several stages where the best grid is of one, and the orders of stages where there are several.
        self.assertIn(len(corners), (11, 12, 13, 14))
        for ordered in ("zero bubble, ZB-H1 (even)", "backward first (eager)", "searched order"):
            corners.pop(ordered, None)
        corners.pop("stages of different widths")  # may be shorter than any of one
        even = corners.pop("interleaved 1F1B (even)")
        self.assertIn("multiple", even["why"])  # three servers, and a power of two of micro-batches
        for name, corner in corners.items():
            with self.subTest(name=name):
                self.assertTrue(corner["fits"], corner["why"])
                if corner["simulated_step_ms"] < own["simulated_step_ms"]:  # it fills more memory
                    self.assertIn("leaner", corner["left_out"])
                self.assertEqual(corner["micro_batches"] * corner["micro_batch_samples"], plan["batch"])
                self.assertGreater(corner["utilization"]["model_tflops_per_device"], 0)
                self.assertIsNone(corner["utilization"]["mfu"])  # a V100 has no units for bf16
                self.assertLessEqual(corner["memory_bytes"], corner["capacity_bytes"])
        self.assertEqual(corners["data parallel"]["stages"], 1)
        self.assertIn("tp=", corners["best even grid (Megatron)"]["layout"])
        for corner in self.plan(FIXTURES / "tiny_mlp.hlo", "--cluster", "h100-1x8", "--explore", "on")["corners"]:
            if corner["fits"]:
                for share in ("mfu", "hfu"):
                    self.assertTrue(0 < corner["utilization"][share] < 1, corner)
        text = self.infer(MODEL, "--cluster", "config-b", "--details").stdout
        for part in ("The best of every kind of plan", "data parallel, ZeRO 3 (FSDP)", "what limits it"):
            self.assertIn(part, text)

        self.assertNotIn("every kind", self.infer(MODEL, "--cluster", "config-b", "--explore", "off", "--details").stdout)
        quick = self.plan(MODEL, "--cluster", "config-b", "--planner", "rollouts")
        self.assertNotIn("corners", {key for key in quick if quick[key]})

    def test_interleaved(self):
        base = (MODEL, "--cluster", "config-c", "--effort", "quick")
        name = "interleaved 1F1B (even)"
        for chunks in ("2", "3"):
            corner = next(c for c in self.plan(*base, "--chunks", chunks)["corners"] if c["name"] == name)
            self.assertTrue(corner["fits"], corner["why"])
            self.assertIn(f"chunks={chunks}", corner["layout"])
            self.assertEqual(len(corner["chunk_cuts"]), corner["stages"] * int(chunks) - 1)
            self.assertEqual(corner["chunk_cuts"], sorted(set(corner["chunk_cuts"])))
            self.assertEqual(corner["micro_batches"] % corner["stages"], 0)
            self.assertLessEqual(corner["memory_bytes"], corner["capacity_bytes"])
        self.assertNotIn(name, [c["name"] for c in self.plan(*base, "--chunks", "1")["corners"]])
        # Named, it is shown with planners that answer at once, too; left out, it is refused.
        self.assertIn(name, [c["name"] for c in self.plan(*base, "--planner", "rollouts", "--chunks", "2")["corners"]])
        self.assert_fails(run("automap-infer", *base, "--explore", "off", "--chunks", "2"), 2, "--explore off leaves out")
        # Without data parallelism a group is one replica.
        lone = self.plan(*base, "--chunks", "2", "--limit", "pipeline,tensor")["corners"]
        for corner in lone:
            if corner["fits"] and corner["layout"] and corner["name"] == name:
                self.assertIn("dp=1", corner["layout"])
        for wrong in ("0", "17", "two"):
            result = run("automap-infer", *base, "--chunks", wrong)
            self.assertEqual(result.returncode, 2)
            self.assertIn("--chunks", result.stderr)

    def test_zero_bubble(self):
        base = (MODEL, "--cluster", "config-c", "--effort", "quick")
        name = "zero bubble, ZB-H1 (even)"
        for more in ((), ("--max-width", 1)):
            corner = next(c for c in self.plan(*base, *more)["corners"] if c["name"] == name)
            self.assertTrue(corner["fits"], corner["why"])
            self.assertIn("schedule=zb-h1", corner["layout"])
            self.assertEqual(len(corner["chunk_cuts"]), corner["stages"] - 1)
            self.assertLessEqual(corner["memory_bytes"], corner["capacity_bytes"])
        self.assertNotIn(name, [c["name"] for c in self.plan(*base, "--zero-bubble", "off")["corners"]])
        self.assertEqual(run("automap-infer", *base, "--zero-bubble", "maybe").returncode, 2)
        scan = self.plan(FIXTURES / "transformer_scan.hlo.gz", "--cluster", "config-c", "--effort", "quick")
        corner = next(c for c in scan["corners"] if c["name"] == name)
        self.assertTrue(corner["fits"] or corner["why"])

    def test_mixed_widths(self):
        name = "stages of different widths"
        base = (FIXTURES / "moe_small.hlo.gz", "--cluster", "config-a", "--effort", "quick")
        plan = self.plan(*base)
        corner = next(c for c in plan["corners"] if c["name"] == name)
        self.assertTrue(corner["fits"], corner["why"])
        self.assertGreater(len(set(corner["stage_widths"])), 1)
        self.assertEqual(max(corner["stage_widths"]), corner["width"])
        self.assertEqual(sum(corner["stage_devices"]), corner["devices"])
        self.assertEqual(len(corner["stage_devices"]), corner["stages"])
        self.assertEqual(len(corner["chunk_cuts"]), corner["stages"] - 1)
        for devices, width in zip(corner["stage_devices"], corner["stage_widths"]):
            self.assertEqual(devices % width, 0)
        self.assertLessEqual(corner["memory_bytes"], corner["capacity_bytes"])
        self.assertNotIn(name, [c["name"] for c in self.plan(*base, "--mixed-widths", "off")["corners"]])
        self.assertNotIn(name, [c["name"] for c in self.plan(*base, "--max-width", 1)["corners"]])
        self.assert_fails(run("automap-infer", *base, "--explore", "off", "--mixed-widths", "auto"), 2, "--explore off")

    def test_mixed_widths_become_the_plan(self):
        """Where stages of different widths are shorter they are the plan, by every way out and in again."""
        model, base = FIXTURES / "moe_small.hlo.gz", ("--cluster", "config-a", "--effort", "quick", "--schedule", "adaptive")
        path = self.folder / "mixed.json"
        plan = self.plan(model, *base, "-o", path)
        one = self.plan(model, *base, "--mixed-widths", "off")
        self.assertLess(plan["simulated_step_ms"], one["simulated_step_ms"])
        self.assertEqual(plan["planner"], "stages of different widths")
        widths = [stage["width"] for stage in plan["stages"]]
        self.assertGreater(len(set(widths)), 1)
        self.assertEqual({stage["width"] for stage in one["stages"]}, {max({w["width"]: -w["simulated_step_ms"] for w in one["widths"]}.items(),
                                                                           key=lambda w: w[1])[0]})
        for stage in plan["stages"]:
            self.assertEqual(stage["replicas"] * stage["width"], stage["devices"])
            self.assertEqual(stage["samples"] * stage["replicas"], plan["micro_batch_samples"])
            self.assertEqual((stage["first_device"] - 1) % stage["width"], 0)
            self.assertAlmostEqual(sum(stage["memory"].values()), stage["memory_bytes"], delta=8)
        self.assertEqual([p["shards"] for p in plan["partitions"]], sorted(set(widths) - {1}))
        self.assertNotIn("partition", plan)
        self.assertEqual(listed(json.loads(path.read_text()))["stages"], plan["stages"])
        # The file says all that is needed.
        self.assertAlmostEqual(replay_ms(plan), plan["simulated_step_ms"], delta=1e-9 * plan["simulated_step_ms"])
        # Bounds: those above the plan are of other plans.
        self.assertEqual((plan["bounds"]["widths"], plan["bounds"]["other"]["widths"]), ("any", "one"))
        self.assertLessEqual(plan["lower_bound_ms"], min(plan["step_ms"], plan["simulated_step_ms"]))
        self.assertAlmostEqual(plan["gap"], plan["step_ms"] / plan["lower_bound_ms"] - 1)
        self.assertEqual(plan["bounds"]["other"]["value"], one["lower_bound_ms"])
        text = self.infer(model, *base, "--details").stdout
        for part in (f"replicas of {' or '.join(str(w) for w in sorted(set(widths)))} devices", "whatever the widths of its stages",
                     "no plan of one width on 16", "found by stages of different widths", "below that"):
            self.assertIn(part, text)
        # Read again: the same, in full, and from the least that says what it is.
        stages = plan["stages"]
        least = {"cuts": plan["cuts"], "device_cuts": plan["device_cuts"], "width": widths,
                 "zero": [s["zero"] for s in stages], "recompute": [s["recompute"] for s in stages],
                 "micro_batches": plan["micro_batches"], "micro_batch_samples": int(plan["micro_batch_samples"])}
        if jsonschema:
            jsonschema.validate(least, SCHEMA)
        for given in (path, self.put("least.json", json.dumps(least))):
            again = self.plan(model, "--cluster", "config-a", "--plan", given)
            for key in ("simulated_step_ms", "step_ms", "stages", "partitions"):
                self.assertEqual(again[key], plan[key], key)
        # Another schedule can be counted, and what departs is said.
        other = self.plan(model, "--cluster", "config-a", "--plan", path, "--schedule", "1f1b")
        self.assertIn("1f1b", " ".join(other["warnings"]))
        self.assertAlmostEqual(replay_ms(other), other["simulated_step_ms"], delta=1e-9 * other["simulated_step_ms"])
        inspected = run("automap-inspect", path)
        self.assertEqual(inspected.returncode, 0, inspected.stderr)
        # What leaves them out.
        for more in (("--stages", 1), ("--objective", "value")):
            left = self.plan(model, *base, "--explore", "on", *more)
            self.assertEqual(len({stage["width"] for stage in left["stages"]}), 1, more)

    def test_mixed_widths_that_cannot_be(self):
        model = FIXTURES / "moe_small.hlo.gz"
        common = {"cuts": [300], "device_cuts": [8], "micro_batches": 8, "micro_batch_samples": 8}
        for change, says in (({"width": [2, 3]}, ["stage 2", "replicas of 3 devices are not known of this model and cluster"]),
                             ({"width": [2, 16]}, ["stage 2", "replicas of 16 devices"]),
                             ({"width": [2, 4, 1]}, ["width: found 3 entries, expected 2"]),
                             ({"width": [2, -4]}, ["width", "-4"]), ({"width": [2, 0]}, ["width", "from 1"]),
                             ({"width": [2, 1.5]}, ["width", "1.5"]), ({"width": "wide"}, ["width"]),
                             ({"width": [4, 2], "device_cuts": [6]}, ["stage 1 has 6 devices, expected whole replicas of 4 devices"]),
                             ({"width": [1, 4], "device_cuts": [4, 8], "cuts": [200, 300]}, ["width: found 2 entries, expected 3"]),
                             ({"width": [2, 4, 2], "device_cuts": [6, 10], "cuts": [200, 300]},
                              ["stage 2 begins with device 7, expected whole replicas of 4 devices"]),
                             ({"width": [1, 2], "replicas": "fractional"}, ["whole replicas, not fractional"]),
                             ({"width": [1, 2], "micro_batch_samples": 9}, ["which cannot share the 9 samples"])):
            with self.subTest(change=change):
                given = self.put("wrong.json", json.dumps({**common, **change}))
                self.assert_fails(run("automap-infer", model, "--cluster", "config-a", "--plan", given), 3, "wrong.json", *says)
        full = self.plan(model, "--cluster", "config-a", "--plan",
                         self.put("good.json", json.dumps({**common, "width": [2, 4]})))
        full["stages"][1]["width"] = 3
        given = self.put("wrong.json", json.dumps(full))
        self.assert_fails(run("automap-infer", model, "--cluster", "config-a", "--plan", given), 3, "wrong.json: stage 2: replicas times width")
        # It may be a plan that does not fit, which is said and not refused.
        large = self.put("large.json", json.dumps({"cuts": [2000], "device_cuts": [12], "width": [1, 2], "in_flight": [8, 8],
                                                   "micro_batches": 8, "micro_batch_samples": 12}))
        result = run("automap-infer", FIXTURES / "bert48.hlo.gz", "--cluster", "config-a", "--plan", large)
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("the plan does not fit: stage 2 lacks", result.stderr)

    def test_no_kind_is_shorter(self):
        """What any corner comes to, the plan does, too."""
        for name, cluster in (("gpt2", "config-a"), ("moe_small", "config-b"), ("vgg19", "h100-2x8"), ("t5_6_6", "a100-2x8"),
                              ("transformer_scan", "config-a"), ("grouped_query", "config-b")):
            with self.subTest(name=name, cluster=cluster):
                plan = self.plan(FIXTURES / f"{name}.hlo.gz", "--cluster", cluster, "--effort", "quick")
                fitting = [c for c in plan["corners"] if c["fits"]]
                self.assertEqual(plan["simulated_step_ms"], min(corner["simulated_step_ms"] for corner in fitting))

    def test_limits(self):
        base = (MODEL, "--cluster", "config-b", "--explore", "off", "--effort", "quick")
        free = self.plan(*base)["simulated_step_ms"]
        data = self.plan(*base, "--limit", "data")
        self.assertEqual([(stage["width"], stage["zero"]) for stage in data["stages"]], [(1, 0)])
        tensor = self.plan(*base, "--limit", "tensor")
        self.assertEqual([stage["replicas"] for stage in tensor["stages"]], [1])
        self.assertGreater(tensor["stages"][0]["width"], 1)
        alone = self.plan(*base, "--limit", "pipeline")
        self.assertEqual({(stage["devices"], stage["replicas"], stage["width"]) for stage in alone["stages"]}, {(1, 1, 1)})
        both = self.plan(*base, "--limit", "pipeline,tensor")
        self.assertEqual({stage["replicas"] for stage in both["stages"]}, {1})
        for plan in (data, tensor, alone, both):
            self.assertGreaterEqual(plan["simulated_step_ms"], free * (1 - 1e-9))
        self.assertLessEqual(both["simulated_step_ms"], min(alone["simulated_step_ms"], tensor["simulated_step_ms"]) * 1.02)
        for wrong, says in ((["--limit", "data,model"], "found 'model'"), (["--limit", "data,"], "found ''"),
                            (["--limit", "zero,recompute"], "leaves one device alone"),
                            (["--limit", "data", "--stages", "2"], "contradicts --limit data"),
                            (["--limit", "data,pipeline", "--max-width", "2"], "contradicts"),
                            (["--limit", "data", "--zero", "3"], "contradicts"),
                            (["--limit", "tensor", "--max-width", "1"], "leave one device alone"),
                            (["--limit", "data", "--sweep"], "would change nothing")):
            with self.subTest(wrong=wrong):
                result = run("automap-infer", *base[:3], *wrong)
                self.assertEqual(result.returncode, 2)
                self.assertIn(says, result.stderr)

    def test_what_cannot_be(self):
        for layout, says in (("dp=4,pp=1,tp=3", ["replicas of 3 devices are not known of this model and cluster"]),
                             ("dp=5,pp=1,tp=3", ["replicas of 3 devices are not known of this model and cluster"]),
                             ("dp=2,pp=1,tp=16", ["times tp=16 are 32 devices", "has 16"]),
                             ("dp=1,pp=1,tp=0", ["tp is '0'"])):
            self.assert_fails(run("automap-infer", MODEL, "--cluster", "config-a", "--layout", layout), 2, *says)
        profile = self.folder / "model.h5"
        self.assertEqual(run("automap-profile", MODEL, "-o", profile).returncode, 0)
        self.assert_fails(run("automap-infer", profile, "--cluster", "config-a", "--layout", "dp=4,pp=1,tp=2"), 2,
                          "replicas of 2 devices are not known", "made with --widths")
        self.assert_fails(run("automap-infer", MODEL, "--cluster", "config-a", "--max-width", 0), 2, "from 1 to 4096")
        plan = self.put("plan.json", '{"cuts": [10], "device_cuts": [3], "width": 2, "micro_batch_samples": 8, "micro_batches": 4}')
        self.assert_fails(run("automap-infer", MODEL, "--cluster", "config-a", "--plan", plan), 3, "whole replicas of 2 devices")


if __name__ == "__main__":
    unittest.main(verbosity=2)
