"""automap-infer --measured-step: the factor of a measured layout, the plan made with it, its file, what is refused."""

import json
import re
import shlex
import unittest

from programs import FIXTURES, SOURCE, ProgramTest, profile_csv, run

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMA = json.loads((SOURCE / "docs" / "formats" / "plan.schema.json").read_text())["oneOf"][0]
QUESTION = (FIXTURES / "transformer_bf16.hlo.gz", "--cluster", "a100-2x8", "--batch", "64")
LAYOUT = "dp=4,pp=2,micro-batch-size=8"
WIDE = "dp=4,tp=2,micro-batch-size=8"


class MeasuredStep(ProgramTest):
    def document(self, *arguments, question=QUESTION):
        result = run("automap-infer", *question, *arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        if jsonschema:
            jsonschema.validate(document, SCHEMA)
        return document

    def planned(self, layout, measured_ms):
        """The plan by a measurement of the layout, and the step of that layout counted with its corrections."""
        plan = self.document("--effort", "quick", "--layout", layout, "--measured-step", f"{measured_ms!r}ms")
        given = self.document("--layout", layout)
        given["measured_step"] = plan["measured_step"]
        path = self.put("layout.json", json.dumps(given))
        return plan, self.document("--plan", path)["simulated_step_ms"]

    def estimate(self, layout):
        return self.document("--layout", layout)["simulated_step_ms"]

    def assert_near(self, a, b, share=1e-6):
        self.assertLess(abs(a / b - 1), share, f"{a} and {b}")

    def test_the_layout_takes_what_was_measured(self):
        for layout, ratio, scaled in ((LAYOUT, 1.7, "compute"), (LAYOUT, 0.95, "compute"), (WIDE, 1.5, "compute"),
                                      (LAYOUT, 8, "everything"), (LAYOUT, 0.6, "everything"), (WIDE, 0.2, "everything")):
            with self.subTest(layout=layout, ratio=ratio):
                estimate = self.estimate(layout)
                plan, step = self.planned(layout, ratio * estimate)
                measured = plan["measured_step"]
                self.assert_near(step, ratio * estimate)
                self.assertEqual(measured["scaled"], scaled)
                self.assert_near(measured["factor"], ratio)
                self.assert_near(measured["estimated_ms"], estimate)
                if scaled == "compute":
                    # Kernels alone are slower, so that they are slowed down by more than the step.
                    self.assertGreater(abs(measured["compute_factor"] - 1), abs(ratio - 1))
                    self.assertEqual(measured["network_factor"], 1)
                else:
                    self.assert_near(measured["compute_factor"], ratio)
                    self.assertEqual(measured["network_factor"], measured["compute_factor"])
                    self.assertIn("compute and network are corrected by one factor", "".join(plan["warnings"]))

    def test_the_estimate_itself_corrects_nothing(self):
        plain = self.document("--effort", "quick")
        for layout in (LAYOUT, WIDE):
            plan, step = self.planned(layout, self.estimate(layout))
            measured = plan["measured_step"]
            self.assertEqual((measured["scaled"], measured["compute_factor"], measured["network_factor"]), ("nothing", 1, 1))
            self.assertTrue(measured["usual"])
            for key in ("parts", "groups", "schedule", "simulated_step_ms", "bounds"):
                self.assertEqual(plan[key], plain[key], key)
            self.assert_near(step, measured["measured_ms"])

    def test_slower_compute_is_another_plan(self):
        # Gathering weights beside kernels that take three times as long costs nothing.
        plain = self.document("--effort", "quick")
        plan = self.document("--effort", "quick", "--layout", LAYOUT, "--measured-step", f"{3 * self.estimate(LAYOUT)}ms")
        self.assertEqual([group["zero"] for group in plain["groups"]], [2])
        self.assertEqual([group["zero"] for group in plan["groups"]], [3])
        self.assertGreater(plan["simulated_step_ms"], 2 * plain["simulated_step_ms"])
        self.assertFalse(plan["measured_step"]["usual"])

    def test_the_file_scores_to_the_same_step(self):
        path = self.folder / "plan.json"
        seconds = 1.3e-3 * self.estimate(WIDE)
        result = run("automap-infer", *QUESTION, "--effort", "quick", "--layout", WIDE, "--measured-step", f"{seconds}s", "-o", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ("Timed ", "measured, ", "1.30 times as long, unusual (0.909 to 1.25)", "Corrected here: compute takes"):
            self.assertIn(part, " ".join(result.stdout.split()) + " ")
        plan = json.loads(path.read_text())
        self.assertIn("a100-80gb, matmul bf16, a compiled step, tensor and data parallel", plan["measured_step"]["class"])
        self.assertEqual(plan["provenance"]["option_layout"], WIDE)
        self.assertTrue(plan["provenance"]["option_measured_step"].endswith("s"))
        again = self.document("--plan", path, question=QUESTION[:3])
        self.assertEqual(again["simulated_step_ms"], plan["simulated_step_ms"])
        self.assertEqual(again["measured_step"], plan["measured_step"])
        self.assertEqual([w for w in again["warnings"] if "counted with" in w], [])
        details = run("automap-infer", *QUESTION[:3], "--plan", path, "--details")
        self.assertIn("as long as estimated, so that dp=4,pp=1,tp=2", " ".join(details.stdout.split()))
        for key, value in (("compute_factor", 0), ("network_factor", 1e9), ("usual_factors", [1]), ("layout", 3)):
            broken = self.put("broken.json", json.dumps({**plan, "measured_step": {**plan["measured_step"], key: value}}))
            self.assert_fails(run("automap-infer", *QUESTION[:3], "--plan", broken), 3, "broken.json", "measured_step", key)

    def test_a_correction_is_of_the_times_that_were_measured(self):
        """The file's correction is left out where devices or software are others, and said to be."""
        path = self.folder / "plan.json"
        result = run("automap-infer", *QUESTION, "--effort", "quick", "--layout", LAYOUT, "--measured-step",
                     f"{1.3 * self.estimate(LAYOUT)}ms", "-o", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        plain = json.loads(path.read_text())
        del plain["measured_step"]
        uncorrected = self.put("plain.json", json.dumps(plain))
        for change in (("--cluster", "h100-2x8"), ("--cluster", "a100-2x8", "--software", "megatron")):
            with self.subTest(change):
                question = (QUESTION[0], *change)
                now = self.document("--plan", path, question=question)
                self.assertEqual(now["simulated_step_ms"], self.document("--plan", uncorrected, question=question)["simulated_step_ms"])
                self.assertNotIn("measured_step", now)
                self.assertIn("is left out: it was measured of a100-80gb, matmul bf16, a compiled step", "".join(now["warnings"]))

    def test_what_emit_says_to_type_can_be_typed(self):
        """The measured layout has run, whatever the framework that is asked about can run."""
        path = self.folder / "plan.json"
        layout = "dp=4,tp=2,zero=2,micro-batch-size=8"
        result = run("automap-infer", *QUESTION, "--effort", "quick", "--layout", layout, "--measured-step", "12ms", "-o", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        emitted = run("automap-emit", path, "--to", "maxtext", "--model", QUESTION[0], "--cluster", "a100-2x8", "-o",
                      self.folder / "arguments")
        said = re.search(r"takes ([\d.]+) ms.*: (automap-infer .*--measured-step 12ms --layout .*) -o FILE", emitted.stderr)
        self.assertTrue(said, emitted.stderr)
        found = run(*shlex.split(said[2]), "--json")
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assert_near(json.loads(found.stdout)["simulated_step_ms"], float(said[1]), 2e-3)

    def test_more_than_devices_can_do_is_doubted(self):
        plan = self.document("--effort", "quick", "--layout", LAYOUT, "--measured-step", f"{0.06 * self.estimate(LAYOUT)}ms")
        self.assertGreater(plan["utilization"]["mfu"], 1)
        self.assertIn("of what its devices can do at most: is --measured-step one whole step", "".join(plan["warnings"]))

    def test_a_layout_that_does_not_fit_ran(self):
        model = (FIXTURES / "llama_8b.hlo.gz", "--cluster", "h100-4x8", "--batch", "256", "--effort", "quick")
        plan = self.document("--layout", "dp=32,micro-batch-size=1", "--measured-step", "4s", question=model)
        self.assertIn("does not fit, and it ran", "".join(plan["warnings"]))
        self.assertEqual([group["zero"] for group in plan["groups"]], [3])

    def test_the_micro_batch_that_was_taken_is_said(self):
        plan = self.document("--effort", "quick", "--layout", "dp=16", "--measured-step", "6ms")
        self.assertRegex(plan["measured_step"]["layout"], r"micro-batch-size=\d")
        self.assertIn("names no micro-batch-size", "".join(plan["warnings"]))

    def test_widths_stay_within_what_is_asked(self):
        plan = self.document("--effort", "quick", "--max-width", "1", "--layout", WIDE, "--measured-step", "10ms")
        self.assertEqual({group["width"] for group in plan["groups"]}, {1})

    def test_profiles(self):
        model = self.put("small.csv", profile_csv())
        question = (model, "--cluster", "config-a", "--batch", "64")
        estimate = self.document("--layout", "dp=16,micro-batch-size=4", question=question)["simulated_step_ms"]
        plan = self.document("--layout", "dp=16,micro-batch-size=4", "--measured-step", f"{1.2 * estimate}ms", question=question)
        self.assert_near(plan["measured_step"]["factor"], 1.2)

    def test_what_is_refused(self):
        layout = ("--layout", LAYOUT)
        for arguments, parts in (
                (("--measured-step", "10ms"), ("without --layout", "--layout dp=")),
                (("--measured-step", "10ms", "--sweep"), ("--sweep has none",)),
                (("--measured-step", "10ms", "--plan", "plan.json"), ("--plan has none",)),
                (("--measured-step", "10ms", "--vary", "batch=8,16"), ("--measured-step is for one",)),
                (("--measured-step", "10ms", "--compare-clusters", "a100-2x8,config-a"), ("--measured-step is for one",)),
                (("--measured-step", "10ms", *layout, "--replicas", "fractional"), ("--replicas fractional",)),
                (("--measured-step", "0s", *layout), ("a time such as 2s or 500ms",)),
                (("--measured-step=-3s", *layout), ("a time such as 2s or 500ms",)),
                (("--measured-step", "soon", *layout), ("a time such as 2s or 500ms",)),
                (("--measured-step", "10s", *layout), ("20 times longer than the estimate", "batch of 64", LAYOUT.split(",")[0])),
                (("--measured-step", "10us", *layout), ("found '10us'",)),
                (("--measured-step", "0.01ms", *layout), ("20 times shorter than the estimate", "batch of 64", "is it one whole step")),
                (("--measured-step", "10ms", "--layout", "dp=3"), ("--layout: dp=3",))):
            with self.subTest(arguments=arguments):
                self.assert_fails(run("automap-infer", *QUESTION, *arguments), 2, *parts)
        self.assert_json_error(run("automap-infer", *QUESTION, *layout, "--measured-step", "10s", "--json"), 2, "usage")


if __name__ == "__main__":
    unittest.main()
