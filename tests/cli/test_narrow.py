"""Every program's report fits a terminal of any width, and a pipe in a hundred columns, and still says what matters."""

import json
import unittest

from programs import FIXTURES, ProgramTest, environment, run

TINY = FIXTURES / "tiny_mlp.hlo"
LITTLE = FIXTURES / "lit_small.hlo.gz"
PIPE = 100
LONG = "a_name_that_is_as_long_as_a_line_of_the_terminal_" * 3


class Narrow(ProgramTest):
    def check(self, *command, says):
        """The report in a pipe and on terminals: no line is longer, and `says` is in it."""
        for columns in (None, 40, 60, 80):
            env = environment()
            del env["COLUMNS"]
            if columns:
                env["COLUMNS"] = str(columns)
            with self.subTest(command=command[:2], columns=columns):
                done = run(*command, env=env)
                self.assertEqual(done.returncode, 0, done.stderr)
                # What is to be copied is a line, however long.
                report, _, typed = done.stdout.partition("\nTo type")
                said = [line for line in typed.splitlines()[1:] if not line.startswith("  ") or line.startswith("  and:")]
                longest = max(report.splitlines() + said, key=len)
                self.assertLessEqual(len(longest), columns or PIPE, longest)
                for word in says:
                    self.assertIn(word, " ".join(done.stdout.split()))

    def test_plans(self):
        on = (LITTLE, "--cluster", "h100-2x2", "--batch", "16")
        self.check("automap-infer", *on, says=("Takes",))
        self.check("automap-infer", *on, "--explain", "alternatives,memory,schedule", says=("Alternatives", "activations"))
        self.check("automap-infer", *on, "--sweep", says=("layout", "step"))
        self.check("automap-infer", *on[:3], "--vary", "batch=16,32", says=("samples/s", "plan"))

    def test_partitions(self):
        for kind in ("opp", "adp"):
            self.check("automap-search", kind, LITTLE, "--shards", "8", says=("variables" if kind == "opp" else "data input",))
        plan = self.folder / "split.json"
        run("automap-search", "opp", LITTLE, "--shards", "8", "-o", plan)
        self.check("automap-search", "explain", LITTLE, "--plan", plan, says=("role",))
        self.check("automap-inspect", plan, says=("tensor",))
        self.check("automap-search", "propagate", TINY, "--shards", "4", "--set", "params/dense_1/kernel=1", says=("tensors split",))
        self.check("automap-search", "heuristics", TINY, "--cluster", "h100-1x8", says=("heuristic",))

    def test_the_others(self):
        self.check("automap-profile", LITTLE, "--device", "h100", says=("layer", "compute"))
        self.check("automap-compare", LITTLE, "--cluster", "h100-1x2", "--batch", "16", "--systems", "automap,pipedream", says=("system", "Shortest"))
        self.check("automap-inspect", LITTLE, says=("opcode", "forward instructions"))
        self.check("automap-inspect", "h100-4x8", says=("servers",))
        plan = self.folder / "plan.json"
        run("automap-infer", LITTLE, "--cluster", "h100-1x8", "--batch", "64", "--stages", "4", "-o", plan)
        self.check("automap-inspect", plan, says=("stage", "memory"))

    def test_names_as_long_as_a_line(self):
        table = {"schema": "automap.layers/1", "name": LONG, "hidden": 64, "vocabulary": 128, "sequence": 32, "norm": "rms",
                 "layers": [{"repeat": 2, "blocks": [{"block": "mlp", "hidden": 128}]}]}
        model = self.put("long.json", json.dumps(table))
        self.check("automap-infer", model, "--cluster", "h100-1x8", "--batch", "64", says=("Takes",))
        self.check("automap-inspect", model, says=("opcode",))
        self.check("automap-profile", model, "--device", "h100", says=("layer",))

    def test_details_in_a_pipe_leave_nothing_out(self):
        env = environment()
        del env["COLUMNS"]
        done = run("automap-infer", LITTLE, "--cluster", "h100-1x8", "--batch", "64", "--details", env=env)
        self.assertNotIn("there is no room for", done.stdout)


if __name__ == "__main__":
    unittest.main()
