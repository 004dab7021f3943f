"""scripts/measure_memory_model.py: with AUTOMAP_CORPUS and JAX, the accuracy of the memory model that docs/profile.md
states."""

import os
import re
import subprocess
import sys
import unittest

from programs import BIN, NO_JAX, SOURCE, ProgramTest, environment, python_with_jax

CORPUS = os.environ.get("AUTOMAP_CORPUS")
SCRIPT = SOURCE / "scripts/measure_memory_model.py"
ROW = re.compile(r"^(as-written|fused) (kept|weights|reserved), (fitted|other) half +(\d+) +([\d.]+) +[\d.]+ +[\d.]+ +(\d+)$")


class MemoryModel(ProgramTest):
    def test_it_asks_for_a_corpus(self):
        done = subprocess.run([sys.executable, "-B", SCRIPT], env=environment(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("no corpus: set AUTOMAP_CORPUS or give --corpus", done.stderr)

    # Minutes long.
    @unittest.skipUnless(CORPUS, "AUTOMAP_CORPUS is not set")
    def test_layers_keep_and_weigh_what_was_measured(self):
        python = python_with_jax()
        if python is None:
            self.skipTest(NO_JAX)
        done = subprocess.run([python, "-B", SCRIPT, "--corpus", CORPUS, "--build", BIN],
                              env=environment(AUTOMAP_JAX_PYTHON=python), capture_output=True, text=True, timeout=1700)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {}
        for line in done.stdout.splitlines()[1:]:
            attention, column, half, layers, median, near = ROW.match(line).groups()
            rows[attention, column, half] = int(layers), float(median), int(near)
        self.assertEqual(len(rows), 8, done.stdout)
        for half in ("fitted", "other"):
            for attention, column, layers, share in (("as-written", "kept", 40, 0.9), ("as-written", "weights", 40, 1),
                                                     ("fused", "kept", 10, 1)):
                found, median, near = rows[attention, column, half]
                self.assertEqual(found, layers)
                self.assertGreaterEqual(near / found, share, done.stdout)
                self.assertAlmostEqual(median, 1, delta=0.01, msg=done.stdout)


if __name__ == "__main__":
    unittest.main()
