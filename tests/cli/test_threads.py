"""--threads: the same answer on any number of threads, to the bit, but for how long it took."""

import json
import unittest

from programs import FIXTURES, ProgramTest, environment, run, without_times

# Widths to be looked at, and splits to be dropped; what one framework can run; several widths of fast machines.
SMALL = ("lit_small.hlo.gz", "--cluster", "config-a", "--effort", "quick")
# More effort: glances come before looks at splits.
GLANCES = ("lit_small.hlo.gz", "--cluster", "h100-2x8", "--effort", "normal")
LARGER = [
    ("gpt2.hlo.gz", "--cluster", "config-a", "--effort", "quick"),
    ("t5_6_6.hlo.gz", "--cluster", "config-b", "--effort", "quick", "--for", "megatron"),
    ("vgg19.hlo.gz", "--cluster", "h100-2x8", "--effort", "quick"),
]


class Threads(ProgramTest):
    def answer(self, question, *arguments, **options):
        model, *rest = question
        result = run("automap-infer", FIXTURES / model, *rest, *arguments, "--json", **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return without_times(json.loads(result.stdout))

    def check(self, question, *numbers):
        one = self.answer(question, "--threads", "1")
        for threads in numbers:
            self.assertEqual(self.answer(question, "--threads", str(threads)), one)

    def test_the_answer_does_not_depend_on_them(self):
        self.check(SMALL, 7)

    def test_the_environment_names_them(self):
        by_environment = [self.answer(SMALL, env=environment(OMP_NUM_THREADS=threads)) for threads in ("1", "3")]
        self.assertEqual(*by_environment)
        self.assertEqual(self.answer(SMALL, "--threads", "2"), by_environment[0])

    def test_with_glances(self):
        self.check(GLANCES, 7)

    def test_larger_questions(self):
        for question in LARGER:
            with self.subTest(question=question):
                self.check(question, 2, 7)

    def test_numbers_that_no_machine_has_are_refused(self):
        for threads in ("-1", "4097", "two", "1.5"):
            result = run("automap-infer", FIXTURES / "gpt2.hlo.gz", "--cluster", "config-a", "--threads", threads)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("--threads", result.stderr)


if __name__ == "__main__":
    unittest.main()
