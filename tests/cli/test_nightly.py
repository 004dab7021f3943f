"""scripts/nightly.sh: a small night, killed on the way, run again; a second night that is promoted or kept; the lock."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import unittest

from policies import policy
from programs import BIN, SOURCE, TIMEOUT_S, ProgramTest, environment

SMALL = ["--evaluate-small", "12", "--evaluate-middle", "0", "--evaluate-deep", "0", "--label-devices", "8",
         "--label-stages", "4", "--round-episodes", "32", "--batch-size", "16", "--threads", "2", "--evaluate-every", "64",
         "--checkpoint-every", "0.05"]
SHIPPED = SOURCE / "models" / "pretrained" / "pipeline.policy"


@contextlib.contextmanager
def held(path):
    """The lock file is another's."""
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@unittest.skipUnless((BIN / "automap-train").exists() and (BIN / "automap-datagen").exists(),
                     "automap-train was built without LibTorch")
class Nightly(ProgramTest):
    seeds = 1

    def command(self, *options, training=()):
        # A small network with random weights stands for the shipped policy, and everything counts as better.
        first = self.put("first.policy", policy(hidden=(16,), spread=3))
        return [str(SOURCE / "scripts" / "nightly.sh"), str(self.folder / "nights"), "--bin", str(BIN), "--rows", "400",
                "--preset", "fast", "--time", "2s", "--seeds", str(self.seeds), "--first", str(first), "--compare-problems", "12,0,0",
                *options, "--", *SMALL,
                *([] if "--margin" in training else ["--margin", "1"]), *training]

    def nightly(self, *options, training=()):
        return subprocess.run(self.command(*options, training=training), env=environment(), capture_output=True, text=True,
                              timeout=TIMEOUT_S)

    def log(self):
        path = self.folder / "nights" / "nightly.log"
        return path.read_text() if path.exists() else ""

    def comparison(self, night):
        return json.loads((night / "comparison.json").read_text())

    def assert_decided(self, night, before):
        """With a margin of 1 all is promoted but the start, what no problem told apart and what loses plans (few small problems: that
        can be)."""
        current = self.folder / "nights" / "current.policy"
        decision = json.loads((night / "decision.json").read_text())
        promoted = current.exists() and current.read_bytes() == (night / decision["run"] / "policy.bin").read_bytes()
        self.assertEqual(promoted, decision["promoted"])
        self.assertEqual(len(decision["scores"]), self.seeds)
        self.assertEqual(min(decision["scores"], key=decision["scores"].get), decision["run"])
        result = json.loads((night / decision["run"] / "result.json").read_text())
        # What a run ends with is never worse than what it began with, on its own problems.
        self.assertLessEqual(result["score"], result["start_score"])
        same = (night / decision["run"] / "policy.bin").read_bytes() == (night / "start.policy").read_bytes()
        self.assertEqual(same, decision["start_won"])
        said = f"kept {before}"
        if decision["start_won"]:
            self.assertFalse(promoted)
            self.assertIn("the policy that the runs began with won: nothing better was learned", self.log())
        else:
            comparison = self.comparison(night)
            self.assertGreaterEqual(comparison["problems"], 30)
            if comparison["accepted"] and not comparison["all_alike"]:
                real = json.loads((night / "comparison-real.json").read_text())
                self.assertEqual(promoted, real["accepted"])
                said = "promoted, " if promoted else said
            else:
                self.assertFalse(promoted)
                self.assertTrue(comparison["all_alike"] or comparison["first_lost"] > comparison["second_lost"], comparison)
        self.assertIn(f"{night.name}: {said}", self.log())

    def kill_when(self, exists):
        """Starts a night, kills it with everything it started as soon as there is `exists` (a pattern of its folder)."""
        process = subprocess.Popen(self.command(), env=environment(), start_new_session=True, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            self.wait_until(lambda: any((self.folder / "nights").glob(exists)), process)
            self.assertIsNone(process.poll(), "the night was over before it could be killed:\n" + self.log())
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def test_two_nights_with_kills_between(self):
        self.seeds = 2
        current = self.folder / "nights" / "current.policy"
        self.kill_when("nights/*/data")
        self.kill_when("nights/*/run-2/checkpoint")
        self.assertFalse(current.exists())
        result = self.nightly()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("goes on", self.log())
        self.assertEqual(self.log().count(" begins"), 1, self.log())
        self.assertFalse((self.folder / "nights" / "unfinished").exists())
        # Data are not kept, the run is.
        nights = sorted((self.folder / "nights" / "nights").iterdir())
        self.assertEqual(len(nights), 1)
        self.assertFalse((nights[0] / "data").exists())
        self.assertIn("Started from", (nights[0] / "run-1" / "report.md").read_text())
        self.assert_decided(nights[0], f"the policy {self.folder / 'first.policy'}")
        first = (current if current.exists() else self.folder / "first.policy").read_bytes()
        before = "the current policy" if current.exists() else "the policy"

        # The second night starts from the policy that is current then.
        self.kill_when("nights/*-0002/run-1/checkpoint")
        result = self.nightly()
        self.assertEqual(result.returncode, 0, result.stderr)
        second = sorted((self.folder / "nights" / "nights").iterdir())[1]
        self.assertEqual((second / "start.policy").read_bytes(), first)
        self.assert_decided(second, before)

    def test_the_shipped_policy_as_current_and_a_worse_one_kept_out(self):
        folder = self.folder / "nights"
        folder.mkdir()
        current = folder / "current.policy"
        shutil.copy(SHIPPED, current)
        # The preset's own network is another. A margin of nothing and a learning rate that ruins the weights.
        ruin = ["--learning-rate", "1", "--learning-rate-end", "1", "--margin", "0", "--ema", "0", "--episodes", "32",
                "--patience", "1", "--evaluate-seed", "7"]
        result = self.nightly("--preset", "nightly", training=ruin)
        self.assertEqual(result.returncode, 0, result.stderr)
        night, = (folder / "nights").iterdir()
        self.assertEqual((night / "start.policy").read_bytes(), SHIPPED.read_bytes())
        self.assertIn("Started from", (night / "run-1" / "report.md").read_text())
        self.assertIn("hidden = 64,64\n", (night / "run-1" / "config.ini").read_text())
        kept = current.read_bytes() == SHIPPED.read_bytes()
        decision = json.loads((night / "decision.json").read_text())
        self.assertEqual(kept, not decision["promoted"])
        self.assertIn("kept the current policy" if kept else "promoted, better", self.log())
        if decision["start_won"]:
            # Nothing that was learned is better than the start, which therefore is the best of the run, and nobody asks more.
            self.assertEqual((night / "run-1" / "policy.bin").read_bytes(), SHIPPED.read_bytes())
            self.assertTrue(kept)
            self.assertFalse((night / "comparison.json").exists())
            self.assertIn("kept the current policy, the policy that the runs began with won: nothing better was learned", self.log())
        else:
            # A few problems may say otherwise: script and comparison agree then.
            self.assertTrue(kept or self.comparison(night)["accepted"])

    def test_another_network_than_the_options_ask_for(self):
        result = self.nightly("--first", str(SHIPPED), training=["--hidden", "8", "--episodes", "64"])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("began with fresh weights", self.log())
        night, = (self.folder / "nights" / "nights").iterdir()
        self.assertNotIn("Started from", (night / "run-1" / "report.md").read_text())
        self.assertIn("hidden = 8 ", (night / "run-1" / "config.ini").read_text())

    def test_without_any_policy_a_night_is_compared_with_no_network(self):
        result = self.nightly("--first", "none", training=["--hidden", "8", "--episodes", "64"])
        self.assertEqual(result.returncode, 0, result.stderr)
        night, = (self.folder / "nights" / "nights").iterdir()
        decision = json.loads((night / "decision.json").read_text())
        if not decision["start_won"]:
            self.assertEqual(len(self.comparison(night)["policies"]), 1)
        self.assertRegex(self.log(), "promoted, |kept")
        self.assertIn("the search without a network", self.log())
        self.assertEqual((self.folder / "nights" / "current.policy").exists(), decision["promoted"])

    def test_terminated_it_stops_with_a_checkpoint(self):
        process = subprocess.Popen(self.command("--time", "3600s"), env=environment(), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            self.wait_until(lambda: any((self.folder / "nights").glob("nights/*/run-1/checkpoint")), process)
        finally:
            process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=TIMEOUT_S), 75, self.log())
        self.assertIn("stopped while training run 1", self.log())
        self.assertTrue((self.folder / "nights" / "unfinished").exists())

    def test_one_at_a_time(self):
        folder = self.folder / "nights"
        folder.mkdir()
        with held(folder / "lock"):
            result = self.nightly()
        self.assertEqual(result.returncode, 0)
        self.assertIn("another night is running", result.stderr)
        self.assertFalse((folder / "unfinished").exists())

    def test_wrong_usage_and_data(self):
        script = str(SOURCE / "scripts" / "nightly.sh")
        for arguments, part in (([], "missing FOLDER"), (["a", "b"], "one folder"), (["a", "--rows"], "needs a value"),
                                (["a", "--frob"], "--frob"), (["a", "--bin", "/nowhere"], "/nowhere"),
                                (["a", "--first", "/nowhere.policy"], "/nowhere.policy is not there"),
                                (["a", "--seeds", "0"], "--seeds: found '0'")):
            result = subprocess.run([script, *arguments], cwd=self.folder, env=environment(), capture_output=True, text=True)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(part, result.stderr)
        result = self.nightly("--config", "no-such-config")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("failed while generating", self.log())
        self.assertIn("no-such-config", self.log())


class Gate(ProgramTest):
    """What the script itself decides, with programs that do nothing but what they are told."""

    def setUp(self):
        super().setUp()
        self.nights = self.folder / "nights"
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.program("automap-datagen", "exit 0")
        self.verdict("better")
        self.first = self.put("first.policy", "the first one")

    def program(self, name, body):
        path = self.bin / name
        path.write_text("#!/usr/bin/env bash\n" + body + "\n")
        path.chmod(0o755)

    def verdict(self, verdict, alike=False, ended_by="error_reached", lost=(0, 0), real=True, scores=(0.3, 0.1, 0.2), start_won=False,
                margin=0):
        """automap-train writes another policy every time, with these scores, and compares as told."""
        self.program("automap-train", f"""
echo "$*" >> {self.folder}/calls
comparison() {{
  printf '{{"problems": 36, "difference": 0.1, "standard_error": 0.01, "lower_bound": 0.05, "upper_bound": 0.15, "first_lost": %s, \
"second_lost": %s, "ended_by": "%s", "all_alike": %s, "accepted": %s, "verdict": "%s", "margin": %s}}\n' "$@"
}}
if [[ " $* " == *" --compare "*" --evaluate-data "* ]]; then
  comparison 0 0 {"error_reached" if real else "refused"} false {"true" if real else "false"} {"undecided" if real else "worse"} 0.001
  exit 0
elif [[ " $* " == *" --compare "* ]]; then
  comparison {lost[0]} {lost[1]} {ended_by} {str(alike).lower()} {str(verdict == "better" or margin > 0).lower()} {verdict} {margin}
  exit 0
fi
while [[ $1 != --out ]]; do shift; done
mkdir -p "$2"
echo "policy of $2" > "$2/policy.bin"
touch "$2/config.ini"
scores=({" ".join(map(str, scores))})
echo "{{\\"score\\": ${{scores[${{2##*-}} - 1]}}, \\"start\\": \\"x\\", \\"start_won\\": {str(start_won).lower()}}}"
""")

    def night(self, *options):
        result = subprocess.run([str(SOURCE / "scripts" / "nightly.sh"), str(self.nights), "--bin", str(self.bin),
                                 *(options or ("--first", str(self.first)))],
                                env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S)
        return result

    def last(self):
        return sorted((self.nights / "nights").iterdir(), key=lambda p: p.name[-4:])[-1]

    def comparisons(self):
        """The policies of each --compare so far."""
        calls = (self.folder / "calls").read_text().splitlines()
        return [line.split("--evaluate-seed ")[1].split()[1:] for line in calls
                if " --compare " in line and " --evaluate-data " not in line]

    def ended(self, result):
        """The line for whoever watches: the last one on standard output, and of the history."""
        line = result.stdout.splitlines()[-1]
        self.assertEqual((self.nights / "history.jsonl").read_text().splitlines()[-1], line)
        ended = json.loads(line)
        self.assertEqual(ended["schema"], "automap.night/1")
        self.assertEqual(ended["exit"], result.returncode)
        return ended

    def test_promoted_when_accepted_and_kept_when_worse_or_the_same(self):
        current = self.nights / "current.policy"
        interval = "(difference +10.000 +- 1.000 points, between +5.000 and +15.000, 36 problems"
        for verdict, alike, said in (
            ("worse", False, f"kept the policy {self.first}, the new one is worse {interval}"),
            ("undecided", True, f"kept the policy {self.first}, undecided whether the new one is better: none of 36 problems told them "
             f"apart {interval}"),
            ("better", False, f"promoted, better than the policy {self.first} {interval}"),
            ("undecided", False, f"kept the current policy, undecided whether the new one is better {interval}"),
            ("worse", False, f"kept the current policy, the new one is worse {interval}"),
            ("better", False, f"promoted, better than the current policy {interval}"),
        ):
            before = current.read_bytes() if current.exists() else None
            promoted = verdict == "better"
            self.verdict(verdict, alike)
            result = self.night()
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(said, result.stderr)
            # The best of three runs.
            new = (self.last() / "run-2" / "policy.bin").read_bytes()
            self.assertEqual(self.comparisons()[-1][0], str(self.last() / "run-2" / "policy.bin"))
            ended = self.ended(result)
            self.assertEqual((ended["outcome"], ended["comparison"]["verdict"]), ("promoted" if promoted else "kept", verdict))
            self.assertEqual(current.read_bytes() if current.exists() else None, new if promoted else before)
            self.assertEqual((self.last() / "start.policy").read_bytes(), before or b"the first one")
            self.assertEqual(self.comparisons()[-1][1], str(current if before else self.first))
            self.assertFalse((self.nights / "unfinished").exists())

    def test_why_it_was_kept(self):
        for ended_by, alike, lost, said in (
            ("too_few_problems", True, (0, 0), "undecided whether the new one is better: only 36 problems could be judged ("),
            ("no_more_problems", False, (0, 0), "better: the held-out problems ran out before it was settled ("),
            ("looks", False, (0, 0), "better: not settled after the most looks ("),
            ("time", False, (0, 0), "better: the time for comparing was over before it was settled ("),
            ("error_reached", False, (0, 0), "undecided whether the new one is better ("),
            ("error_reached", False, (3, 1), "better: it found no plan for 3 problems, the other for 1 ("),
        ):
            with self.subTest(ended_by=ended_by, lost=lost):
                self.verdict("undecided", alike, ended_by, lost)
                result = self.night()
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(said, result.stderr)
                self.assertFalse((self.nights / "current.policy").exists())

    def test_the_start_itself_won(self):
        self.verdict("better", start_won=True)
        result = self.night()
        self.assertEqual(result.returncode, 0, result.stderr)
        said = "the policy that the runs began with won: nothing better was learned (mean gap 10.000 % on the runs' own problems; run-2 of 3)"
        self.assertIn(f"kept the policy {self.first}, {said}", result.stderr)
        self.assertIn("run-2: mean gap 10.000 %, the start itself", result.stderr)
        ended = self.ended(result)
        self.assertEqual((ended["outcome"], ended["start_won"]), ("kept", True))
        # Nobody asks what is known.
        self.assertEqual(self.comparisons(), [])
        self.assertFalse((self.nights / "current.policy").exists())
        self.assertIn("nothing better was learned", (self.nights / "history.html").read_text())

    def test_a_margin_takes_what_is_worse_and_says_so(self):
        self.verdict("worse", margin=0.2)
        result = self.night()
        self.assertIn(f"promoted, not worse than the policy {self.first} by more than 20 points (", result.stderr)

    def test_the_time_for_comparing(self):
        self.assertEqual(self.night("--first", str(self.first), "--compare-time", "5m").returncode, 0)
        calls = [line for line in (self.folder / "calls").read_text().splitlines() if " --compare " in line]
        self.assertEqual(len(calls), 2)
        for call in calls:
            self.assertIn(" --time-limit 5m ", call)
            # However few problems the runs had.
            self.assertIn(" --evaluate-small 512 --evaluate-middle 160 --evaluate-deep 48 ", call)
        self.assertEqual(self.night("--first", str(self.first), "--compare-problems", "9,8,7").returncode, 0)
        self.assertIn(" --evaluate-small 9 --evaluate-middle 8 --evaluate-deep 7 ", (self.folder / "calls").read_text())

    def test_stopped_while_comparing(self):
        """What was asked by then is written, and the next call asks anew."""
        self.program("automap-train", (self.bin / "automap-train").read_text().replace(
            'elif [[ " $* " == *" --compare "* ]]; then',
            f"""elif [[ " $* " == *" --compare "* && ! -e {self.folder}/asked ]]; then
  trap 'comparison 0 0 stopped false false undecided 0; exit 75' TERM
  touch {self.folder}/asked
  while true; do sleep 0.05; done
elif [[ " $* " == *" --compare "* ]]; then"""))
        process = subprocess.Popen([str(SOURCE / "scripts" / "nightly.sh"), str(self.nights), "--bin", str(self.bin), "--first", str(self.first)],
                                   env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        self.wait_until((self.folder / "asked").exists, process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 75)
        self.assertEqual(json.loads((self.last() / "comparison.json").read_text())["ended_by"], "stopped")
        self.assertFalse((self.last() / "decision.json").exists())
        result = self.night("--first", str(self.first))
        self.assertEqual(self.ended(result)["outcome"], "promoted", result.stderr)
        self.assertEqual(json.loads((self.last() / "comparison.json").read_text())["ended_by"], "error_reached")

    def test_too_few_real_problems(self):
        self.verdict("better", real=False)
        program = (self.bin / "automap-train").read_text()
        self.program("automap-train", program.replace("refused false false worse", "no_more_problems false false undecided"))
        result = self.night()
        self.assertIn("but not shown not to be worse by more than 0.1 points on real profiles: the held-out problems ran out before it was "
                      "settled; 36 problems cannot show that, even policies that are alike need 3400 (", result.stderr)

    def test_a_second_test_on_real_profiles(self):
        current = self.nights / "current.policy"
        self.verdict("better", real=False)
        result = self.night()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"kept the policy {self.first}, the new one is better than the policy {self.first} on made-up problems, but worse on "
                      "real profiles (", result.stderr)
        self.assertFalse(current.exists())
        ended = self.ended(result)
        self.assertEqual((ended["outcome"], ended["real"]["ended_by"]), ("kept", "refused"))
        self.assertEqual(self.night("--first", str(self.first), "--real", "none").returncode, 0)
        self.assertTrue(current.exists())
        self.verdict("better")
        self.assertEqual(self.night("--real", "synth:mine.json").returncode, 0)
        call = [line for line in (self.folder / "calls").read_text().splitlines() if " --evaluate-data " in line][-1]
        self.assertIn("--evaluate-data synth:mine.json --margin 0.001 --standard-error 0.0002 ", call)
        # Where the new one is not better, nobody asks.
        self.verdict("undecided")
        self.assertNotIn("real", self.ended(self.night()))

    def test_a_decision_is_carried_out_once(self):
        """Killed behind the decision, a night installs what was decided and asks no more."""
        self.assertEqual(self.night().returncode, 0)
        night, current = self.last(), self.nights / "current.policy"
        asked = len(self.comparisons())
        current.unlink()
        (self.nights / "unfinished").write_text(f"{night.name} 1\n")
        result = self.night()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(current.read_bytes(), (night / "run-2" / "policy.bin").read_bytes())
        self.assertEqual(len(self.comparisons()), asked)
        self.assertEqual(self.ended(result)["outcome"], "promoted")
        # Of three runs, those that are done are not made again.
        (night / "decision.json").unlink()
        (night / "run-3" / "result.json").unlink()
        trained = (self.folder / "calls").read_text().count("--out ")
        (self.nights / "unfinished").write_text(f"{night.name} 1\n")
        self.assertEqual(self.night().returncode, 0)
        self.assertEqual((self.folder / "calls").read_text().count("--out "), trained + 1)

    def test_history(self):
        for verdict in ("better", "worse"):
            self.verdict(verdict)
            self.assertEqual(self.night().returncode, 0)
        self.program("automap-train", "echo 'error: <b>no</b>' >&2; exit 3")
        ended = self.ended(self.night())
        self.assertEqual((ended["outcome"], ended["why"]), ("failed", "failed while training run 1 (exit 3): <b>no</b>"))
        self.assertEqual(self.ended(self.night())["outcome"], "given_up")
        page = (self.nights / "history.html").read_text()
        self.assertIn("3 nights, 1 promoted", page)
        self.assertNotIn("<b>no</b>", page)
        self.assertLess(page.index(">given up<"), page.index(">promoted<"))
        # A line that was cut short is left out, and does not take the next one with it.
        with open(self.nights / "history.jsonl", "a") as history:
            history.write('{"schema": "automap.ni')
        self.verdict("better")
        self.assertEqual(self.ended(self.night())["outcome"], "promoted")
        self.assertIn("4 nights, 2 promoted", (self.nights / "history.html").read_text())
        # A history that cannot be written changes no night.
        (self.nights / "history.jsonl").unlink()
        (self.nights / "history.jsonl").mkdir()
        result = self.night()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the history could not be written", result.stderr)
        self.assertEqual(json.loads(result.stdout.splitlines()[-1])["outcome"], "promoted")

    def test_weeks_of_nights(self):
        """Better, equal and worse policies as they come: what is current is always the last better one."""
        current = self.nights / "current.policy"
        for night in range(14):
            better, equal = night % 5 == 1, night % 5 == 3
            self.verdict("better" if better else "undecided" if equal else "worse", alike=equal, real=night != 6)
            before = current.read_bytes() if current.exists() else None
            self.assertEqual(self.night("--first", str(self.first), "--seeds", "1").returncode, 0)
            new = (self.last() / "run-1" / "policy.bin").read_bytes()
            self.assertEqual(current.read_bytes() if current.exists() else None, new if better and night != 6 else before, night)
        outcomes = [json.loads(line)["outcome"] for line in (self.nights / "history.jsonl").read_text().splitlines()]
        self.assertEqual([i for i, outcome in enumerate(outcomes) if outcome == "promoted"], [1, 11])

    def test_one_promotion_at_a_time(self):
        """A promotion that outlived its night is not joined by another one."""
        self.nights.mkdir()
        with held(self.nights / "current.policy.lock"):
            result = self.night()
        self.assertEqual(result.returncode, 75, result.stderr)
        self.assertIn("is in use by another promotion", result.stderr)
        self.assertEqual(self.ended(result)["outcome"], "stopped")
        self.program("automap-datagen", "exit 3")  # all runs have ended: no data are needed
        result = self.night()
        self.assertEqual(self.ended(result)["outcome"], "promoted", result.stderr)

    def test_runs_without_a_result(self):
        self.verdict("better", scores=("null",) * 3)
        result = self.night()
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("score is None, expected a number: nothing is promoted", result.stderr)
        self.assertFalse((self.nights / "current.policy").exists())
        self.assertEqual(self.ended(result)["outcome"], "failed")

    def test_the_first_night_is_compared(self):
        self.verdict("worse")
        self.assertEqual(self.night("--keep-data").returncode, 0)
        self.assertEqual(self.comparisons()[-1][1:], [str(SHIPPED)])
        self.assertEqual((self.last() / "start.policy").read_bytes(), SHIPPED.read_bytes())
        self.assertEqual(self.night("--first", "none").returncode, 0)
        self.assertEqual(self.comparisons()[-1][1:], [])
        self.assertFalse((self.last() / "start.policy").exists())
        self.assertFalse((self.nights / "current.policy").exists())

    def test_a_failing_night_is_tried_twice(self):
        works = (self.bin / "automap-train").read_text()
        self.program("automap-train", "echo 'error: that cannot be' >&2; exit 3")
        first = self.night()
        self.assertEqual(first.returncode, 3)
        self.assertIn("failed while training run 1 (exit 3): that cannot be", first.stderr)
        self.assertIn("set right what failed and run again", first.stderr)
        # What was wrong may be the current policy: the night takes the one that is there now.
        self.first.write_text("a better one")
        second = self.night()
        self.assertEqual(second.returncode, 3)
        self.assertIn("goes on", second.stderr)
        self.assertEqual((self.last() / "start.policy").read_text(), "a better one")
        self.assertIn("given up", second.stderr)
        self.assertFalse((self.nights / "unfinished").exists())
        (self.bin / "automap-train").write_text(works)
        third = self.night()
        self.assertEqual(third.returncode, 0, third.stderr)
        self.assertIn("-0002 begins", third.stderr)

    def test_every_night_has_its_own_problems(self):
        for _ in range(3):
            self.assertEqual(self.night().returncode, 0)
        # Old nights may go.
        for night in sorted((self.nights / "nights").iterdir())[:2]:
            shutil.rmtree(night)
        self.assertEqual(self.night().returncode, 0)
        self.assertTrue(self.last().name.endswith("-0004"), self.last())
        calls = (self.folder / "calls").read_text()
        training = re.findall(r"(?m)^--out .* --data .* --seed (\d+)", calls)
        comparing = set(re.findall(r"(?m)^--config .* --evaluate-seed (\d+)", calls))
        self.assertEqual(training, [str(1000 * night + run) for night in (1, 2, 3, 4) for run in (1, 2, 3)])
        self.assertEqual(len(set(comparing)), 4)

    def test_a_signal_between_two_programs_stops_it(self):
        self.program("automap-datagen", "trap '' TERM; kill -TERM $PPID; sleep 0.3; exit 0")
        result = self.night()
        self.assertEqual(result.returncode, 75, result.stderr)
        self.assertIn("stopped before training run 1", result.stderr)
        self.assertFalse((self.folder / "calls").exists())
        self.program("automap-datagen", "exit 0")
        result = self.night()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("goes on", result.stderr)


if __name__ == "__main__":
    unittest.main()
