"""Plans do not depend on the load of the machine: work is counted, and a clock only stops what a time limit was given for."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest

from faults import LONG, rounds

from programs import BIN, FIXTURES, SOURCE, TIMEOUT_S, ProgramTest, environment, run, without_times

# Beside nine programs at once: more would only take the processors from the other tests.
BUSY_LOOPS = 1


# On these the search ends with its effort and not by itself, or they are small enough to take every other way.
INFER = [
    ("t5_6_6.hlo.gz", "config-c", "--effort", "quick"),
    ("gpt2.hlo.gz", "config-a", "--effort", "quick", "--schedule", "auto"),
    ("transformer_bf16.hlo.gz", "config-c", "--effort", "quick", "--objective", "value"),
    ("t5_6_6.hlo.gz", "config-c", "--planner", "exact", "--max-stages", "6", "--effort", "quick"),
    ("bert48.hlo.gz", "config-b", "--planner", "policy", "--beam", "16", "--stages", "4"),
    ("moe_small.hlo.gz", "config-a", "--planner", "local-search", "--stages", "3", "--all-planners", "--effort", "quick"),
]
SEARCH = [
    ("opp", "moe_small.hlo.gz", "--memory", "190MiB", "--effort", "quick"),
    ("adp", "gpt2.hlo.gz", "--effort", "quick"),
]
if (BIN / "libautomap_learned.so").exists():
    SEARCH.insert(0, ("opp", "t5_6_6.hlo.gz", "--algorithm", "rainbow", "--effort", "quick"))
if LONG:
    INFER += [(model, cluster, *more)
              for model in ("bert48.hlo.gz", "t5_24_24.hlo.gz", "resnet50.hlo.gz", "transformer_bf16.hlo.gz", "vgg19.hlo.gz")
              for cluster in ("config-a", "config-c", "h100-4x8")
              for more in ((), ("--planner", "rollouts"), ("--schedule", "auto", "--objective", "value"))]
    SEARCH += [(command, model) for command in ("opp", "adp") for model in ("t5_6_6.hlo.gz", "moe_small.hlo.gz", "bert48.hlo.gz")]


class Busy:
    """Processes that do nothing but use the processors."""

    def __enter__(self):
        self._loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_LOOPS)]

    def __exit__(self, *_):
        for loop in self._loops:
            loop.kill()
            loop.wait()


def stuttering(*command):
    """The program's output when it is held up again and again, so that the clock runs while it stands."""
    process = subprocess.Popen([str(BIN / command[0]), *map(str, command[1:])], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, cwd=SOURCE, env=environment())
    stops = 0
    deadline = time.monotonic() + TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            # Output is collected meanwhile: a full pipe would hold the program up for good.
            process.communicate(timeout=0.03 if stops else 0.005)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            process.send_signal(signal.SIGCONT)
            stops += 1
    out, err = process.communicate(timeout=TIMEOUT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err), stops


class Load(ProgramTest):
    def plan(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return without_times(json.loads(result.stdout))

    def commands(self):
        for model, cluster, *more in INFER:
            yield ["automap-infer", FIXTURES / model, "--cluster", cluster, "--json", *more]
        for command, model, *more in SEARCH:
            yield ["automap-search", command, FIXTURES / model, "--json", *more]

    def test_the_same_plan_under_load_and_when_held_up(self):
        commands = list(self.commands())
        idle = [self.plan(run(*command)) for command in commands]
        for plan in idle:
            self.assertFalse(plan["cut_by_time"])
        # All at once, too: they are each other's load.
        with Busy():
            running = [subprocess.Popen([str(BIN / command[0]), *map(str, command[1:])], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, cwd=SOURCE, env=environment()) for command in commands]
            results = [(process, *process.communicate(timeout=TIMEOUT_S)) for process in running]
        for command, plan, (process, out, err) in zip(commands, idle, results):
            with self.subTest(command=command, held_up=False):
                self.assertEqual(process.returncode, 0, err)
                self.assertEqual(without_times(json.loads(out)), plan)
        for command, plan in list(zip(commands, idle))[:rounds(3, len(commands))]:
            with self.subTest(command=command, held_up=True):
                result, stops = stuttering(*command)
                self.assertGreater(stops, 0)
                self.assertEqual(self.plan(result), plan)

    def test_a_plan_says_what_it_was_made_with(self):
        for command in (("automap-infer", FIXTURES / "tiny_mlp.hlo", "--cluster", "config-a", "--effort", "quick", "--json"),
                        ("automap-search", "adp", FIXTURES / "tiny_mlp.hlo", "--effort", "quick", "--json")):
            provenance = self.plan(run(*command))["provenance"]
            self.assertEqual(provenance["option_effort"], "quick")
            self.assertEqual(provenance.get("option_time_limit", provenance.get("option_budget")), "none")

    def test_a_time_limit_that_strikes_is_reported(self):
        model = FIXTURES / "t5_6_6.hlo.gz"
        result = run("automap-infer", model, "--cluster", "config-c", "--time-limit", "1ms", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        plan = json.loads(result.stdout)
        self.assertTrue(plan["cut_by_time"])
        self.assertIn("time limit ended the search", result.stderr)
        self.assertTrue(any("time limit" in warning for warning in plan["warnings"]))
        self.assertEqual(plan["provenance"]["option_time_limit"], "1ms")
        result = run("automap-search", "opp", model, "--budget", "1ms", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        plan = json.loads(result.stdout)
        self.assertTrue(plan["cut_by_time"] or plan["proven"])

    def test_a_time_limit_that_does_not_strike_changes_nothing(self):
        command = ["automap-infer", FIXTURES / "vgg19.hlo.gz", "--cluster", "config-a", "--json", "--effort", "quick"]
        free, limited = (self.plan(run(*command, *more)) for more in ((), ("--time-limit", "1h")))
        self.assertEqual(limited["provenance"].pop("option_time_limit"), "3600s")
        self.assertEqual(free["provenance"].pop("option_time_limit"), "none")
        self.assertEqual(limited, free)

    def test_effort_is_one_of_three(self):
        for program in (["automap-infer", FIXTURES / "tiny_mlp.hlo", "--cluster", "config-a"],
                        ["automap-search", "opp", FIXTURES / "tiny_mlp.hlo"]):
            self.assert_fails(run(*program, "--effort", "normla"), 2, "effort", "normal")


if __name__ == "__main__":
    unittest.main()
