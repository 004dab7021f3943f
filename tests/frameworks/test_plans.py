"""Twenty plans of fixtures and of decoders of 7, 13 and 70 billion weights, for each of six frameworks: planned, written, judged by
the framework's own parser, and read back as the same plan."""

import ast
import json
import os
import subprocess
import unittest

from judging import NO_FRAMEWORKS, PYTHON, JudgedTest
from programs import FIXTURES, NO_JAX, SOURCE, python_with_jax, run

JAX = python_with_jax()
DECODERS = {"7b": (32, 4096, 32, 32, 11008), "13b": (40, 5120, 40, 40, 13824), "70b": (80, 8192, 64, 8, 28672)}
PLANS = [("gpt2", "h100-1x8", 64, "--stages", "1"), ("gpt2", "a100-2x8", 256, "--stages", "2"),
         ("gpt2", "config-c", 256, "--stages", "4"), ("gpt2", "h100-2x8", 256, "--stages", "1", "--zero", "3"),
         ("gpt2", "a100-2x8", 64, "--stages", "2", "--max-width", "2", "--recompute", "layer"),
         ("gpt2", "a100-2x8", 256, "--gradient-sync", "after"), ("transformer_scan", "h100-1x8", 64),
         ("transformer_scan", "a100-2x8", 64, "--stages", "2"), ("llama_8b", "h100-4x8", 256),
         ("llama_8b", "a100-2x8", 256, "--stages", "2"), ("7b", "h100-4x8", 256), ("7b", "a100-2x8", 256, "--stages", "2"),
         ("7b", "a100-2x8", 256, "--stages", "4"), ("13b", "h100-4x8", 256), ("13b", "a100-2x8", 256, "--stages", "2"),
         ("13b", "h100-4x8", 256, "--stages", "4", "--recompute", "layer"), ("70b", "h100-4x8", 256), ("70b", "a100-2x8", 256),
         ("70b", "h100-4x8", 256, "--stages", "4"), ("70b", "h100-4x8", 256, "--stages", "8")]


def what(plan):
    """What a plan is and takes."""
    parts = [(part["first_instruction"], part["last_instruction"]) for part in plan["parts"]]
    groups = [(group["devices"], group["replicas"], group["width"], group["zero"], group["recompute"]) for group in plan["groups"]]
    return (parts, groups, plan["micro_batches"], plan["micro_batch_samples"], plan["schedule"]["name"], plan["gradient_sync"],
            plan["step_ms"], plan["simulated_step_ms"])


@unittest.skipUnless(PYTHON, NO_FRAMEWORKS)
@unittest.skipUnless(JAX, NO_JAX)
class Plans(JudgedTest):
    def model(self, name):
        if name not in DECODERS:
            return FIXTURES / f"{name}.hlo.gz"
        path = self.folder / f"{name}.hlo"
        if not path.exists():
            layers, width, heads, groups, hidden = DECODERS[name]
            done = subprocess.run(
                [JAX, "-B", SOURCE / "scripts" / "export_decoder.py", "--num-layers", str(layers), "--hidden-size", str(width),
                 "--num-attention-heads", str(heads), "--num-query-groups", str(groups), "--ffn-hidden-size", str(hidden), "--swiglu",
                 "--vocab-size", "32000", "--untie-embeddings-and-output-weights", "--seq-length", "4096", "--bf16", "-o", path],
                capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def judge_files(self, framework, files, plan):
        """By the framework, or, where it has no parser of such files, by Python."""
        text = files["main"]
        groups, counts = plan["groups"], (plan.get("layer_split") or {}).get("layers_per_stage", {})
        if framework == "megatron":
            words = text.split()
            known = set(self.judge("megatron-fields"))
            self.assertIn("pipeline_model_parallel_layout", known)
            if "--pipeline-model-parallel-layout" in words:
                layout = words[words.index("--pipeline-model-parallel-layout") + 1]
                (of_stack,) = counts.values()
                self.assertEqual(self.judge("megatron", layout, len(groups), sum(of_stack)), of_stack)
        elif framework == "torchtitan":
            parallel = self.judge("torchtitan", self.put("plan.toml", text))["parallelism"]
            self.assertEqual((parallel["pipeline_parallel_degree"], parallel["tensor_parallel_degree"]), (len(groups), groups[0]["width"]))
            if len(groups) > 1:
                parts = parallel["module_fqns_per_model_part"]
                (of_stack,) = counts.values()
                self.assertEqual([sum("layers." in name for name in part) for part in parts], of_stack)
        elif framework == "deepspeed":
            config = self.judge("deepspeed", self.put("ds.json", text), groups[0]["replicas"])
            self.assertEqual((config["batch"], config["stage"]), (plan["batch"], groups[0]["zero"]))
            if "stages" in files:
                ranks = sum(group["replicas"] * group["width"] for group in groups)
                of_ranks = self.judge("deepspeed-stages", self.put("ds_stages.py", files["stages"]), ranks)
                self.assertEqual(len(of_ranks), ranks)
                self.assertNotEqual(of_ranks[0], of_ranks[-1])
        elif framework == "maxtext":
            self.judge_maxtext(text)
        else:
            ast.parse(text)

    def test_twenty_plans(self):
        log = open(os.environ.get("AUTOMAP_PLANS_LOG", os.devnull), "w")
        seen = {}
        for name, cluster, batch, *options in PLANS:
            for framework in ("megatron", "torchtitan", "deepspeed", "torch", "maxtext", "jax"):
                with self.subTest(framework=framework, model=name, cluster=cluster, options=options):
                    model, path = self.model(name), self.folder / "plan.json"
                    planned = run("automap-infer", model, "--cluster", cluster, "--batch", batch, "--for", framework, "--explore", "off",
                                  *options, "-o", path, "-q")
                    asked = f"{framework}: {name} on {cluster}, {' '.join(options)}"
                    if planned.returncode == 4:  # nothing of its kinds of plans fits
                        print(f"{asked}: no plan", file=log, flush=True)
                        continue
                    self.assertEqual(planned.returncode, 0, planned.stderr)
                    plan = json.loads(path.read_text())
                    done = run("automap-emit", path, "--to", framework, "-o", self.folder / "out.yml", "--json")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    said = json.loads(done.stdout)
                    self.judge_files(framework, said["files"], plan)
                    # As people paste it.
                    done = run("automap-infer", model, "--cluster", cluster, "--layout", "".join(said["files"].values()), "--json")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    read = json.loads(done.stdout)
                    # Where gradients are summed beside the backward pass in any case it is said, and another step; MaxText and JAX
                    # have no word for it.
                    beside = "--gradient-sync overlap" in " ".join(said["missing"])
                    self.assertEqual(beside, plan["gradient_sync"] == "after" and framework in ("torch", "torchtitan") or
                                     plan["gradient_sync"] == "after" and framework == "megatron" and plan["groups"][0]["zero"] > 1)
                    if not beside and (plan["gradient_sync"] == "overlap" or framework not in ("maxtext", "jax")):
                        self.assertEqual(what(read), what(plan))
                    group = plan["groups"][0]
                    print(f"{asked}: {len(plan['groups'])} stages of {group['replicas']} x {group['width']}, ZeRO {group['zero']}, "
                          f"{plan['simulated_step_ms']:.1f} ms: accepted, read back the same", file=log, flush=True)
                    seen[framework] = seen.get(framework, 0) + 1
        log.close()
        self.assertGreaterEqual(min(seen.values()), 15, seen)


if __name__ == "__main__":
    unittest.main()
