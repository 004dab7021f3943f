"""The rows of common/machine/links.cpp are what scripts/fit_links.py makes of the measured collectives, and hold on the
sizes that were not fitted. Needs the corpus."""

import os
import re
import subprocess
import sys
import unittest

SOURCE = os.environ["AUTOMAP_SOURCE"]
CORPUS = os.environ.get("AUTOMAP_CORPUS", "")


@unittest.skipUnless(os.path.isdir(os.path.join(CORPUS, "measured")), "AUTOMAP_CORPUS with measured/ is not set")
class FitLinks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        script = os.path.join(SOURCE, "scripts/fit_links.py")
        done = subprocess.run([sys.executable, script, CORPUS], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        cls.lines = done.stdout.strip().split("\n")

    def test_constants_are_the_scripts(self):
        with open(os.path.join(SOURCE, "common/machine/links.cpp")) as file:
            cpp = re.sub(r"\s+", "", file.read())
        for line in self.lines:
            row, _, note = line.partition("  // ")
            if "8 pairs" not in note:
                self.assertIn(re.sub(r"\s+", "", row), cpp)

    def test_sizes_that_were_not_fitted(self):
        # Median errors in %. Small messages of single measurements scatter; those of V100 are means of many.
        most = {"v100": 4, "h100": 13, "b200": 16}
        self.assertGreater(len(self.lines), 30)
        for line in self.lines:
            name, error = re.search(r"// (\w+).*others ([\d.]+) %", line).groups()
            if "8 pairs" not in line:
                self.assertLessEqual(float(error), most[name], line)


if __name__ == "__main__":
    unittest.main()
