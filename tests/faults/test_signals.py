"""Signals and limits: no temporary file stays, and what was there is whole, old or new."""

from faults import rounds

import json
import os
import random
import resource
import signal
import subprocess
import time
import unittest
from pathlib import Path

from programs import BIN, FIXTURES, TIMEOUT_S, ProgramTest, environment, profile_csv, run

TINY = FIXTURES / "tiny_mlp.hlo"
OLD = "what was here before\n"


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Faults(ProgramTest):
    def start(self, *command, before=no_core, **more):
        return subprocess.Popen([str(BIN / command[0]), *map(str, command[1:])], env=environment(), preexec_fn=before,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def temporaries(self):
        return [p.name for p in self.folder.rglob("*") if p.name.endswith(".tmp")]

    def wait_for_temporary(self, process):
        while not self.temporaries():
            self.assertIsNone(process.poll())
            time.sleep(0.002)

    def end(self, process, stdin=None):
        output, errors = process.communicate(stdin, timeout=TIMEOUT_S)
        for sign in (b"terminate called", b"Sanitizer", b"bug in AutoMap"):
            self.assertNotIn(sign, errors)
        return output, errors


class WhileWriting(Faults):
    """Programs whose input does not come hold the file that they are going to write."""

    COMMANDS = [["automap-infer", "-", "--cluster", "config-a"], ["automap-profile", "-"],
                ["automap-search", "opp", "-", "--shards", "2"]]

    def ended_by(self, command, number, **more):
        target = self.put("old.csv", OLD)
        process = self.start(*command, "-o", target, stdin=subprocess.PIPE, **more)
        self.wait_for_temporary(process)
        process.send_signal(number)
        errors = self.end(process)[1]
        self.assertEqual(self.temporaries(), [])
        self.assertEqual(target.read_text(), OLD)
        return process.returncode, errors

    def test_every_signal_that_ends_a_program(self):
        for command in self.COMMANDS:
            for number, code in ((signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGXCPU, 152),
                                 (signal.SIGQUIT, -signal.SIGQUIT)):
                with self.subTest(command, signal=number):
                    found, errors = self.ended_by(command, number)
                    self.assertEqual(found, code)
                    self.assertEqual(b"limit of CPU time" in errors, number == signal.SIGXCPU)

    def test_what_was_ignored_stays_so(self):
        def ignoring():
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN)

        for command in self.COMMANDS:
            with self.subTest(command):
                target = self.put("old.csv", OLD)
                process = self.start(*command, "-o", target, before=ignoring, stdin=subprocess.PIPE)
                self.wait_for_temporary(process)
                for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGXFSZ):
                    process.send_signal(number)
                self.end(process, TINY.read_bytes())
                self.assertEqual(process.returncode, 0)
                self.assertNotEqual(target.read_text(), OLD)

    def test_datasets(self):
        for number, twice in ((signal.SIGHUP, False), (signal.SIGHUP, True), (signal.SIGXCPU, False), (signal.SIGQUIT, False)):
            with self.subTest(signal=number, twice=twice):
                data = self.folder / f"data{number}{twice}"
                process = self.start("automap-datagen", "--rows", 10_000_000, "--shard-rows", 50_000, "-o", data)
                self.wait_for_temporary(process)
                process.send_signal(number)
                if twice:
                    # The second may come before the first is answered, and is then one with it.
                    time.sleep(0.05)
                    process.send_signal(number)
                self.end(process)
                self.assertIn(process.returncode, {signal.SIGHUP: (75, 129), signal.SIGXCPU: (152,),
                                                   signal.SIGQUIT: (-signal.SIGQUIT,)}[number])
                self.assertEqual(self.temporaries(), [])


class WhoIsAtTheOtherEnd(Faults):
    """A FIFO that nobody reads, or writes, is waited for no longer than until the first signal."""

    def setUp(self):
        super().setUp()
        os.mkfifo(self.folder / "pipe")
        self.infer = ["automap-infer", "--cluster", "config-a", "-q", "--effort", "quick"]

    def answers_signals(self, process):
        caught = Path(f"/proc/{process.pid}/status").read_text().partition("SigCgt:")[2].split()[0]
        return int(caught, 16) >> (signal.SIGTERM - 1) & 1

    def used(self, process):
        """State and ticks of processor time."""
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], fields[11], fields[12]

    def test_of_an_output_and_of_an_input(self):
        profile = self.put("profile.csv", profile_csv())
        # Several questions can be stopped from the beginning, also while the model is read.
        for command in ([*self.infer, profile, "-o", self.folder / "pipe"], [*self.infer, self.folder / "pipe", "--vary", "batch=64,128"]):
            with self.subTest(command):
                process = self.start(*command)
                while process.poll() is None and not self.answers_signals(process):
                    time.sleep(0.01)
                # It waits when it sleeps and computes no more.
                before = None
                while process.poll() is None and before != (before := self.used(process)) or before[0] != "S":
                    time.sleep(0.5)
                process.send_signal(signal.SIGTERM)
                errors = self.end(process)[1]
                # A machine that let it compute nothing for so long has sent the signal while it planned.
                self.assertTrue(process.returncode == 143 or b"nobody reads from it" in errors or b"stopped by a signal" in errors,
                                (process.returncode, errors))

    @unittest.skipUnless((BIN / "libautomap_learned.so").exists(), "built without LibTorch")
    def test_of_a_file_that_a_search_keeps(self):
        profile = self.put("profile.csv", profile_csv())
        process = self.start(*self.infer, profile, "--planner", "online", "--time-limit", "1s", "--search-state", self.folder / "pipe")
        self.assertIn(b"a FIFO", self.end(process)[1])
        self.assertEqual(process.returncode, 3)


class AtAnyMoment(Faults):
    def commands(self):
        profile = self.folder / "profile.csv"
        if not profile.exists():
            profile.write_text(profile_csv())
        return {
            "infer": (["automap-infer", profile, "--cluster", "config-a", "--time-limit", "0.05", "-o"], "plan.json"),
            "profile": (["automap-profile", TINY, "-o"], "profile.h5"),
            "csv": (["automap-profile", TINY, "-o"], "other.csv"),
            "search": (["automap-search", "opp", TINY, "--shards", 2, "--emit-hlo", self.folder / "second.json", "-o"],
                       "first.json"),
        }

    def assert_whole(self, path, usual_bytes):
        """A plan may be another one than without the signal; a profile is the same."""
        if path.suffix == ".json":
            self.assertIn(json.loads(path.read_text())["schema"], ("automap.plan/1", "automap.plan/3"))
        else:
            self.assertEqual(path.stat().st_size, usual_bytes)

    def test_old_or_new_and_whole(self):
        chance = random.Random(os.environ.get("AUTOMAP_SEED", 5))
        ended = 0
        for name, (command, file) in self.commands().items():
            target = self.folder / file
            self.assertEqual(run(*command, target).returncode, 0)
            usual_s = float("inf")
            for _ in range(3):  # the least: others may have kept the machine busy
                began = time.monotonic()
                self.assertEqual(run(*command, target).returncode, 0)
                usual_s = min(usual_s, time.monotonic() - began)
            size = target.stat().st_size
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGXCPU):
                for _ in range(rounds(2, 60)):
                    target.write_text(OLD)
                    second = self.folder / "second.json"
                    second.write_text(OLD)
                    process = self.start(*command, target)
                    time.sleep(chance.uniform(0, usual_s))
                    process.send_signal(number)
                    self.end(process)
                    ended += process.returncode != 0
                    with self.subTest(name, signal=number, code=process.returncode):
                        self.assertIn(process.returncode, (0, 75, 128 + number, -number))
                        self.assertEqual(self.temporaries(), [])
                        new = target.read_bytes() != OLD.encode()
                        if new:
                            self.assert_whole(target, size)
                        if name == "search":
                            self.assertEqual(new, second.read_text() != OLD)
        self.assertGreater(ended, 0)

    def test_limits_of_file_sizes(self):
        for name, (command, file) in self.commands().items():
            target = self.folder / file
            target.unlink(missing_ok=True)
            self.assertEqual(run(*command, target).returncode, 0)
            size = target.stat().st_size
            # Times in it make it longer or shorter by some digits.
            for limit in [0, size // 4, size // 2] + [size * i // 60 for i in range(rounds(0, 50))]:
                target.write_text(OLD)

                def limited():
                    no_core()
                    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

                process = self.start(*command, target, before=limited)
                output, errors = self.end(process)
                with self.subTest(name, limit=limit):
                    self.assertEqual(process.returncode, 3, errors)
                    self.assertEqual(errors.count(b"error: "), 1, errors)
                    self.assertIn(b"File too large", errors)
                    self.assertIn(b"ulimit -f", errors)
                    self.assertEqual((target.read_text(), self.temporaries()), (OLD, []))


if __name__ == "__main__":
    unittest.main()
