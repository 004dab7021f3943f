"""The benchmarks of policies and the scripts that make pages of them: small runs have every section and every figure, answers
are kept and used again, and what goes wrong is said."""

import json
import re
import signal
import subprocess
import sys
import time
import unittest

from programs import BIN, FIXTURES, SOURCE, TIMEOUT_S, ProgramTest, environment

SECTIONS = ["Goals", "Random problems", "Paired differences", "Proofs", "Families and kinds of problems", "Families left out of training",
            "Real models", "Planning for the simulated step", "Fine-tuning to one model"]
BENCHES = BIN / "bench"
# Planners whose answers do not depend on the clock.
TIMELESS = ["policy greedy", "policy beam 16 + corridor", "rollouts beam 16", "balanced"]


def bench(name, *options):
    return subprocess.run([BENCHES / name, *map(str, options)], env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S)


def script(name, *options):
    return subprocess.run([sys.executable, "-B", SOURCE / "scripts" / name, "--build", BIN, *map(str, options)], env=environment(),
                          capture_output=True, text=True, timeout=TIMEOUT_S)


def methods(names):
    return [part for name in names for part in ("--method", name)]


@unittest.skipUnless((BENCHES / "bench-policy_gaps").exists(), "the benchmarks are not built (AUTOMAP_BUILD_BENCH)")
class Benchmarks(ProgramTest):
    def gaps(self, output, *options, classes="A,C", problems=8):
        # No optimum is given up for the clock: a busy machine would leave out other problems from run to run.
        result = bench("bench-policy_gaps", "--policy", "untrained:1", "--policy", "untrained:2", "--classes", classes, "--problems",
                       problems, "--exact-limit", 100000, "-o", output, *methods(TIMELESS), *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(output.read_text()), result.stdout

    def test_gaps_are_the_same_for_any_threads_and_from_the_cache(self):
        cache = self.folder / "optima.jsonl"
        first, printed = self.gaps(self.folder / "a.json", "--cache", cache)
        stored = cache.read_text()
        second, _ = self.gaps(self.folder / "b.json", "--threads", 3)
        third, _ = self.gaps(self.folder / "c.json", "--cache", cache)
        strip = [[{k: v for k, v in p.items() if "cpu_ms" not in k} for p in d["problems"]] for d in (first, second, third)]
        self.assertEqual(strip[0], strip[1])
        self.assertEqual(strip[0], strip[2])
        # What came from the cache is what was measured first, times included.
        self.assertEqual([p["exact_cpu_ms"] for p in first["problems"]], [p["exact_cpu_ms"] for p in third["problems"]])
        self.assertEqual(cache.read_text(), stored)
        self.assertEqual([m["name"] for m in first["methods"]],
                         ["policy greedy"] * 2 + ["policy beam 16 + corridor"] * 2 + TIMELESS[2:])
        self.assertEqual({p["class"] for p in first["problems"]}, {"A", "C"})
        self.assertEqual(len(first["problems"]), 16)
        for problem in first["problems"]:
            self.assertTrue(problem["proven"])
            self.assertTrue(all(gap is None or gap >= 0 for gap in problem["gaps"]), problem)
            self.assertTrue(problem["devices"] <= (16 if problem["class"] == "A" else 64))
            self.assertTrue((2 if problem["class"] == "A" else 9) <= problem["stages"] <= (8 if problem["class"] == "A" else 16))
        # Every family of the generator takes part, as evenly as 8 can be shared.
        families = [p["family"] for p in first["problems"] if p["class"] == "A"]
        self.assertLessEqual(max(map(families.count, families)) - min(map(families.count, families)), 1)
        self.assertIn("A: D 2-16, S 2-8: 8 problems; left out: ", printed)
        self.assertRegex(printed, r"(?m)^policy greedy \[2\]( +[\d.]+){7}$")

    def test_other_seeds_are_other_problems(self):
        a, _ = self.gaps(self.folder / "a.json", classes="A", problems=3)
        b, _ = self.gaps(self.folder / "b.json", "--seed", 5, classes="A", problems=3)
        self.assertNotEqual([p["reference_ms"] for p in a["problems"]], [p["reference_ms"] for p in b["problems"]])

    @unittest.skipUnless((BIN / "automap-train").exists(), "automap-train is not built (LibTorch)")
    def test_problems_that_were_trained_on_are_refused(self):
        policy = self.folder / "run" / "policy.bin"
        trained = subprocess.run([BIN / "automap-train", "--out", policy.parent, "--seed", "77", "--episodes", "100", "--quiet",
                                  "--evaluate-small", "2", "--evaluate-middle", "0", "--evaluate-deep", "0", "--threads", "1"],
                                 env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        for name in ("bench-policy_gaps", "bench-policy_objective"):
            self.assert_fails(bench(name, "--policy", policy, "--seed", 77), 2, "trained with seed 77")
        output = self.folder / "gaps.json"
        result = bench("bench-policy_gaps", "--policy", policy, "--problems", 2, "--classes", "A", "-o", output)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_stop_keeps_what_is_known(self):
        cache, output = self.folder / "optima.jsonl", self.folder / "gaps.json"
        command = [str(BENCHES / "bench-policy_gaps"), "--classes", "A", "--problems", "100000", "--cache", str(cache), "-o", str(output)]
        process = subprocess.Popen([*command, *methods(["balanced"])], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        give_up = time.monotonic() + TIMEOUT_S  # a busy machine takes its time to the first optimum
        while not cache.exists() and process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        printed, said = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 75, said)
        self.assertEqual(printed, "")
        self.assertIn("run it again", said)
        self.assertEqual(self.leftovers(), ["optima.jsonl"])
        self.assertGreater(len(cache.read_text().splitlines()), 1)

    def test_what_is_wrong_is_said(self):
        damaged = self.put("damaged.jsonl", "{\"schema\": \"automap.bench.answers/2\"}\nnonsense\n")
        foreign = self.put("foreign.jsonl", "name,value\n")
        policy = self.put("broken.bin", b"nonsense" * 20)
        for code, part, options in ((2, "no class is called 'Z'", ["--classes", "Z"]),
                                    (2, "no method is called 'guessing'", ["--method", "guessing"]),
                                    (2, "is no policy", ["--policy", "untrained:x"]),
                                    (3, str(policy), ["--policy", policy]),
                                    (3, "damaged.jsonl:2: a damaged line", ["--cache", damaged]),
                                    (3, "foreign.jsonl:1: another kind of file", ["--cache", foreign]),
                                    (2, "--problems", ["--problems", "0"])):
            self.assert_fails(bench("bench-policy_gaps", *options), code, part)
        self.assertEqual(damaged.read_text().count("nonsense"), 1)
        self.assert_fails(bench("bench-policy_objective", "--min-stages", 5, "--max-stages", 4), 2, "smallest is above its largest")
        self.assert_fails(bench("bench-policy_profiles", FIXTURES / "tiny_mlp.hlo", "--stages", "8-2"), 2, "expected a range")
        self.assert_fails(bench("bench-policy_table8", FIXTURES / "tiny_mlp.hlo", "--cuts", "98,66,34"), 2, "are no plan of")
        self.assertEqual(self.leftovers(), ["broken.bin", "damaged.jsonl", "foreign.jsonl"])

    def test_the_chosen_stage_count_is_no_worse_than_any_given_one(self):
        output = self.folder / "profiles.json"
        result = bench("bench-policy_profiles", FIXTURES / "tiny_mlp.hlo", "--policy", "untrained:1", "--clusters", "config-a",
                       "--micro-batches", "4,16", "--stages", "2-16", "-o", output, *methods(["policy greedy", "balanced"]))
        self.assertEqual(result.returncode, 0, result.stderr)
        document = json.loads(output.read_text())
        self.assertEqual(len(document["problems"]), 2)
        for case in document["problems"]:
            chosen = [row for row in case["rows"] if "chosen" in row]
            given = [row for row in case["rows"] if "chosen" not in row]
            self.assertEqual(len(chosen), 1)
            self.assertGreater(len(given), 3)
            self.assertLessEqual(chosen[0]["reference_ms"], min(row["reference_ms"] for row in given) * (1 + 1e-9))
            for i in range(2):
                length = chosen[0]["reference_ms"] * (1 + chosen[0]["gaps"][i])
                best = min(row["reference_ms"] * (1 + row["gaps"][i]) for row in given if row["gaps"][i] is not None)
                self.assertLessEqual(length, best * (1 + 1e-9))
            fine = chosen[0]["all_cuts"]
            self.assertLessEqual(fine["bound_ms"], fine["exact_refined_ms"] * (1 + 1e-9))


@unittest.skipUnless((BENCHES / "bench-policy_gaps").exists(), "the benchmarks are not built (AUTOMAP_BUILD_BENCH)")
class Pages(ProgramTest):
    def test_quick_page(self):
        page = self.folder / "results.md"
        result = script("measure_policy.py", "--quick", "--work", self.folder / "work", "-o", page)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "")
        text = page.read_text()
        self.assertIn("Generated by `scripts/measure_policy.py` --quick", text)
        self.assertEqual(re.findall(r"^## (.*)$", text, flags=re.M), SECTIONS)
        self.assertEqual(len(re.findall(r"^Load average \d+\.\d\d on \d+ cores", text, flags=re.M)), len(SECTIONS))
        self.assertRegex(text, r"(?m)^policy greedy +[\d.]+ +[\d.]+\.\.[\d.]+( +[\d.]+){4,5} +[\d.]+$")
        self.assertRegex(text, r"(?m)^policy greedy +rollouts greedy +(better|worse|undecided) +[+-][\d.]+ ± [\d.]+")
        self.assertRegex(text, r"(?m)^exact, 100 best +\+ polish +[\d.]+")
        if (BIN / "automap-train").exists():
            self.assertRegex(text, r"(?m)^200ms +beam 16 \+ corridor +[\d.]+ +[\d.]+ +[+-][\d.]+ ± 0.00 +\d +\d$")
        self.assertRegex(text, r"(?m)^nothing +[\d.]+ +1.00$")
        self.assertRegex(text, r"(?m)^the optimum +[\d.]+ +[01].\d\d$")
        self.assertIn("### Class L: D 65-512, S 2-16", text)
        self.assertIn("*Not measured: no policy trained without some families", text)
        self.assertNotIn(str(BIN), text)
        self.assertEqual(self.leftovers(), ["results.md", "work"])

    def test_one_section_goes_to_standard_output(self):
        result = script("measure_policy.py", "--quick", "--work", self.folder / "work", "--only", "families")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(re.findall(r"^## (.*)$", result.stdout, flags=re.M), ["Families and kinds of problems"])
        self.assertRegex(result.stdout, r"(?m)^memory limit +\d+( +[\d.]+){7}$")

    def test_a_policy_that_is_missing_stops_it(self):
        page = self.folder / "results.md"
        result = script("measure_policy.py", "--quick", "--policy", self.folder / "none.bin", "--work", self.folder / "work", "-o", page)
        self.assertEqual(result.returncode, 1)
        self.assertIn("none.bin", result.stderr)
        self.assertFalse(page.exists())

    def test_a_build_without_programs_is_named(self):
        for name in ("measure_policy.py", "table8.py", "ablation.py"):
            result = subprocess.run([sys.executable, "-B", SOURCE / "scripts" / name, "--quick", "--build", self.folder],
                                    env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S)
            self.assertEqual(result.returncode, 1, name)
            self.assertIn("does not exist; build it first", result.stderr)

    def test_table8(self):
        result = script("table8.py", "--quick")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^VGG-19 +16 +paper +\(34, 66, 98\) +\(8, 16, 24\) +[\d.]+ +[\d.]+ +[\d.]+$")
        self.assertRegex(result.stdout, r"(?m)^VGG-19 +16 +optimum .* 0\.00 ")
        self.assertRegex(result.stdout, r"(?m)^- What limits the optimum: \S")

    @unittest.skipUnless((BIN / "automap-train").exists(), "automap-train is not built (LibTorch)")
    def test_ablation_is_resumed(self):
        options = ["--quick", "--recipe", "features", "--recipe", "default", "--work", self.folder / "work"]
        first = script("ablation.py", *options)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("4 runs of 2 s, 0 of them finished", first.stderr)
        number = r"[\d.]+ \([\d.]+\.\.[\d.]+\) [\d.]+"
        self.assertRegex(first.stdout, rf"(?m)^\+ cost-model features .* {number} +\d+$")
        self.assertRegex(first.stdout, rf"(?m)^the default recipe.* {number} +\d+$")
        self.assertRegex(first.stdout, rf"(?m)^    beam 16 \+ corridor, the search that plans +{number}$")
        second = script("ablation.py", *options)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertIn("4 runs of 2 s, 4 of them finished", second.stderr)
        chain = re.compile(r"## The chain.*", flags=re.S)
        self.assertEqual(chain.search(first.stdout)[0], chain.search(second.stdout)[0])


if __name__ == "__main__":
    unittest.main()
