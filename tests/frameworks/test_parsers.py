"""The golden files of automap-emit, judged by the frameworks' own parsers and configuration classes."""

import json
import re
import unittest

from judging import NO_FRAMEWORKS, PYTHON, JudgedTest
from programs import SOURCE

GOLDEN = SOURCE / "tests" / "data" / "emit"


def golden(framework):
    """(name, {file suffix: text}, whole) of every plan that the framework can run."""
    for entry in (GOLDEN / f"{framework}.txt").read_text().split("=== ")[1:]:
        name, rest = entry.split("\n", 1)
        files = dict(part.split("\n", 1) for part in re.split(r"(?m)^--- FILE ?", rest)[1:])
        if files:
            yield name, files, rest


@unittest.skipUnless(PYTHON, NO_FRAMEWORKS)
class Parsers(JudgedTest):
    def test_megatrons_layouts(self):
        seen = 0
        for name, files, _ in golden("megatron"):
            words = files[""].split()
            if "--pipeline-model-parallel-layout" not in words:
                continue
            layout = words[words.index("--pipeline-model-parallel-layout") + 1]
            counts = [part.count("t") for part in layout.split("|")]
            stages = int(words[words.index("--pipeline-model-parallel-size") + 1])
            with self.subTest(name):
                self.assertEqual(self.judge("megatron", layout, stages, sum(counts)), counts)
                seen += 1
        self.assertGreaterEqual(seen, 4)
        # It refuses what it should: another number of layers.
        with self.assertRaises(AssertionError):
            self.judge("megatron", "Ett|tL", 2, 4)

    def test_megatrons_options_are_fields_of_its_classes(self):
        fields = set(self.judge("megatron-fields"))
        options = set()
        for _, files, _ in golden("megatron"):
            options |= {word[2:].replace("-", "_") for word in files[""].split() if word.startswith("--")}
        # These are of Megatron-LM's scripts, which are not in the package.
        options -= {"micro_batch_size", "global_batch_size", "ckpt_format", "no_gradient_accumulation_fusion",
                    "num_layers_per_virtual_pipeline_stage"}
        self.assertGreaterEqual(len(options), 9)
        self.assertEqual(options - fields, set())

    def test_torchtitans_tables(self):
        seen = 0
        for name, files, _ in golden("torchtitan"):
            with self.subTest(name):
                config = self.judge("torchtitan", self.put("plan.toml", files[""]))
                parallel, training = config["parallelism"], config["training"]
                for line in files[""].split("\n"):
                    if line[:1].isalpha() and " = " in line and not line.endswith("["):
                        key, value = line.split(" = ")
                        found = {**training, **parallel, **config["activation_checkpoint"]}[key]
                        self.assertEqual(str(found), value.strip('"'), key)
                if parallel["pipeline_parallel_degree"] > 1:
                    chunks = 2 if parallel["pipeline_parallel_schedule"] == "Interleaved1F1B" else 1
                    self.assertEqual(len(parallel["module_fqns_per_model_part"]), chunks * parallel["pipeline_parallel_degree"])
                    self.assertEqual(training["local_batch_size"] % parallel["pipeline_parallel_microbatch_size"], 0)
                seen += 1
        self.assertGreaterEqual(seen, 4)
        with self.assertRaises(AssertionError):
            self.judge("torchtitan", self.put("bad.toml", "[parallelism]\ntensor_parallel_degre = 2\n"))

    def test_deepspeeds_configuration(self):
        seen = pipelines = 0
        for name, files, _ in golden("deepspeed"):
            with self.subTest(name):
                wanted = json.loads(files[""])
                per_replica = wanted["train_micro_batch_size_per_gpu"] * wanted["gradient_accumulation_steps"]
                replicas = wanted["train_batch_size"] // per_replica
                config = self.judge("deepspeed", self.put("ds.json", files[""]), replicas)
                self.assertEqual((config["stage"], config["batch"], config["micro"], config["steps"]),
                                 (wanted["zero_optimization"]["stage"], wanted["train_batch_size"],
                                  wanted["train_micro_batch_size_per_gpu"], wanted["gradient_accumulation_steps"]))
                self.assertEqual(config["tp"], wanted.get("tensor_parallel", {}).get("autotp_size", 0))
                # A wrong number of replicas is none of it.
                with self.assertRaises(AssertionError):
                    self.judge("deepspeed", self.folder / "ds.json", replicas + 1)
                seen += 1
                if "stages" not in files:
                    continue
                pipelines += 1
                stages = self.put("stages.py", files["stages"])
                width = int(re.search(r"(?m)^WIDTH = (\d+)", files["stages"])[1])
                ranks = wanted["pipeline"]["stages"] * replicas * width
                of_ranks = self.judge("deepspeed-stages", stages, ranks)
                lists = re.findall(r"(?m)^    (\[.*\]),$", files["stages"])
                self.assertEqual(of_ranks, [json.loads(lists[rank // (replicas * width)]) for rank in range(ranks)])
        self.assertGreaterEqual(seen, 6)
        self.assertGreaterEqual(pipelines, 3)

    def test_deepspeeds_include(self):
        seen = 0
        for name, _, whole in golden("deepspeed"):
            include = re.search(r"--include (\S+)", whole)
            slots = re.search(r"(?m)^and: a hostfile .*slots=(.*)$", whole)
            if not include:
                continue
            with self.subTest(name):
                wanted = [one.split(":") for one in include[1].split("@")]
                has = slots[1].split(", ") if slots else ["8"]
                hosts = ",".join(f"{host}={slots}" for (host, _), slots in zip(wanted, has, strict=True))
                chosen = self.judge("deepspeed-include", hosts, include[1])
                self.assertEqual(chosen, [[host, [int(one) for one in devices.split(",")]] for host, devices in wanted])
                seen += 1
        self.assertGreaterEqual(seen, 2)
        # The order of servers is the hostfile's, that of devices is their own: what is emitted has both so.
        self.assertEqual(self.judge("deepspeed-include", "a=4,b=4", "b:3,2@a:1"), [["a", [1]], ["b", [2, 3]]])

    def test_maxtexts_configuration(self):
        seen = pipelines = 0
        for name, files, _ in golden("maxtext"):
            with self.subTest(name):
                self.judge_maxtext(files[""])
                seen += 1
                pipelines += "num_pipeline_microbatches" in files[""]
        self.assertGreaterEqual(seen, 8)
        self.assertGreaterEqual(pipelines, 2)
        with self.assertRaises(AssertionError):
            self.judge("maxtext", self.put("bad.yml", 'base_config: "base.yml"\nici_fsdp_paralelism: 8\n'), 8, 8)


if __name__ == "__main__":
    unittest.main()
