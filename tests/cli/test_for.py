"""--for FRAMEWORK: plans within what it can run, by the rules of docs/frameworks.md; what contradicts it is refused."""

import json
import unittest

from plan_lists import listed
from programs import FIXTURES, SOURCE, ProgramTest, profile_csv, run

# As the page has them.
ROWS = {}
for line in (SOURCE / "docs" / "frameworks.md").read_text().splitlines():
    if line.startswith("| `") and not line.startswith("| `--for`"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        levels = [{int(level) for level in cells[column].split(",")} for column in (5, 6, 7)]
        ROWS[cells[0].strip("`")] = {"schedules": cells[2].split(", "), "mesh": cells[3] == "as many", "cuts": cells[4],
                                     "zero": levels, "recompute": cells[8]}
TINY = FIXTURES / "tiny_mlp.hlo"
GPT2 = FIXTURES / "gpt2.hlo.gz"


class For(ProgramTest):
    def plan(self, *arguments):
        result = run("automap-infer", *arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return listed(json.loads(result.stdout))

    def check(self, plan, name):
        row, stages = ROWS[name], plan["stages"]
        self.assertEqual(plan["provenance"]["option_for"], name)
        if not row["mesh"]:
            return
        several = len(stages) > 1
        self.assertEqual(len({stage["replicas"] for stage in stages}), 1)
        self.assertEqual(len({stage["width"] for stage in stages}), 1)
        self.assertIn(plan["schedule"], row["schedules"] + ([] if several else ["1f1b"]))
        if row["recompute"] != "by stage":
            self.assertEqual(len({stage["recompute"] for stage in stages}), 1)
        if stages[0]["replicas"] > 1:
            self.assertEqual(len({stage["zero"] for stage in stages}), 1)
            self.assertIn(stages[0]["zero"], row["zero"][2 if several else 1 if stages[0]["width"] > 1 else 0])
        if several:
            split = plan["layer_split"]
            self.assertEqual(split["cuts"], [stage["last_instruction"] for stage in stages[:-1]])
            if row["cuts"] == "equal layers":
                (counts,) = split["layers_per_stage"].values()
                self.assertEqual(len(set(counts)), 1)

    def test_plans_are_within_the_rules(self):
        self.assertEqual(list(ROWS), ["any", "jax", "maxtext", "torch", "torchtitan", "megatron", "deepspeed"])
        for name in ROWS:
            for model in (TINY, GPT2, FIXTURES / "transformer_bf16.hlo.gz"):
                with self.subTest(framework=name, model=model.name):
                    self.check(self.plan(model, "--cluster", "config-c", "--for", name, "--planner", "policy", "--max-width", "2"), name)

    def test_pipelines(self):
        for name in ROWS:
            with self.subTest(framework=name):
                plan = self.plan(GPT2, "--cluster", "config-c", "--for", name, "--stages", "3", "--effort", "quick",
                                 "--max-width", "1", "--explore", "off")
                self.check(plan, name)
                self.assertEqual(len(plan["stages"]), 3)
                # Sixteen times the module's batch, for MaxText rounded up to what splits into multiples of the stages.
                self.assertEqual(plan["micro_batches"] * plan["micro_batch_samples"], 96 if name == "maxtext" else 64)
                self.assertGreaterEqual(plan["step_ms"], plan["lower_bound_ms"])
                self.assertEqual(plan["bounds"]["within"], ([f"--for {name}"] if name != "any" else []) + ["--stages 3", "--max-width 1"])

    def test_a_plan_keeps_the_state_of_its_software(self):
        # Of a profile times are no software's, but what is kept of a parameter is Megatron's.
        profile, path = self.folder / "p.h5", self.folder / "plan.json"
        self.assertEqual(run("automap-profile", FIXTURES / "transformer_bf16.hlo.gz", "-o", profile).returncode, 0)
        asked = ("automap-infer", profile, "--cluster", "config-a", "--batch", "64", "--json")
        module = json.loads(run(*asked, "--stages", "1").stdout)
        made = run(*asked, "--stages", "1", "--for", "megatron", "-o", path)
        self.assertEqual(made.returncode, 0, made.stderr)
        made, again = json.loads(path.read_text()), json.loads(run(*asked, "--plan", path).stdout)
        self.assertEqual(made["provenance"]["state_of"], "megatron")
        self.assertNotIn("state_of", module["provenance"])
        self.assertEqual([group["memory_bytes"] for group in again["groups"]], [group["memory_bytes"] for group in made["groups"]])
        self.assertEqual(again["simulated_step_ms"], made["simulated_step_ms"])
        # Who says the factor himself has it.
        own = json.loads(run(*asked, "--plan", path, "--state-factor", "4").stdout)
        self.assertNotIn("state_of", own["provenance"])

    def test_no_kind_brings_in_more(self):
        plan = self.plan(TINY, "--cluster", "config-b", "--for", "torchtitan")
        self.check(plan, "torchtitan")
        kinds = {kind["name"]: kind for kind in plan["corners"]}
        self.assertEqual(kinds["data parallel, ZeRO 1"]["why"], "torchtitan has no ZeRO 1")
        self.assertNotIn("stages of different widths", kinds)

    def test_maxtext_is_given_whole_rounds_and_the_model(self):
        """A batch that splits into no multiple of the stages is planned without a pipeline."""
        asked = ("llama3-8b", "--cluster", "h100-2x8", "--for", "maxtext", "--sequence", "1024")
        plan = self.plan(*asked, "--batch", "17")
        self.assertEqual(len(plan["stages"]), 1)
        words = plan["to_type"]["arguments"]
        self.assertIn("model_name=llama3-8b", words)
        self.assertIn("max_target_length=1024", words)
        self.assertEqual(self.plan(*asked, "--batch", "64", "--stages", "4")["micro_batches"] % 4, 0)
        self.assert_fails(run("automap-infer", *asked, "--batch", "17", "--stages", "4"), 4,
                          "micro-batches in 4 stages", "give a --batch that splits into a multiple of 4 micro-batches")

    def test_a_batch_that_nobody_gave_is_said_where_it_is_rounded(self):
        result = run("automap-infer", GPT2, "--cluster", "config-c", "--for", "maxtext", "--stages", "3", "--max-width", "1", "--explore", "off")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("96 samples (no --batch: 24 times the model's 4, a multiple of 3 for pipelines of maxtext)",
                      " ".join(result.stdout.split()))

    def test_layouts_that_name_no_sizes_have_the_batch_and_the_rounds_of_plans(self):
        for cluster, layout, batch in (("config-b", "pp=3,dp=8", 96), ("config-b", "pp=6,dp=4", 96), ("config-c", "pp=3,dp=8", 96),
                                       ("config-c", "pp=4,dp=8", 64), ("config-c", "pp=3,dp=8,micro-batch-size=4", 96)):
            with self.subTest(cluster=cluster, layout=layout):
                plan = self.plan(GPT2, "--cluster", cluster, "--for", "maxtext", "--layout", layout)
                self.assertEqual(plan["micro_batches"] * plan["micro_batch_samples"], batch)
                self.assertEqual(plan["micro_batches"] % len(plan["stages"]), 0)

    def test_maxtext_stands_evenly_on_servers(self):
        path = self.folder / "uneven.json"
        path.write_text(json.dumps({"schema": "automap.cluster/1", "name": "uneven", "servers": [
            {"count": 1, "devices": 4, "device": "v100-16gb", "inter_gbytes_per_s": 10},
            {"count": 1, "devices": 3, "device": "v100-16gb", "inter_gbytes_per_s": 10}]}))
        asked = ("automap-infer", GPT2, "--cluster", path, "--for", "maxtext", "--batch", "96", "--max-width", "1", "--explore", "off")
        # Nor is a batch advised that divides by all seven.
        self.assertNotIn("divides by all", run(*asked).stdout)
        result = run(*asked, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        plan = json.loads(result.stdout)
        self.assertIsNone(plan["to_type"]["cannot"])
        used = [device for group in plan["groups"] for device in group["devices"]]
        first, second = sum(device <= 4 for device in used), sum(device > 4 for device in used)
        self.assertTrue(first == second or 0 in (first, second), used)

    def test_maxtexts_pipelines_have_no_dense_layers(self):
        asked = ("deepseek-v2-lite", "--cluster", "h100-2x8", "--for", "maxtext", "--sequence", "256", "--batch", "32", "--explore", "off")
        for measured in ((), ("--measured-step", "0.5", "--layout", "dp=16,zero=3")):
            self.assert_fails(run("automap-infer", *asked, "--stages", "2", *measured), 2,
                              "--stages 2", "deepseek-v2-lite", "pipeline_parallel_layers=S*K")
        plan = self.plan(*asked)
        self.assertEqual(len(plan["stages"]), 1)
        self.assertTrue(any("no pipeline is planned: maxtext cannot run" in warning for warning in plan["warnings"]))

    def test_report(self):
        result = run("automap-infer", GPT2, "--cluster", "config-c", "--for", "megatron", "--planner", "policy", "--details")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("\nFor megatron: schedules 1f1b, interleaved, all stages with as many replicas", result.stdout)
        self.assertIn("within --for megatron", result.stdout)

    def test_contradictions(self):
        for framework, *options in (("megatron", "--schedule", "gpipe"), ("jax", "--schedule", "adaptive"),
                                    ("deepspeed", "--zero", "2", "--stages", "2"), ("torchtitan", "--zero", "1"),
                                    ("deepspeed", "--chunks", "2"), ("megatron", "--zero-bubble", "auto"),
                                    ("torch", "--mixed-widths", "auto"), ("jax", "--replicas", "fractional")):
            with self.subTest(framework=framework, options=options):
                result = run("automap-infer", TINY, "--cluster", "config-b", "--for", framework, *options)
                self.assert_fails(result, 2, f"{options[0]} {options[1]}", f"--for {framework}", "drop one of them")

    def test_names(self):
        result = run("automap-infer", TINY, "--cluster", "config-b", "--for", "megtron")
        self.assert_fails(result, 2, "--for", "did you mean 'megatron'?", "deepspeed")
        self.assertIn("--for any|jax|maxtext|torch|torchtitan|megatron|deepspeed",
                      " ".join(run("automap-infer", "--help").stdout.split()))

    def test_what_cannot_be(self):
        """Why there is no plan is said by what the framework lacks."""
        for model, stages, why in ((GPT2, 5, "12 layers of the model do not divide into 5 stages"),
                                   (FIXTURES / "t5_6_6.hlo.gz", 2, "not one stack of layers"),
                                   (TINY, 9, "3 layers, too few for 9 stages")):
            framework = "torch" if stages == 9 else "jax"
            with self.subTest(framework=framework, stages=stages):
                result = run("automap-infer", model, "--cluster", "config-c", "--for", framework, "--stages", stages,
                             "--planner", "policy")
                self.assert_fails(result, 4, why, f"drop --for {framework}")

    def test_layouts(self):
        layout = "dp=4,pp=4,micro-batch-size=1"
        given = (GPT2, "--cluster", "config-c", "--for")
        self.assertEqual(self.plan(*given, "megatron", "--layout", layout)["schedule"], "1f1b")
        self.assertEqual(self.plan(*given, "jax", "--layout", layout)["schedule"], "gpipe")
        for framework, more, why in (("megatron", ",zero=2", "ZeRO 2 with pipeline stages"),
                                     ("megatron", ",schedule=gpipe", "the schedule gpipe")):
            result = run("automap-infer", *given, framework, "--layout", layout + more)
            self.assert_fails(result, 2, "--layout", f"{framework} cannot run {why}")
        result = run("automap-infer", *given, "jax", "--layout", layout.replace("pp=4", "pp=5"))
        self.assert_fails(result, 2, "stages of different numbers of layers")
        # A plan of a file likewise.
        plan = self.put("plan.json", json.dumps(self.plan(GPT2, "--cluster", "config-c", "--layout", layout + ",schedule=gpipe")))
        result = run("automap-infer", *given, "megatron", "--plan", plan)
        self.assert_fails(result, 2, "megatron cannot run the schedule gpipe")

    def test_sweeps(self):
        layouts = {}
        for name in ("any", "maxtext", "deepspeed"):
            result = run("automap-infer", TINY, "--cluster", "config-c", "--for", name, "--sweep", "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            layouts[name] = json.loads(result.stdout)["layouts"]
        for one in layouts["maxtext"]:
            self.assertIn(one["zero"], (0, 3))
        for one in layouts["deepspeed"]:
            self.assertEqual(one["schedule"], "1f1b")
            self.assertTrue(one["pp"] == 1 or one["zero"] < 2, one)
        self.assertTrue(any(one["pp"] > 1 and one["zero"] > 1 for one in layouts["any"]))

    def test_models_without_layers(self):
        model = self.put("small.csv", profile_csv(12))
        for name, says in (("any", 0), ("megatron", 1), ("jax", 1)):
            plan = self.plan(model, "--cluster", "config-a", "--for", name, "--stages", "2", "--planner", "policy")
            self.assertEqual(len(plan["stages"]), 2)
            self.assertEqual(sum("names no layers" in warning for warning in plan["warnings"]), says, name)


if __name__ == "__main__":
    unittest.main()
