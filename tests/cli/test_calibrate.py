"""automap-profile --calibrate and scripts/measure_device.py: what is written, what is refused, and, where there is a
Python with jax, the loop on this machine's CPU: measure, calibrate, predict whole steps, run them."""

import json
import os
import subprocess
import unittest

from programs import BIN, FIXTURES, NO_JAX, SOURCE, ProgramTest, environment, python_with_jax, run

PYTHON = python_with_jax()


def measured(**changes):
    rows = [{"kind": "matmul", "type": "f32", "batch": 1, "m": side, "n": side, "k": side, "us": side**3 / 5e4}
            for side in (64, 128, 256, 512)]
    rows += [{"kind": "copy", "type": "f32", "elements": 1 << power, "us": (1 << power) / 1e3} for power in (16, 20, 24)]
    return {"schema": "automap.measurements/1", "device": "a cpu", "cores": 2, "memory_gib": 8, "measured": rows, **changes}


class Calibrate(ProgramTest):
    def write(self, document):
        path = os.path.join(self._folder.name, "measured.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(document if isinstance(document, str) else json.dumps(document))
        return path

    def test_a_device_file_that_profiles_take(self):
        path, device = self.write(measured()), os.path.join(self._folder.name, "device.json")
        done = run("automap-profile", "--calibrate", path, "-o", device)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("matmul", done.stdout)
        self.assertIn("not measured, assumed:", done.stdout)
        with open(device, encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(json.loads(text)["name"], "a cpu")
        self.assertEqual(run("automap-profile", "--calibrate", path).stdout, text)
        mlp = FIXTURES / "tiny_mlp.stripped.hlo"
        profiled = run("automap-profile", mlp, "--device", device, "--json")
        self.assertEqual(profiled.returncode, 0, profiled.stderr)
        self.assertEqual(json.loads(profiled.stdout)["device"], "a cpu")

    def refused(self, code, says, *arguments):
        done = run("automap-profile", *arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(says, done.stderr)

    def test_what_is_wrong_is_named(self):
        path = self.write(measured())
        self.refused(2, "the measurements are of 'a cpu', not of h100", "--calibrate", path, "--device", "h100")
        self.refused(2, "--calibrate makes a device file and takes no MODEL", FIXTURES / "tiny_mlp.stripped.hlo",
                     "--calibrate", path)
        self.refused(2, "missing MODEL")
        few = measured()
        few["measured"] = few["measured"][:2] + few["measured"][4:]
        self.refused(2, "found 2 different sizes of matmul in f32, expected at least 3", "--calibrate", self.write(few))
        self.refused(2, "measured.json:1:", "--calibrate", self.write(json.dumps(measured())[:200]))
        self.refused(2, "automap.cluster/1", "--calibrate", self.write(measured(schema="automap.cluster/1")))

    @unittest.skipUnless(PYTHON, NO_JAX)
    def test_the_script_runs_on_a_cpu(self):
        path = os.path.join(self._folder.name, "measured.json")
        done = subprocess.run(
            [PYTHON, SOURCE / "scripts/measure_device.py", "--quick", "--repeats", "2", "--seconds", "0.02", "-o", path],
            env=environment(JAX_PLATFORMS="cpu"), capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        kinds = {row["kind"] for row in document["measured"]}
        self.assertLessEqual({"matmul", "convolution", "softmax", "copy", "launch", "module"}, kinds)
        self.assertEqual(run("automap-profile", "--calibrate", path).returncode, 0)

    # Minutes long; on a machine that others use the bounds are loose.
    @unittest.skipUnless(PYTHON and os.environ.get("AUTOMAP_CORPUS"), "AUTOMAP_CORPUS is not set, or " + NO_JAX)
    def test_the_loop_is_closed(self):
        path = os.path.join(self._folder.name, "loop.json")
        done = subprocess.run([PYTHON, SOURCE / "scripts/closed_loop.py", "--bin", BIN, "--seconds", "1.5", "--cpu-time",
                               "--json", path],
                              env=environment(JAX_PLATFORMS="cpu"), capture_output=True, text=True, timeout=1700)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, encoding="utf-8") as file:
            summary = json.load(file)
        self.assertEqual(len(summary["models"]), 10)
        self.assertGreater(summary["rank_correlation"], 0.85, done.stdout)
        self.assertLess(summary["median_error"], 0.5, done.stdout)


if __name__ == "__main__":
    unittest.main()
