"""automap-search pipeline: Rainbow learning on one model (automap-infer --planner online)."""

import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from plan_lists import listed
from programs import BIN, FIXTURES, SANITIZED, SOURCE, TIMEOUT_S, ProgramTest, environment, profile_csv, run


@unittest.skipUnless((BIN / "libautomap_learned.so").exists(), "built without LibTorch")
class Online(ProgramTest):
    def setUp(self):
        super().setUp()
        weights = [1e6 if i < 30 else 4e7 for i in range(60)]
        self.profile = self.put("model.csv", profile_csv(60, w_bytes=weights))
        # Plays are counted, and less effort would end with fewer.
        self.model = [self.profile, "--cluster", "config-a", "--batch", "256", "--effort", "normal"]

    def pipeline(self, *options):
        return run("automap-search", "pipeline", *self.model, "--quiet", *options)

    def plan(self, *options):
        result = self.pipeline("--json", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return listed(json.loads(result.stdout))

    def test_the_same_search_as_that_of_infer(self):
        searched = self.plan("--plays", "80")
        inferred = listed(json.loads(run("automap-infer", *self.model, "--json", "--quiet", "--planner", "online", "--plays", "80").stdout))
        for key in ("cuts", "device_cuts", "step_ms", "simulated_step_ms"):
            self.assertEqual(searched[key], inferred[key])
        self.assertTrue(searched["planner"].startswith("online"))
        self.assertEqual(searched["objective"], "simulated")
        online = searched["online"]
        self.assertEqual((online["plays"], online["earlier_plays"]), (80, 0))
        self.assertGreater(online["updates"], 0)
        lengths = [step["length_ms"] for step in online["steps"]]
        self.assertEqual(lengths, sorted(lengths, reverse=True))

    def test_time_is_what_it_is_given(self):
        # Where the machine is too busy for a play, it is given more.
        for seconds in (6, 60, 300):
            before = time.monotonic()
            plan = self.plan("--time", f"{seconds}s", "--from", "scratch", "--objective", "value")
            self.assertGreater(time.monotonic() - before, seconds * 2 / 3)
            if plan["online"]["plays"] > 0:
                break
        self.assertGreater(plan["online"]["plays"], 0)

    def test_the_radius_is_kept_by_the_plan(self):
        # config-a: two servers of eight devices.
        for radius, stages, source in ((0, 2, "shipped"), (1, 2, "shipped"), (3, 3, "shipped"), (3, 4, "scratch")):
            with self.subTest(radius=radius, stages=stages, source=source):
                plan = json.loads(run("automap-search", "pipeline", FIXTURES / "vgg19.hlo.gz", "--cluster", "config-a", "--radius", radius, "--stages", stages,
                                      "--from", source, "--plays", "20", "--json", "--quiet").stdout)
                cuts = listed(plan)["device_cuts"]
                self.assertEqual(len(cuts), stages - 1)
                self.assertLessEqual(max(abs(cut - 8) for cut in cuts), radius)
        result = run("automap-search", "pipeline", FIXTURES / "vgg19.hlo.gz", "--cluster", "config-a", "--radius", "0", "--stages", "4", "--plays", "20")
        self.assert_fails(result, 4, "--radius")

    def test_never_longer_than_the_policy_that_it_starts_from(self):
        policy = json.loads(run("automap-infer", *self.model, "--json", "--quiet", "--planner", "policy").stdout)
        self.assertLessEqual(self.plan("--plays", "40", "--objective", "value")["step_ms"], policy["step_ms"] * (1 + 1e-9))

    def test_goes_on(self):
        state = self.folder / "state"
        first = self.plan("--plays", "80", "--search-state", state)
        more = self.plan("--plays", "200", "--search-state", state)
        self.assertEqual((more["online"]["earlier_plays"], more["online"]["plays"]), (80, 200))
        self.assertEqual(more["online"]["steps"][0], first["online"]["steps"][0])
        text = self.pipeline("--plays", "200", "--search-state", state, "--details").stdout
        self.assertIn("200 plays (200 of earlier sessions)", text)

    def test_killed_and_stopped_searches_go_on(self):
        state = self.folder / "state"
        command = [str(BIN / "automap-search"), "pipeline", *map(str, self.model), "--quiet", "--json", "--time", "3600s",
                   "--search-state", str(state)]
        searching = subprocess.Popen(command, cwd=SOURCE, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(searching.kill)
        # Enough for a plan.
        self.use_processor(searching, 40 if SANITIZED else 8)
        searching.send_signal(signal.SIGTERM)
        out, err = searching.communicate(timeout=TIMEOUT_S)
        self.assertEqual(searching.returncode, 75, err)
        stopped = json.loads(out)["online"]["plays"]
        kept = state.read_bytes()
        searching = subprocess.Popen(command, cwd=SOURCE, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(searching.kill)
        self.use_processor(searching, 20 if SANITIZED else 2)
        searching.kill()
        searching.communicate(timeout=TIMEOUT_S)
        self.assertEqual(state.read_bytes(), kept)
        self.assertEqual(self.plan("--plays", stopped + 40, "--search-state", state)["online"]["earlier_plays"], stopped)

    def test_what_cannot_be(self):
        infer = lambda *options: run("automap-infer", *self.model, *options)
        self.assert_fails(infer("--radius", "3"), 2, "--radius is for --planner online", "add --planner online")
        self.assert_fails(infer("--from", "scratch", "--planner", "policy"), 2, "--from is for --planner online")
        self.assert_fails(self.pipeline("--policy", self.put("p", "x")), 2, "starts from --from, not from --policy")
        self.assert_fails(self.pipeline("--from", self.put("p", "x")), 3, "not a policy")
        self.assert_fails(self.pipeline("--from", "nowhere"), 3, "nowhere")
        self.assert_fails(self.pipeline("--radius", "x"), 2, "found 'x', expected none or a whole number")
        self.assert_fails(self.pipeline("--time", "0s"), 2, "--time-limit")
        state = self.folder / "state"
        self.plan("--plays", "40", "--search-state", state)
        self.assert_fails(self.pipeline("--seed", "2", "--search-state", state), 3, "the seed was 1 there and is 2 now")
        self.assert_fails(self.pipeline("--search-state", self.put("other", "x")), 3, "not the state of an online search")
        self.assert_fails(self.pipeline("--search-state", self.profile), 2, str(self.profile))

    def test_without_the_library(self):
        for program in ("automap-search", "automap-infer"):
            shutil.copy2(BIN / program, self.folder / program)
        env = environment(PATH=f"{self.folder}{os.pathsep}{os.environ['PATH']}")
        result = subprocess.run([self.folder / "automap-search", "pipeline", *self.model], cwd=SOURCE, env=env, capture_output=True)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(b"needs libautomap_learned.so", result.stderr)


if __name__ == "__main__":
    unittest.main()
