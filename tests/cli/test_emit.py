"""automap-emit: a plan as what frameworks take, read back as the same plan; what cannot be run is said, and nothing is written."""

import ast
import json
import os
import re
import subprocess
import tomllib
import unittest

from programs import BIN, FIXTURES, NO_JAX, SOURCE, ProgramTest, environment, python_with_jax, run

GPT2 = FIXTURES / "gpt2.hlo.gz"
T5 = FIXTURES / "t5_6_6.hlo.gz"
LLAMA = FIXTURES / "llama_8b.hlo.gz"
SCAN = FIXTURES / "transformer_scan.hlo.gz"
FRAMEWORKS = ["jax", "maxtext", "torch", "torchtitan", "megatron", "deepspeed"]
JAX = python_with_jax()


def what(plan):
    """What a plan is and takes."""
    parts = [(part["first_instruction"], part["last_instruction"]) for part in plan["parts"]]
    groups = [(group["devices"], group["replicas"], group["width"], group["zero"], group["recompute"]) for group in plan["groups"]]
    return (parts, groups, plan["micro_batches"], plan["micro_batch_samples"], plan["schedule"]["name"], plan["gradient_sync"],
            plan["step_ms"], plan["simulated_step_ms"])


class Emit(ProgramTest):
    def plan(self, model, cluster, batch, framework, *options):
        path = self.folder / f"{framework}.json"
        done = run("automap-infer", model, "--cluster", cluster, "--batch", batch, "--for", framework, "--explore", "off",
                   "--effort", "quick", *options, "-o", path, "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        return path, json.loads(path.read_text())

    def emit(self, path, framework, *options):
        """The main file's text, and what --json says."""
        out = self.folder / f"{framework}.out"
        done = run("automap-emit", path, "--to", framework, "-o", out, "--json", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out.read_text(), json.loads(done.stdout)

    def test_what_is_written_is_the_same_plan_when_it_is_read(self):
        cases = [(GPT2, "config-c", 256, "megatron", "--stages", "4"), (GPT2, "h100-2x8", 256, "megatron"),
                 (GPT2, "a100-2x8", 64, "megatron", "--stages", "2", "--max-width", "2", "--recompute", "layer"),
                 (SCAN, "a100-2x8", 64, "megatron", "--stages", "2"),
                 (GPT2, "h100-2x8", 256, "torchtitan", "--stages", "2"), (GPT2, "h100-2x8", 256, "torchtitan"),
                 (GPT2, "h100-2x8", 256, "maxtext"), (SCAN, "a100-2x8", 64, "maxtext", "--stages", "2"),
                 (GPT2, "h100-2x8", 256, "deepspeed", "--stages", "1", "--zero", "3"),
                 (GPT2, "a100-2x8", 64, "torch", "--stages", "2"), (SCAN, "a100-2x8", 64, "jax", "--stages", "2"),
                 (LLAMA, "a100-2x8", 256, "deepspeed", "--gradient-sync", "after"),
                 (GPT2, "h100-2x8", 256, "deepspeed", "--stages", "2")]
        for model, cluster, batch, framework, *options in cases:
            with self.subTest(framework=framework, options=options):
                path, plan = self.plan(model, cluster, batch, framework, *options)
                text, said = self.emit(path, framework)
                text = "".join(said["files"].values())
                done = run("automap-infer", model, "--cluster", cluster, "--layout", text, "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                read = json.loads(done.stdout)
                self.assertEqual(what(read), what(plan))
                # The plan itself says so, too, and so does the reading.
                self.assertEqual(read["to_type"], plan["to_type"])

    def test_a_wide_plan_is_read_back(self):
        layout = "dp=2,pp=2,tp=4,micro-batch-size=2,schedule=1f1b,layers=7+5,recompute=layer"
        path = self.folder / "wide.json"
        given = (GPT2, "--cluster", "a100-2x8", "--batch", "64")
        self.assertEqual(run("automap-infer", *given, "--layout", layout, "-o", path, "-q").returncode, 0)
        text, said = self.emit(path, "megatron")
        self.assertEqual(said["arguments"][:6], ["--tensor-model-parallel-size", "4", "--sequence-parallel",
                                                 "--pipeline-model-parallel-size", "2", "--pipeline-model-parallel-layout"])
        self.assertEqual(said["arguments"][6], "Ettttttt|tttttL")
        self.assertEqual(said["launch"][:5], ["torchrun", "--nnodes", "2", "--nproc-per-node", "8"])
        plan = json.loads(path.read_text())
        self.assertEqual(plan["layer_split"]["layers_per_stage"], {"h": [7, 5]})
        for words in (text, " ".join([*said["launch"], text])):
            done = run("automap-infer", GPT2, "--cluster", "a100-2x8", "--software", "any", "--layout", words, "--json")
            self.assertEqual(what(json.loads(done.stdout)), what(plan), done.stderr)
        # Words of Megatron are of what runs in it, where no other software is named.
        done = run("automap-infer", GPT2, "--cluster", "a100-2x8", "--layout", text, "--json")
        self.assertIn("software megatron: 80 us", json.loads(done.stdout)["estimates"][0])
        # Without --sequence-parallel it is another step.
        done = run("automap-infer", GPT2, "--cluster", "a100-2x8", "--software", "any", "--layout", text.replace("--sequence-parallel\n", ""), "--json")
        self.assertNotEqual(json.loads(done.stdout)["step_ms"], plan["step_ms"], done.stderr)

    def test_devices_of_the_plans_choice(self):
        layout = "dp=8,pp=2,micro-batch-size=2,schedule=1f1b,zero=1"
        path = self.folder / "plan.json"
        given = (GPT2, "--cluster", "a100-2x8")
        self.assertEqual(run("automap-infer", *given, "--batch", "64", "--layout", layout, "-o", path, "-q").returncode, 0)
        plan = json.loads(path.read_text())
        for groups, says in (([[*range(9, 17)], [*range(1, 9)]], "its servers are 2, 1 of the cluster, in this order"),
                             ([[*range(1, 9)], [*range(9, 17)]], None),
                             ([[*range(1, 9)], [16, *range(9, 16)]], "CUDA_VISIBLE_DEVICES=7,0,1,2,3,4,5,6 on server 2 of the cluster")):
            for group, devices in zip(plan["groups"], groups):
                group["devices"] = devices
            chosen = self.put("chosen.json", json.dumps(plan))
            _, said = self.emit(chosen, "megatron")
            self.assertEqual([one for one in said["missing"] if "of the cluster" in one], [says] if says else [])
            # As automap-infer says of it.
            done = run("automap-infer", *given, "--plan", chosen, "--for", "megatron", "--json")
            self.assertEqual(json.loads(done.stdout)["to_type"]["missing"], said["missing"], done.stderr)
        plan["groups"][0]["devices"], plan["groups"][1]["devices"] = [9, *range(2, 9)], [1, *range(10, 17)]
        self.assert_refused("order comes back to server", self.put("chosen.json", json.dumps(plan)), "--to", "megatron")

    def test_files_are_what_their_readers_take(self):
        path, plan = self.plan(GPT2, "h100-2x8", 256, "torchtitan", "--stages", "4")
        text, _ = self.emit(path, "torchtitan", "--layers", "it's \"x\".{i}")
        modules = tomllib.loads(text)["parallelism"]["module_fqns_per_model_part"]
        counts = plan["layer_split"]["layers_per_stage"]["h"]
        self.assertEqual([sum("x" in name for name in part) for part in modules], counts)
        self.assertEqual([name for part in modules for name in part if "x" in name], [f"it's \"x\".{i}" for i in range(12)])
        text, _ = self.emit(path, "torch")
        names = {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse(text).body
                 if isinstance(node, ast.Assign) and node.targets[0].id in ("MODULES", "SPLIT_BEFORE", "ZERO")}
        self.assertEqual(names["SPLIT_BEFORE"], plan["layer_split"]["split_spec"])
        self.assertEqual([part[0] for part in names["MODULES"][1:]], plan["layer_split"]["split_spec"])

        # Lists of work are torch's words for the plan's own, its parts where the plan has them.
        path = self.folder / "searched.json"
        done = run("automap-infer", GPT2, "--cluster", "config-c", "--batch", "256", "--for", "torch", "--stages", "2", "--schedule", "searched",
                   "--effort", "quick", "--max-width", "1", "-o", path, "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(path.read_text())
        names = {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse(self.emit(path, "torch")[0]).body
                 if isinstance(node, ast.Assign) and node.targets[0].id in ("ORDER", "PARTS", "SPLIT_BACKWARD")}
        schedule, split = plan["schedule"], names["SPLIT_BACKWARD"]
        self.assertEqual(split, schedule.get("split_backward", False))
        words = [[(re.match(r"(\d+)([FBIW])(\d+)$", word).groups()) for word in row.split()] for row in names["ORDER"]]
        letters = {"F": "F", "I": "B", "W": "W"} if split else {"F": "F", "B": "B"}
        self.assertEqual([" ".join(f"{letters[kind]}{int(part) + 1}.{int(batch) + 1}" for part, kind, batch in row) for row in words],
                         schedule["order"])
        self.assertEqual([sorted({int(part) for part, *_ in row}) for row in words], names["PARTS"])

        path, plan = self.plan(GPT2, "config-c", 256, "deepspeed", "--stages", "2")
        text, said = self.emit(path, "deepspeed", "--layers", "a\"'\\{i}")
        config = json.loads(text)
        self.assertEqual(config["train_batch_size"], 256)
        self.assertEqual(config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 16, 256)
        stages = ast.parse((self.folder / "deepspeed_stages.py").read_text())
        lists = next(ast.literal_eval(node.value) for node in stages.body
                     if isinstance(node, ast.Assign) and node.targets[0].id == "STAGES")
        self.assertEqual([name for part in lists for name in part if "'" in name], [f"a\"'\\{i}" for i in range(12)])
        # A shell takes the words of the file as they are.
        path, _ = self.plan(GPT2, "config-c", 256, "megatron", "--stages", "4")
        text, said = self.emit(path, "megatron")
        for shell in ("printf '%s\\n' $(cat megatron.out)", "eval \"printf '%s\\n' $(cat megatron.out | tr '\\n' ' ' | sed 's/|/\\\\|/g')\""):
            done = subprocess.run(["sh", "-c", shell], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(done.stdout.split("\n")[:-1], said["arguments"])

    def test_the_model_says_the_same_as_the_file(self):
        path, plan = self.plan(GPT2, "config-c", 256, "megatron", "--stages", "4")
        alone, _ = self.emit(path, "megatron")
        self.assertEqual(self.emit(path, "megatron", "--model", GPT2)[0], alone)
        # An older file says nothing of layers.
        for key in ("stage_layers", "stage_modules"):
            del plan["layer_split"][key]
        old = self.put("old.json", json.dumps(plan))
        self.assert_refused("does not say which layers", old, "--to", "megatron", hint="--model")
        self.assertEqual(self.emit(old, "megatron", "--model", GPT2)[0], alone)
        self.assertIn("is a plan for a model of", run("automap-emit", path, "--to", "megatron", "--model", T5).stderr)

    def assert_refused(self, why, *arguments, hint="", code=2):
        out = self.folder / "refused"
        done = run("automap-emit", *arguments, "-o", out)
        self.assert_fails(done, code, why, hint)
        self.assertEqual([path.name for path in self.folder.glob("refused*")], [])

    def test_what_a_framework_cannot_run_is_said_and_nothing_is_written(self):
        path = self.folder / "free.json"
        free = ("automap-infer", GPT2, "--cluster", "config-c", "--batch", "256", "--stages", "3", "--explore", "off", "--effort", "quick")
        self.assertEqual(run(*free, "-o", path, "-q").returncode, 0)
        for framework in FRAMEWORKS:
            self.assert_refused(f"{framework} cannot run stages of different numbers of devices; nothing was written", path, "--to", framework,
                                hint=f"--for {framework} plans what it can run; --model MODULE finds the nearest")
        out = self.folder / "refused"
        done = run("automap-emit", path, "--to", "maxtext", "--model", GPT2, "-o", out)
        self.assert_fails(done, 2, "stages of different numbers", "the nearest that it can run has ", "--for maxtext", " -o FILE")
        self.assertFalse(out.exists())
        # What it says to type is the plan that it tells of.
        command = done.stderr.split("): ")[1].split(" -o FILE")[0].split()
        told = json.loads(run(*command, "--json").stdout)
        self.assertEqual(told["to_type"]["cannot"], None)
        self.assertIn(f"has {len(told['parts'])} stage", done.stderr)
        takes = re.search(r"and takes ([0-9.]+) (ms|s) ", done.stderr)
        self.assertAlmostEqual(float(takes[1]) * {"ms": 1, "s": 1e3}[takes[2]], told["simulated_step_ms"], delta=0.01 * told["simulated_step_ms"])
        # Of two stacks of layers.
        path, _ = self.plan(T5, "h100-2x8", 64, "deepspeed", "--stages", "2")
        self.assert_refused("pipelines of a model that is not one stack of layers", path, "--to", "megatron")
        self.assert_refused("ZeRO", path, "--to", "torch")
        done = run("automap-infer", T5, "--cluster", "h100-2x8", "--for", "megatron", "--stages", "2", "--explore", "off")
        self.assert_fails(done, 4, "megatron cuts at layers of one stack")

    def test_interleaved_plans_are_virtual_stages(self):
        path = self.folder / "plan.json"
        given = ("--cluster", "config-a", "--batch", "64", "--for", "megatron", "--software", "any", "--max-width", "1", "-q", "-o", path)
        self.assertEqual(run("automap-infer", SCAN, *given).returncode, 0)
        corner = next(one for one in json.loads(path.read_text())["corners"] if one["name"] == "interleaved 1F1B (even)")
        kind = ("--kind", corner["name"])
        text, said = self.emit(path, "megatron", *kind, "--model", SCAN)
        words = said["arguments"]
        stages = int(words[words.index("--pipeline-model-parallel-size") + 1])
        parts = len(corner["chunk_cuts"]) + 1
        self.assertEqual((stages, int(words[words.index("--micro-batch-size") + 1]) * corner["devices"] // stages),
                         (corner["stages"], corner["micro_batch_samples"]))
        if "--pipeline-model-parallel-layout" in words:
            layout = words[words.index("--pipeline-model-parallel-layout") + 1]
            self.assertEqual((layout.count("|") + 1, layout.count("t")), (parts, 24))
        else:
            self.assertEqual(int(words[words.index("--num-layers-per-virtual-pipeline-stage") + 1]) * parts, 24)
        # Read back it is the same: of every framework that has it, each with ZeRO as its pipelines have it.
        for framework, zero in (("megatron", "1"), ("torch", "0"), ("torchtitan", "3")):
            with self.subTest(framework):
                if framework != "megatron":
                    given = (SCAN, "--cluster", "config-a", "--batch", "64", "--for", framework, "--max-width", "1", "--zero", zero)
                    self.assertEqual(run("automap-infer", *given, "--effort", "quick", "-q", "-o", path).returncode, 0)
                row = next(one for one in json.loads(path.read_text())["corners"] if one["name"] == corner["name"])
                layout = self.emit(path, framework, *kind, "--model", SCAN)[0]
                software = () if framework != "megatron" else ("--software", "any")
                done = run("automap-infer", SCAN, "--cluster", "config-a", *software, "--layout", layout, "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                read = json.loads(done.stdout)
                self.assertEqual(read["schedule"]["name"], "interleaved")
                self.assertEqual(read["schedule"]["chunks"], (len(row["chunk_cuts"]) + 1) // row["stages"])
                for key in ("devices", "micro_batches", "micro_batch_samples", "simulated_step_ms"):
                    self.assertEqual(read[key], row[key], key)
                self.assertEqual([part["last_instruction"] for part in read["parts"][:-1]], row["chunk_cuts"])
                self.assertEqual([part["group"] for part in read["parts"]],
                                 [p % row["stages"] + 1 for p in range(len(read["parts"]))])
                self.assertAlmostEqual(max(group["memory_bytes"] for group in read["groups"]), row["memory_bytes"], delta=1)
        # It is a plan like others: shown, written, scored again to the bit, and told in the same words.
        done = run("automap-infer", SCAN, "--cluster", "config-a", "--layout", text, "-o", self.folder / "layout.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(max(map(len, done.stdout.split("\nTo type")[0].split("\n"))), 100)
        self.assertIn("schedule interleaved", " ".join(done.stdout.split()))
        written = json.loads((self.folder / "layout.json").read_text())
        again = run("automap-infer", SCAN, "--cluster", "config-a", "--plan", self.folder / "layout.json", "--json")
        self.assertEqual(json.loads(again.stdout)["simulated_step_ms"], written["simulated_step_ms"])
        self.assertEqual(self.emit(self.folder / "layout.json", "megatron", "--model", SCAN)[1]["arguments"], words)
        for layout, why in (("dp=2,pp=2,chunks=2", "three stages"), ("dp=1,pp=4,chunks=2", "without the samples"),
                            ("dp=1,pp=4,chunks=2,schedule=gpipe,micro-batch-size=1", "schedule gpipe"),
                            ("dp=1,pp=4,chunks=2,layers=1+2,micro-batch-size=1", "2 numbers for pp=4 stages of 2 chunks"),
                            ("dp=1,pp=4,layers-per-chunk=5,micro-batch-size=1", "a stack of 24"),
                            ("dp=1,pp=4,chunks=2,layers-per-chunk=3", "say the same")):
            self.assert_fails(run("automap-infer", SCAN, "--cluster", "config-a", "--layout", layout), 2, why)
        self.assert_refused("needs the model", path, "--to", "torchtitan", *kind, hint="--model MODULE")
        self.assert_refused("cannot run interleaved 1F1B", path, "--to", "deepspeed", *kind, "--model", SCAN)
        self.assert_refused("no plan of the kind 'x'", path, "--to", "torchtitan", "--kind", "x", hint=corner["name"])

    def test_versions(self):
        """What differs by version is written in its words, read back, and what is not known is refused."""
        path, plan = self.plan(GPT2, "h100-2x8", 256, "torchtitan", "--stages", "2")
        (begins,) = re.findall(r'pipeline_parallel_split_points = \["(layers\.\d+)"\]', self.emit(path, "torchtitan", "--framework-version", "0.1.0")[0])
        text = self.emit(path, "torchtitan", "--framework-version", "0.1.0")[0]
        self.assertNotIn("module_fqns_per_model_part", text)
        self.assertEqual(int(begins.split(".")[1]), plan["layer_split"]["layers_per_stage"]["h"][0])
        done = run("automap-infer", GPT2, "--cluster", "h100-2x8", "--layout", text, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(what(json.loads(done.stdout)), what(plan))
        path, plan = self.plan(GPT2, "h100-2x8", 256, "megatron", "--stages", "1", "--zero", "3")
        for version, word in (("0.12", "--use-custom-fsdp"), ("core_v0.13.1", "--use-custom-fsdp"), ("0.14.0", "--use-megatron-fsdp"),
                              ("v0.16.1", "--use-megatron-fsdp")):
            text, said = self.emit(path, "megatron", "--framework-version", version)
            self.assertIn(word, text.split())
            self.assertEqual("fsdp_dtensor" in text, word == "--use-megatron-fsdp")
            self.assertEqual(said["version"], version)
            done = run("automap-infer", GPT2, "--cluster", "h100-2x8", "--layout", text, "--json")
            self.assertEqual(what(json.loads(done.stdout)), what(plan), done.stderr)
        path, _ = self.plan(GPT2, "config-c", 256, "megatron", "--stages", "5")
        self.assert_refused("before core 0.13", path, "--to", "megatron", "--framework-version", "0.12.3")
        for framework, version, known in (("megatron", "0.11", "0.12 to 0.16"), ("megatron", "3.0", "0.12 to 0.16"), ("torch", "2.5.1", "2.6 to 2.9"),
                                          ("torchtitan", "0.3.0", "0.1 to 0.2"), ("deepspeed", "0.20", "0.15 to 0.19"),
                                          ("maxtext", "0.3", "0.1 to 0.2"), ("jax", "0.3.25", "0.4 to 0.10")):
            self.assert_refused(f"of which versions {known} are", path, "--to", framework, "--framework-version", version)
        for version in ("x", "16", "0.x", "1.2x", ""):
            if version:
                self.assert_refused("expected a version", path, "--to", "megatron", "--framework-version", version, hint="0.12 to 0.16")

    def test_bad_input(self):
        path, plan = self.plan(GPT2, "config-c", 256, "megatron", "--stages", "2")
        self.assert_refused("found 'megatrn'", path, "--to", "megatrn", hint="megatron")
        for layers in ("h", "{i}.{i}", "h.{j}"):
            self.assert_refused("a name with {i} once", path, "--to", "megatron", "--layers", layers)
        self.assert_refused("is a plan for 32", path, "--to", "megatron", "--cluster", "h100-1x8")
        self.assert_refused("", self.put("no.json", "{}"), "--to", "megatron", code=3)
        self.assert_refused("missing.json", self.folder / "missing.json", "--to", "megatron", code=3)
        for key, value, why in (("stage_layers", [["h/0"]], "1 lists, expected 2"), ("stage_modules", ["h", "x"], "stage_modules[0]")):
            bad = json.loads(json.dumps(plan))
            bad["layer_split"][key] = value
            self.assert_refused(why, self.put("bad.json", json.dumps(bad)), "--to", "megatron", code=3)
        bad = json.loads(json.dumps(plan))
        bad["partition"] = {"partition": {"w": "x"}}
        self.assert_refused("partition", self.put("bad.json", json.dumps(bad)), "--to", "megatron", code=3)
        # The second file's place is taken: neither is written.
        path, _ = self.plan(GPT2, "config-c", 256, "deepspeed", "--stages", "2")
        (self.folder / "two_stages.py").mkdir()
        done = run("automap-emit", path, "--to", "deepspeed", "-o", self.folder / "two")
        self.assertNotEqual(done.returncode, 0)
        self.assertFalse((self.folder / "two").exists())
        self.assert_fails(run("automap-emit", path, "--to", "deepspeed"), 2, "several files", "-o FILE")

    def test_the_servers_of_any_cluster_are_known(self):
        # Of a name of the grammar, and of the file that the cluster was read from; not of one that has changed since.
        words = {"schema": "automap.cluster/1", "name": "ours",
                 "servers": [{"count": 2, "devices": 4, "device": "a100-80gb", "intra_gbytes_per_s": 200, "inter_gbytes_per_s": 20}]}
        file = self.put("ours.json", json.dumps(words))
        for cluster in ("a100-80gb-2x4", file):
            path, _ = self.plan(GPT2, cluster, 64, "maxtext", "--stages", "1", "--max-width", "1", "--zero", "3")
            text, said = self.emit(path, "maxtext")
            self.assertIn("dcn_fsdp_parallelism: 2\nici_fsdp_parallelism: 4\n", text)
        words["servers"][0]["count"] = 3
        self.put("ours.json", json.dumps(words))
        done = run("automap-emit", path, "--to", "megatron")
        self.assertIn("its cluster, ours, has changed since; give --cluster", done.stderr)
        self.assertNotIn("--nnodes", done.stdout)
        os.remove(file)
        self.assertIn("is in no file that is here; give --cluster", run("automap-emit", path, "--to", "megatron").stderr)

    def test_heads_are_whole_and_pipelines_of_deepspeed_narrow(self):
        # GPT-2 has 12 heads.
        given = ("automap-infer", GPT2, "--cluster", "h100-2x8", "--batch", "64", "--layout")
        for words in ("--tensor-model-parallel-size 8 --micro-batch-size 1", "ici_fsdp_parallelism=1 ici_tensor_parallelism=8 per_device_batch_size=0.125"):
            self.assert_fails(run(*given, words), 2, "replicas of 8 devices, which do not divide the 12 heads of its attention's keys")
        self.assertEqual(run(*given, "dp=2,tp=8,micro-batch-size=1").returncode, 0)
        self.assert_fails(run(*given, "dp=2,pp=2,tp=4,micro-batch-size=1,schedule=1f1b", "--for", "deepspeed"), 2,
                          "deepspeed cannot run replicas of several devices in a pipeline")
        for framework, options in (("megatron", ()), ("deepspeed", ("--stages", "2"))):
            _, plan = self.plan(GPT2, "h100-2x8", 16, framework, *options)
            self.assertEqual(plan["attention_heads"], 12)
            widths = {group["width"] for group in plan["groups"]}
            self.assertLessEqual(widths, {1} if options else {1, 2, 4})

    def test_reports_end_with_what_to_type(self):
        # Of a module that JAX made, in MaxText's words, as far as it can run the plan.
        plain = ("automap-infer", GPT2, "--cluster", "h100-2x8", "--batch", "256", "--explore", "off", "--effort", "quick")
        report = run(*plain, "--stages", "1", "--zero", "3").stdout
        self.assertIn("\nTo type for maxtext\n  python3 -m maxtext.trainers.pre_train.train src/maxtext/configs/base.yml dcn_data_parallelism=", report)
        report = run(*plain, "--stages", "2", "--schedule", "1f1b").stdout
        self.assertTrue(report.rstrip().split("\n\n")[-1].startswith("To type      nothing: maxtext cannot run "), report)
        out = self.folder / "a plan.json"
        for options, last in (((), "-o PLAN here, then automap emit PLAN"), (("-o", out), f"automap emit '{out}'")):
            report = run(*plain, "--for", "megatron", *options).stdout
            self.assertIn("\nTo type for megatron\n  torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --", report)
            self.assertTrue(report.endswith(f"  what else is to do, a file, other frameworks: {last} --to megatron -o FILE\n"), report)
            self.assertNotIn("  and: ", report)
            report = run(*plain, "--for", "megatron", "--details", *options).stdout
            self.assertTrue(report.endswith(f"  and: the model's own arguments (sizes, precision) and those of the data\n"
                                            f"  a file, other frameworks: {last} --to megatron -o FILE\n"), report)
        # What it says to type is typed in a shell.
        for framework, typed in (("megatron", 'pretrain_gpt.py $(cat it.args)'), ("deepspeed", "--deepspeed_config it.args"),
                                 ("torchtitan", "-m torchtitan.train --job.config_file it.args"), ("maxtext", "-m maxtext.trainers.pre_train.train it.args")):
            path, _ = self.plan(GPT2, "h100-2x8", 256, framework, "--stages", "1")
            done = subprocess.run([BIN / "automap-emit", path, "--to", framework, "-o", "it.args"], cwd=self.folder, capture_output=True, text=True)
            self.assertIn(typed + "\n", done.stderr)
        # A profile tells of no framework.
        profile = self.put("p.csv", "c_ms,a_bytes,w_bytes,stash_bytes\n" + "1,1e6,1e6,1e6\n" * 8)
        self.assertIn("\nTo type      --for FRAMEWORK says it: jax or maxtext or ", run("automap-infer", profile, "--cluster", "config-c").stdout)

    def test_the_nearest_plan_is_told_instead(self):
        asked = ("automap-infer", SCAN, "--cluster", "config-c", "--effort", "quick", "--stages", "2")
        plan = json.loads(run(*asked, "--json").stdout)
        told = plan["to_type"]
        self.assertEqual(told["framework"], "maxtext")
        self.assertRegex(told["cannot"], "the schedule searched|ZeRO levels that differ from stage to stage")
        # What is typed is that plan, and it takes as long as is said.
        near = run("automap-infer", SCAN, "--cluster", "config-c", "--layout", " ".join(told["arguments"]), "--json")
        self.assertEqual(near.returncode, 0, near.stderr)
        self.assertAlmostEqual(json.loads(near.stdout)["simulated_step_ms"], told["instead"]["simulated_step_ms"], delta=1e-12)
        self.assertGreater(told["instead"]["simulated_step_ms"], plan["simulated_step_ms"])
        report = run(*asked).stdout
        self.assertIn(f"To type for maxtext, which cannot run {told['cannot']}: {told['instead']['plan']}, ", " ".join(report.split()))
        self.assertIn("--for maxtext -o PLAN here, then automap emit PLAN --to maxtext -o FILE\n", report)
        # The file that is written holds the plan itself.
        path = self.folder / "plan.json"
        self.assertIn("--for maxtext -o PLAN here", run(*asked, "-o", path).stdout)
        # Where one framework is asked for, or one kind of plan alone, nothing is looked for beside it.
        self.assertNotIn("instead", json.loads(run(*asked, "--explore", "off", "--json").stdout)["to_type"])

    def test_the_examples_of_the_pages_are_as_written(self):
        (self.folder / "fixtures").symlink_to(SOURCE / "fixtures")
        for framework in FRAMEWORKS:
            with self.subTest(framework):
                page = (SOURCE / "docs" / "emit" / f"{framework}.md").read_text()
                blocks = [re.sub(r"(?m)^    ", "", block) for block in re.findall(r"(?m)(?:^(?:    .*)?\n)*^    .*\n", page)]
                for command in blocks[0].strip().split("\n"):
                    done = subprocess.run(["bash", "-c", command], cwd=self.folder, capture_output=True, text=True, env=environment())
                    self.assertEqual(done.returncode, 0, done.stderr)
                written = (self.folder / blocks[0].split("-o ")[-1].strip()).read_text()
                if framework not in ("torch", "jax"):  # of scripts the page shows how they are used
                    self.assertEqual(blocks[1].strip(), written.strip())

    def test_layouts_that_are_slips_or_do_not_fit(self):
        given = ("automap-infer", GPT2, "--cluster", "config-c", "--batch", "64", "--layout")
        for layout, why in (("--tensor-model-parallel 8 --micro-batch-size 1", "did you mean --tensor-model-parallel-size?"),
                            ('{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "sequence_parallel_size": 2}', "sequences"),
                            ("ici_fsdp_parallelism=1 " + " ".join(f"{a}_{b}_parallelism=1073741824" for a in ("ici", "dcn") for b in ("data", "pipeline")),
                             "more devices or samples")):
            self.assert_fails(run(*given, layout), 2, why)
        full = run("automap-infer", FIXTURES / "t5_24_24.hlo.gz", "--cluster", "config-c", "--batch", "64", "--layout", "dp=16,micro-batch-size=4")
        self.assertEqual(full.returncode, 4, full.stderr)
        self.assertIn("DOES NOT FIT", full.stdout)
        # Who did not ask for the module's own framework is told which others can.
        report = run(*given, "dp=8,pp=2,micro-batch-size=1,schedule=1f1b").stdout
        self.assertRegex(" ".join(report.split()), r"To type nothing: maxtext cannot run .*; it can be run with .*--for megatron")

    def test_layouts_of_uneven_stages(self):
        given = ("automap-infer", GPT2, "--cluster", "config-c", "--batch", "64", "--layout")
        plan = json.loads(run(*given, "dp=2,pp=3,micro-batch-size=1,layers=6+6+0", "--json").stdout)
        self.assertEqual(plan["layer_split"]["layers_per_stage"], {"h": [6, 6, 0]})
        # All that the cluster has devices for.
        plan = json.loads(run(*given, "dp=auto,pp=2,micro-batch-size=1", "--json").stdout)
        self.assertEqual([group["replicas"] for group in plan["groups"]], [16, 16])
        for layers, why in (("6+5", "11 together, the model has 12"), ("12", "1 numbers for pp=2"), ("a+b", "layers is 'a'"),
                            ("+12", "layers is ''")):
            self.assert_fails(run(*given, f"dp=2,pp=2,micro-batch-size=1,layers={layers}"), 2, why)
        self.assert_fails(run(*given, "dp=2,pp=4,micro-batch-size=1,layers=6+6+0+0"), 2, "leaves nothing for stage")
        self.assert_fails(run("automap-infer", T5, "--cluster", "config-c", "--layout", "dp=2,pp=2,micro-batch-size=1,layers=6+6"), 2,
                          "one stack")

    @unittest.skipUnless(JAX, NO_JAX)
    def test_jax_takes_the_specs(self):
        layout = "dp=2,pp=1,tp=2,micro-batch-size=4,zero=3,recompute=layer"
        path = self.folder / "plan.json"
        done = run("automap-infer", GPT2, "--cluster", "h100-1x8", "--batch", "32", "--for", "jax", "--layout", layout, "-o", path, "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(path.read_text())
        plan["groups"][0]["devices"] = [8, 7, 5, 6]
        text, _ = self.emit(self.put("chosen.json", json.dumps(plan)), "jax")
        (self.folder / "plan.py").write_text(text)
        split = {name: dim for name, dim in plan["partition"]["partition"].items() if dim >= 0}
        self.assertGreater(len(split), 20)
        (self.folder / "use.py").write_text(f"SPLIT = {split!r}\n" + """
import jax, jax.numpy as jnp, plan
from jax.sharding import NamedSharding, PartitionSpec as P
on = plan.mesh()
assert [device.id for device in on.devices.flat] == [7, 6, 4, 5], on.devices
assert dict(on.shape) == {"stage": 1, "data": 2, "model": 2}, on.shape
tree = {"h": [{"attn": {"c_attn": {"kernel": jnp.ones((768, 2304)), "bias": jnp.ones((2304,))}}}], "odd": jnp.ones((3, 5))}
try:
    plan.specs(tree)
    raise SystemExit("a variable that the plan does not know is left whole")
except ValueError as error:
    assert "does not know params/odd; it knows params/h/0/attn/c_attn/bias" in str(error), error
specs = plan.specs(tree, unknown="whole")
assert specs["odd"] == P(None, None), specs
assert plan.spec("odd", (4, 8), unknown="whole") == P("data", None)
try:
    plan.spec(next(name for name, dim in SPLIT.items() if dim == 1), (4,))
    raise SystemExit("a dimension that is not there is split")
except ValueError as error:
    assert "(4,)" in str(error), error
for name, dim in SPLIT.items():
    shape, other = (4, 8), 1 - dim
    assert plan.spec(name, shape)[dim] == "model" and plan.spec(name, shape)[other] == "data", name
    dotted = name.replace("']['", ".").replace("'][", "[").replace("['", ".").replace("']", "").replace("]['", "].")
    assert plan.spec(dotted, (12, *shape), stacked=True) == P("stage", *plan.spec(name, shape)), (dotted, name)
sharded = jax.device_put(tree, plan.shardings(specs, on))
step = jax.jit(lambda t, x: plan.between(plan.layer(lambda v: v @ t["h"][0]["attn"]["c_attn"]["kernel"])(x), on).sum())
x = jax.device_put(jnp.ones((8, 4, 768)), NamedSharding(on, plan.BATCH))
assert float(step(sharded, x)) == 8 * 4 * 768 * 2304
""")
        env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
        done = subprocess.run([JAX, "-B", "use.py"], cwd=self.folder, env=env, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
