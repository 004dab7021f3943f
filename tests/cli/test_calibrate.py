"""automap-profile --calibrate and scripts/measure_device.py: what is written, what is refused, and, where there is a
Python with jax, the loop on this machine's CPU: measure, calibrate, predict whole steps, run them."""

import contextlib
import io
import json
import os
import subprocess
import sys
import types
import unittest
from unittest import mock

from programs import BIN, FIXTURES, NO_JAX, SOURCE, ProgramTest, environment, python_with_jax, run

sys.path.insert(0, str(SOURCE / "scripts"))

import measure_device  # noqa: E402

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
        self.refused(2, "the measurements are of 'a cpu' with 8.00 GiB of memory, not of h100 with 80.0 GiB", "--calibrate",
                     path, "--device", "h100")
        self.refused(2, "--calibrate makes a device file and takes no MODEL", FIXTURES / "tiny_mlp.stripped.hlo",
                     "--calibrate", path)
        self.refused(2, "missing MODEL")
        few = measured()
        few["measured"] = few["measured"][:2] + few["measured"][4:]
        self.refused(2, "found 2 different sizes of matmul in f32, expected at least 3", "--calibrate", self.write(few))
        small = measured()
        for row in small["measured"]:
            row["us"] *= 1e-6
        self.refused(3, "measured[0]: 0.00000524 us are less than any kernel takes (0.01 us)\n  hint: are these microseconds?",
                     "--calibrate", self.write(small))
        self.refused(2, "measured.json:1:", "--calibrate", self.write(json.dumps(measured())[:200]))
        self.refused(2, "automap.cluster/1", "--calibrate", self.write(measured(schema="automap.cluster/1")))

    def quickly_measured(self, **extra):
        path = os.path.join(self._folder.name, "measured.json")
        done = subprocess.run(
            [PYTHON, SOURCE / "scripts/measure_device.py", "--quick", "--repeats", "2", "--seconds", "0.02", "-o", path],
            env=environment(JAX_PLATFORMS="cpu", **extra), capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, encoding="utf-8") as file:
            return path, json.load(file)["measured"]

    @unittest.skipUnless(PYTHON, NO_JAX)
    def test_the_script_runs_on_two_devices(self):
        path, rows = self.quickly_measured(XLA_FLAGS="--xla_force_host_platform_device_count=2")
        # One device alone is measured where test_the_loop_is_closed closes its loop.
        self.assertEqual({row["kind"] for row in rows}, {"matmul", "convolution", "softmax", "copy", "launch", "module", "all-reduce"})
        reduced = [row for row in rows if row["kind"] == "all-reduce"]
        self.assertEqual([row["bytes"] for row in reduced], [1 << power for power in range(16, 29, 2)])
        self.assertEqual({row["devices"] for row in reduced}, {2})
        device = os.path.join(self._folder.name, "device.json")
        done = run("automap-profile", "--calibrate", path, "-o", device)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("GB/s, fitted to 7 all-reduces of 2 devices", done.stdout)

    def test_a_failing_all_reduce_is_left_out(self):
        class Backend:
            def all_reduce(self, size):
                if size > 1 << 20:
                    raise RuntimeError("no room\nstack")
                return 2, (None, ())

        clock = types.SimpleNamespace(time=lambda function: 1.0)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(measure_device.all_reduces(Backend(), clock), [])
        self.assertIn("warning: all-reduces are left out: RuntimeError: no room\n", said.getvalue())

    def test_a_disturbed_all_reduce_is_timed_again(self):
        backend = types.SimpleNamespace(all_reduce=lambda size: (4, (size, ())))
        times = {1 << power: [float(power)] for power in range(16, 29, 2)}
        times[1 << 20] = [99.0, 50.0, 20.0]
        clock = types.SimpleNamespace(time=lambda size: times[size].pop(0) if len(times[size]) > 1 else times[size][0])
        rows = measure_device.all_reduces(backend, clock)
        self.assertEqual([row["us"] for row in rows], [power * 1e6 for power in range(16, 29, 2)])
        # The largest took 64 ms where 1.8 ms were before it.
        times = {1 << power: [4.0 ** ((power - 16) // 2)] for power in range(16, 29, 2)}
        times[1 << 28] = [9e9, 9e6, 4.0**6]
        rows = measure_device.all_reduces(backend, clock)
        self.assertEqual(rows[-1]["us"], 4.0**6 * 1e6)

    def test_an_all_reduce_takes_no_longer_than_a_larger_one(self):
        backend = types.SimpleNamespace(all_reduce=lambda size: (2, (size, ())))
        times = {1 << power: float(power) for power in range(16, 29, 2)}
        times[1 << 16] = times[1 << 20] = 27.0  # something else goes on whenever these are timed
        rows = measure_device.all_reduces(backend, types.SimpleNamespace(time=lambda size: times[size]))
        self.assertEqual([row["us"] for row in rows], [power * 1e6 for power in (18, 18, 22, 22, 24, 26, 28)])

    def test_disturbed_kernels_are_timed_again(self):
        class Backend:
            on_cpu = True

            def array(self, shape, kind):
                return shape if len(shape) != 2 or shape[0] != 16 else 1.0

            def function(self, kind, count=1):
                return kind

        seconds, times = [], {}

        def time(kind, *shapes):
            key = (kind, *shapes)
            times[key] = times.get(key, 0) + 1
            # All kernels but copies take a second; of those the small ones are disturbed twice.
            work = float(shapes[0][0]) if kind == "copy" else 1.0
            seconds.append(work * (1e9 if kind == "copy" and times[key] < 3 and work < 1e5 else 1))
            return seconds[-1]

        with contextlib.redirect_stderr(io.StringIO()):
            rows = measure_device.measure(Backend(), types.SimpleNamespace(time=time), True)
        copies = [row for row in rows if row["kind"] == "copy"]
        self.assertTrue(any(row["elements"] < 1e5 for row in copies))
        self.assertEqual([row["us"] for row in copies], [row["elements"] * 1e6 for row in copies])
        # The others agree with each other, and are not timed again.
        self.assertEqual({count for key, count in times.items() if key[0] != "copy"}, {1})

    def test_jax_s_pool_is_not_the_memory(self):
        def memory(limit, platform="gpu", **variables):
            device = types.SimpleNamespace(platform=platform, memory_stats=lambda: {"bytes_limit": limit} if limit else None)
            with mock.patch.dict(os.environ, variables):
                for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
                    if name not in variables:
                        os.environ.pop(name, None)
                return measure_device.memory_of(device).get("memory_gib")

        gib = 1 << 30
        self.assertEqual(memory(60 * gib), 80)
        self.assertEqual(memory(20 * gib, XLA_PYTHON_CLIENT_MEM_FRACTION=".5"), 40)
        self.assertEqual(memory(72 * gib, XLA_CLIENT_MEM_FRACTION="0.9"), 80)
        self.assertEqual(memory(16 * gib, platform="tpu"), 16)
        self.assertIsNone(memory(None))

    # A minute or two, on one core and its own time: on machines that others use, 0.09 to 0.19 and 1 were measured. Who
    # computes beside it, on the other half of the core, can make the kernels take twice their time, and the models
    # not: such a measurement says nothing, and is made again. A fit or a prediction that is wrong is wrong each time.
    @unittest.skipUnless(PYTHON and os.environ.get("AUTOMAP_CORPUS"), "AUTOMAP_CORPUS is not set, or " + NO_JAX)
    def test_the_loop_is_closed(self):
        path = os.path.join(self._folder.name, "loop.json")
        found = []
        for _ in range(3):
            done = subprocess.run([PYTHON, SOURCE / "scripts/closed_loop.py", "--bin", BIN, "--seconds", "0.5",
                                   "--cpu-time", "--json", path],
                                  env=environment(JAX_PLATFORMS="cpu"), capture_output=True, text=True, timeout=1700,
                                  preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}))
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                summary = json.load(file)
            self.assertEqual(len(summary["models"]), 10)
            if summary["rank_correlation"] > 0.9 and summary["median_error"] < 0.35:
                return
            found.append(done.stdout)
        self.fail("\n".join(found))


if __name__ == "__main__":
    unittest.main()
