"""The examples that --help starts with work as typed in the repository."""

import re
import subprocess
import unittest

from programs import BIN, SOURCE, TIMEOUT_S, ProgramTest, environment, run


class HelpExamples(ProgramTest):
    def examples(self, program):
        text = run(*program.split(), "--help").stdout
        section = text[text.index("Examples:\n"):text.index("Usage:")]
        return re.findall(r"(?m)^  (automap.*)$", section)

    def test_examples_work(self):
        # In a copy of the working folder, so that what they write does not stay.
        (self.folder / "fixtures").symlink_to(SOURCE / "fixtures")
        for program in ("automap", "automap-profile", "automap-infer", "automap-search", "automap-search opp", "automap-search adp",
                        "automap-search apply", "automap-search propagate", "automap-search explain", "automap-search placement", "automap-search soap", "automap-search heuristics",
                        "automap-compare", "automap-inspect", "automap-datagen", "automap-emit"):
            commands = self.examples(program)
            self.assertIn(len(commands), (3, 4), commands)
            for command in commands:
                with self.subTest(command=command):
                    result = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=self.folder, capture_output=True,
                                            text=True, env=environment(), timeout=TIMEOUT_S)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertTrue(result.stdout)


if __name__ == "__main__":
    unittest.main()
