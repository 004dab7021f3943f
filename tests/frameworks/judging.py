"""What automap-emit writes, judged by the frameworks' own parsers and configuration classes (scripts/frameworks_python.sh fetches
them; torch is not among them, so that nothing is run)."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from programs import ProgramTest  # noqa: E402

PYTHON = os.environ.get("AUTOMAP_FRAMEWORKS_PYTHON")
NO_FRAMEWORKS = "no parsers of frameworks; AUTOMAP_FRAMEWORKS_PYTHON=$(scripts/frameworks_python.sh) fetches them"


class JudgedTest(ProgramTest):
    def judge(self, *arguments):
        folder = Path(PYTHON).parent.parent / "frameworks"
        judge = Path(__file__).resolve().parent / "judge.py"
        done = subprocess.run([PYTHON, "-B", str(judge), str(folder), *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.strip().split("\n")[-1])

    def judge_maxtext(self, text):
        """Its class takes the keys as they are, and has the batch that they mean."""
        keys = dict(line.split(": ") for line in text.strip().split("\n"))
        devices = math.prod(int(value) for key, value in keys.items() if key.endswith("_parallelism"))
        stages = int(keys["ici_pipeline_parallelism"]) * int(keys["dcn_pipeline_parallelism"])
        layers = stages * int(keys.get("num_layers_per_pipeline_stage", 1))
        found = self.judge("maxtext", self.put("plan.yml", text), devices, layers)
        for key, value in found["config"].items():
            self.assertEqual(str(value), keys[key].strip('"'), key)
        at_once = float(keys["per_device_batch_size"]) * devices
        self.assertEqual((found["micro"], found["batch"]), (at_once, at_once * int(keys.get("gradient_accumulation_steps", 1))))
