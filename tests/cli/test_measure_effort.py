"""scripts/measure_effort.py: its tables, and that the page's figures are of this program's order."""

import re
import subprocess
import sys
import unittest

from programs import BIN, SOURCE, TIMEOUT_S, ProgramTest, environment

SCRIPT = SOURCE / "scripts" / "measure_effort.py"
PAGE = SOURCE / "docs" / "planner.md"
ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) s, ([\d.]+) s \| (\d+) MiB, (\d+) MiB \| ([^|]*) \|$", re.M)


def measure(*options):
    command = [sys.executable, "-B", SCRIPT, "--program", BIN / "automap-infer", *map(str, options)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S)


class MeasureEffort(ProgramTest):
    def test_tables(self):
        result = measure("--models", "moe_sort", "--clusters", "config-a", "--efforts", "quick,normal", "--no-scale")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = {row[0]: row for row in ROW.findall(result.stdout)}
        self.assertEqual(list(rows), ["quick", "normal"])
        self.assertRegex(rows["quick"][5], r"^[+-]\d+\.\d\d%, [+-]\d+\.\d%$")
        self.assertEqual(rows["normal"][5], "")
        # One small model takes less than the most of all models, by far on this machine or on a slow one.
        page = {row[0]: row for row in ROW.findall(PAGE.read_text(encoding="utf-8"))}
        for effort in rows:
            self.assertLess(float(rows[effort][2]), 10 * float(page[effort][2]))

    def test_what_it_cannot_measure_is_said(self):
        for options, said in ((["--models", "nothing"], "fixtures/hlo has no nothing.hlo.gz"),
                              (["--efforts", "enormous"], "found 'enormous', expected of quick, normal, thorough")):
            result = measure(*options)
            self.assertEqual(result.returncode, 2)
            self.assertIn(said, result.stderr)
            self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    unittest.main()
