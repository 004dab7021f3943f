"""The script that automap-emit writes for torch.distributed, run on four processes by gloo: losses are those of one process."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from programs import FIXTURES, ProgramTest, run  # noqa: E402

PYTHON = os.environ.get("AUTOMAP_TORCH_PYTHON")
NO_TORCH = "no torch; AUTOMAP_TORCH_PYTHON names a Python with PyTorch 2.6 or later"
GPT2 = FIXTURES / "gpt2.hlo.gz"


@unittest.skipUnless(PYTHON, NO_TORCH)
class TorchScript(ProgramTest):
    def assert_steps(self, plan):
        script = self.folder / "plan.py"
        done = run("automap-emit", plan, "--to", "torch", "-o", script)
        self.assertEqual(done.returncode, 0, done.stderr)
        steps = Path(__file__).resolve().parent / "torch_steps.py"
        done = subprocess.run([PYTHON, "-B", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", str(steps), str(script)],
                              capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        said = json.loads(done.stdout.strip().split("\n")[-1])
        self.assertLess(said["alone"][-1], said["alone"][0] - 0.1)
        for planned, alone in zip(said["planned"], said["alone"], strict=True):
            self.assertAlmostEqual(planned, alone, delta=2e-5)

    def test_steps_are_those_of_one_process(self):
        for layout in ("dp=2,pp=2,schedule=1f1b,layers=7+5", "dp=2,pp=2,schedule=1f1b,layers=7+5,zero=3,recompute=layer",
                       "dp=2,pp=2,schedule=gpipe,layers=6+6,zero=2", "dp=1,pp=4,schedule=1f1b,layers=4+4+3+1,recompute=layer",
                       "dp=4,pp=1,zero=1", "dp=4,pp=1,zero=3,recompute=layer"):
            with self.subTest(layout):
                plan = self.folder / "plan.json"
                done = run("automap-infer", GPT2, "--cluster", "h100-1x8", "--batch", "16", "--for", "torch", "--layout", layout + ",micro-batch-size=2", "-o", plan, "-q")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assert_steps(plan)

    def test_lists_of_work(self):
        """What _PipelineScheduleRuntime does of the plan's own lists, with the parts as a V among them, and the backward in two passes."""
        for batch, replicas, *options in (("16", 1, "--stages", "4"), ("16", 2, "--stages", "2", "--zero", "0"), ("16", 2, "--stages", "2", "--zero", "3")):
            for schedule in ("searched", "zb-h1", "zb-v") if "3" not in options else ("searched",):
                with self.subTest(schedule=schedule, options=options):
                    plan = self.folder / "plan.json"
                    cluster = self.put("four.json", json.dumps({"name": "four", "servers": [{"devices": 4, "device": "h100", "inter_gbytes_per_s": 50}]}))
                    done = run("automap-infer", GPT2, "--cluster", cluster, "--batch", batch, "--micro-batches", str(8 // replicas), "--for", "torch", "--schedule", schedule, *options, "-o", plan, "-q")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(json.loads(plan.read_text())["schedule"]["name"], schedule)
                    self.assert_steps(plan)


if __name__ == "__main__":
    unittest.main()
