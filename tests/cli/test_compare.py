"""automap-compare: published systems and ours on one model."""

import json
import unittest

from programs import BIN, FIXTURES, ProgramTest, run

SYSTEMS = ["automap", "data-parallel", "gpipe", "megatron", "pipedream", "dapple", "alpa", "galvatron", "aceso"]


class Compare(ProgramTest):
    def test_every_system_answers_and_none_is_shorter(self):
        page = self.folder / "page.html"
        result = run("automap-compare", FIXTURES / "tiny_mlp.hlo", "--cluster", "config-a", "--json", "--html", page)
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(result.stdout)
        self.assertEqual(document["schema"], "automap.systems/1")
        self.assertEqual([row["system"] for row in document["systems"]], SYSTEMS)
        ours = document["systems"][0]
        self.assertTrue(ours["found"])
        self.assertGreaterEqual(ours["gap"], 0)
        for row in document["systems"]:
            self.assertGreater(row["search_s"], 0)
            if row["found"]:
                # Of plans within 0.1 % ours is the one that shards and recomputes less.
                self.assertLessEqual(ours["simulated_step_ms"], row["simulated_step_ms"] * 1.001, row["system"])
                self.assertLessEqual(row["fullest_share"], 1)
            else:
                self.assertTrue(row["why_not"])
        self.assertGreaterEqual(sum(row["found"] for row in document["systems"]), 6)
        self.assertIn("<svg", page.read_text())
        self.assertEqual(self.leftovers(), ["page.html"])

    def test_the_command_of_search_is_the_same(self):
        options = [FIXTURES / "tiny_mlp.hlo", "--cluster", "config-b", "--systems", "alpa,automap"]
        result = run("automap-search", "compare", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^Alpa +[\d.]+ +[\d.]+ +\d\.\d{3} ")
        self.assertRegex(result.stdout, r"Shortest: .*AutoMap")
        self.assertNotIn("DAPPLE", result.stdout)

    def test_a_model_that_fits_nowhere(self):
        cluster = json.dumps({"schema": "automap.cluster/1", "name": "small", "devices": {"v100-16gb": {"memory_gib": 0.001}},
                              "servers": [{"count": 1, "devices": 2, "intra_gbytes_per_s": 100, "inter_gbytes_per_s": 10, "device": "v100-16gb"}]})
        result = run("automap-compare", FIXTURES / "gpt2.hlo.gz", "--cluster", self.put("small.json", cluster), "--systems",
                     "automap,megatron,alpa")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertIn("No system has a plan.", result.stdout)
        self.assertRegex(result.stdout, r"(?m)^AutoMap has no plan: \S")

    def test_what_is_wrong_is_said(self):
        model = FIXTURES / "tiny_mlp.hlo"
        for code, part, options in ((2, "no system is called 'alpha'", [model, "--cluster", "config-a", "--systems", "alpha"]),
                                    (2, "--cluster", [model]),
                                    (3, "no training step", [FIXTURES / "gpt2_forward.hlo.gz", "--cluster", "config-a"]),
                                    (3, "nowhere", [model, "--cluster", "config-a", "--html", self.folder / "nowhere" / "page.html"])):
            self.assert_fails(run("automap-compare", *options), code, part)
        self.assertEqual(self.leftovers(), [])


if __name__ == "__main__":
    unittest.main()
