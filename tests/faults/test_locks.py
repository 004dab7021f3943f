"""Locks: two trainers in one folder, two datagens at the same shards, owners killed, readers meanwhile, read-only folders."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

from faults import LONG, rounds
from programs import BIN, TIMEOUT_S, ProgramTest, environment, run

TRAIN = "automap-train"
SMALL = ["--evaluate-small", "4", "--evaluate-middle", "0", "--evaluate-deep", "0", "--label-devices", "8",
         "--label-stages", "4", "--round-episodes", "32", "--batch-size", "16", "--hidden", "16", "--threads", "2",
         "--evaluate-every", "64", "--quiet"]


def files_of(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


class Locks(ProgramTest):
    def setUp(self):
        super().setUp()
        self.started = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def start(self, *command):
        process = subprocess.Popen([str(BIN / command[0]), *map(str, command[1:])], env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.started.append(process)
        return process

    def kill(self, process):
        process.kill()
        process.communicate()


@unittest.skipUnless((BIN / TRAIN).exists(), "automap-train was built without LibTorch")
class RunFolders(Locks):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "run"

    def begin(self, *options):
        """A trainer that goes on until it is stopped, as soon as it holds its folder and has written into it."""
        process = self.start(TRAIN, "--out", self.out, *SMALL, "--time", "1000s", *options)
        self.wait_until(lambda: (self.out / "run.json").exists(), process)
        return process

    def test_the_second_trainer_is_told_who_the_first_is(self):
        first = self.begin("--checkpoint-every", "1000s")
        # It need not do anything to hold its folder.
        first.send_signal(signal.SIGSTOP)
        before = (self.out / "config.ini").read_bytes()
        for options in (["--resume"], ["--seed", "7"]):
            result = run(TRAIN, "--out", self.out, *SMALL, "--episodes", "32", *options)
            self.assert_fails(result, 3, f"{self.out} is in use by automap-train, process {first.pid} on ",
                              f"--out {self.out}", "wait until it has ended, or choose another --out")
        # By another name it is the same folder.
        link = self.folder / "link"
        link.symlink_to(self.out)
        error = self.assert_json_error(run(TRAIN, "--out", link, *SMALL, "--json"), 3, "io")
        self.assertIn(f"is in use by automap-train, process {first.pid}", error["message"])
        self.assertEqual((self.out / "config.ini").read_bytes(), before)
        self.assertIsNone(first.poll())
        first.send_signal(signal.SIGCONT)
        first.send_signal(signal.SIGTERM)
        self.assertEqual(first.wait(TIMEOUT_S), 75)
        self.assertEqual((self.out / ".lock").read_bytes(), b"")

    def test_of_many_that_begin_together_one_gets_the_folder(self):
        for attempt in range(rounds(1, 30)):
            out = self.folder / f"together{attempt}"
            if attempt % 2 == 0:
                out.mkdir()
            jobs = {seed: self.start(TRAIN, "--out", out, *SMALL, "--episodes", "64", "--seed", seed) for seed in (1, 2, 3)}
            ended = {seed: (job.communicate(timeout=TIMEOUT_S)[1].decode(), job.returncode) for seed, job in jobs.items()}
            winners = [seed for seed, (_, code) in ended.items() if code == 0]
            self.assertEqual(len(winners), 1, ended)
            for seed, (errors, code) in ended.items():
                if code == 0:
                    continue
                # Who came when the first had ended found its run.
                self.assertIn(code, (2, 3), errors)
                self.assertRegex(errors, "is in use by automap-train|already holds a run")
            self.assertIn(f"seed = {winners[0]}  # flag\n", (out / "config.ini").read_text())
            self.assertIn(f'"seed": {winners[0]},', (out / "run.json").read_text())

    def test_a_killed_owner_leaves_nothing_locked(self):
        kills = 0
        for attempt in range(rounds(2, 40)):
            owner = self.begin("--resume", "--checkpoint-every", "0.05s")
            if attempt:
                # Not only at the start; and the next one at once, without a wait for anything.
                self.wait_until((self.out / "checkpoint").exists, owner)
            self.kill(owner)
            kills += owner.returncode == -signal.SIGKILL
            self.assertIn(f"process {owner.pid} ".encode(), (self.out / ".lock").read_bytes())
            (self.out / "run.json").unlink()
        (self.out / "checkpoint.123.tmp").write_bytes(b"half")
        result = run(TRAIN, "--out", self.out, "--resume", *SMALL, "--time", "0.01s")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(kills, rounds(2, 40))
        self.assertEqual((self.out / ".lock").read_bytes(), b"")
        self.assertEqual([p.name for p in self.out.iterdir() if p.name.endswith(".tmp")], [])

    def test_readers_need_no_lock(self):
        self.assertEqual(run(TRAIN, "--out", self.out, *SMALL, "--episodes", "32").returncode, 0)
        policy = self.out / "policy.bin"
        small = SMALL[:6]
        shutil.copytree(self.out, self.folder / "copy")
        (self.folder / "copy" / ".lock").unlink()
        os.chmod(self.folder / "copy", 0o555)
        owner = self.start(TRAIN, "--out", self.out, "--resume", "--time", "1000s", "--episodes", "100000000", "--quiet")
        self.wait_until(lambda: b"AutoMap" in (self.out / ".lock").read_bytes(), owner)
        owner.send_signal(signal.SIGSTOP)
        compared = run(TRAIN, "--compare", self.folder / "copy" / "policy.bin", policy, *small)
        self.assertEqual(compared.returncode, 0, compared.stderr)
        self.assertIsNone(owner.poll())
        self.assertFalse((self.folder / "copy" / ".lock").exists())
        os.chmod(self.folder / "copy", 0o755)

    def test_a_folder_that_was_replaced_is_not_written_any_more(self):
        owner = self.begin("--checkpoint-every", "0.05s")
        os.rename(self.out, self.folder / "moved")
        self.out.mkdir()
        errors = owner.communicate(timeout=TIMEOUT_S)[1].decode()
        self.assertEqual(owner.returncode, 3, errors)
        self.assertIn(f"{self.out}: was removed, moved or replaced", errors)
        self.assertFalse((self.out / "checkpoint").exists())


class DatasetFolders(Locks):
    def job(self, folder, rows, *options):
        return ["automap-datagen", "--rows", rows, "--seed", 1, "--shard-rows", 1000, "-q", "-o", folder, *options]

    def at_work(self, folder, *options):
        """A datagen that has far to go, once it is making shards."""
        process = self.start(*self.job(folder, 2000000, *options))
        self.wait_until(lambda: any(folder.glob(f"shard-*.{process.pid}-*.tmp")), process)
        return process

    def test_the_same_shards_are_made_by_one(self):
        folder = self.folder / "data"
        first = self.at_work(folder, "--shard-range", "4:1000")
        # It need not do anything to hold them, and does not come to its end meanwhile.
        first.send_signal(signal.SIGSTOP)
        for options in ([], ["--shard-range", "0:5"], ["--shard-range", "999:1001"]):
            self.assert_fails(run(*self.job(folder, 2000000, *options)), 3, f"{folder}: shards 4 to 999 are being made by "
                              f"automap-datagen, process {first.pid} on ", "--shard-range")
        # Others may be made, more rows may not be asked for, and another dataset is one as ever.
        self.assertEqual(run(*self.job(folder, 2000000, "--shard-range", "0:4")).returncode, 0)
        self.assert_fails(run(*self.job(folder, 3000000, "--shard-range", "0:4")), 3, "cannot be extended", str(first.pid))
        self.assert_fails(run(*self.job(folder, 2000000, "--oracle", "--shard-range", "0:4")), 2, "oracle")
        self.assertIsNone(first.poll())
        # Readers are told, and take nothing.
        for command in (["automap-inspect", folder, "--plot", self.folder / "x.svg"],
                        [TRAIN, "--data", folder, "--out", self.folder / "run", *SMALL]):
            if (BIN / command[0]).exists():
                result = run(*command)
                if command[0] == TRAIN:
                    self.assert_fails(result, 3, "not complete", f"is being written by automap-datagen, process {first.pid} ",
                                      "wait until it has ended")
        self.kill(first)
        again = self.at_work(folder, "--shard-range", "4:1000")
        again.send_signal(signal.SIGTERM)
        self.assertEqual(again.wait(TIMEOUT_S), 75)
        self.assertEqual([p.name for p in folder.iterdir() if p.name.endswith(".tmp")], [])
        self.assertEqual((folder / ".lock").read_bytes(), b"")

    def test_arrays_of_jobs_killed_at_any_moment(self):
        rows, parts = 9000, ("0:3", "3:4", "4:7", "7:9")
        whole = self.folder / "whole"
        start = time.monotonic()
        self.assertEqual(run(*self.job(whole, rows)).returncode, 0)
        usual = time.monotonic() - start
        expected = files_of(whole)
        moments = random.Random(8)
        folder, kills, busy = self.folder / "parts", 0, 0
        for attempt in range(1000):
            if attempt >= rounds(3, 150) and kills > 0:
                break
            jobs = [self.start(*self.job(folder, rows, "--shard-range", part)) for part in parts]
            # Two more that want what others make: told, or alone with it because those have ended.
            jobs += [self.start(*self.job(folder, rows, "--shard-range", part)) for part in ("2:5", "8:9")]
            time.sleep(moments.uniform(0, usual))
            for job in moments.sample(jobs, 4):
                if job.poll() is None:
                    job.kill()
            for job in jobs:
                errors = job.communicate(timeout=TIMEOUT_S)[1].decode()
                self.assertIn(job.returncode, (0, 3, -signal.SIGKILL), errors)
                kills += job.returncode == -signal.SIGKILL
                if job.returncode == 3:
                    self.assertIn("are being made by", errors)
                    busy += 1
            if attempt % 2:
                for part in parts:
                    self.assertEqual(run(*self.job(folder, rows, "--shard-range", part)).returncode, 0)
                self.assertEqual(files_of(folder), expected)
                shutil.rmtree(folder)
        self.assertGreater(kills, 0)
        self.assertEqual(run(*self.job(folder, rows)).returncode, 0)
        self.assertEqual(files_of(folder), expected)

    @unittest.skipUnless((BIN / TRAIN).exists(), "automap-train was built without LibTorch")
    def test_a_trainer_keeps_what_it_opened_while_the_dataset_grows(self):
        folder = self.folder / "data"
        self.assertEqual(run(*self.job(folder, 1500)).returncode, 0)
        options = ["--data", folder, "--evaluate-data", "synth:small", "--deterministic", *SMALL]
        trainer = self.start(TRAIN, "--out", self.folder / "run", *options, "--episodes", "300")
        self.wait_until((self.folder / "run" / "run.json").exists, trainer)
        self.assertEqual(run(*self.job(folder, 2600)).returncode, 0)
        errors = trainer.communicate(timeout=TIMEOUT_S)[1].decode()
        self.assertEqual(trainer.returncode, 0, errors)
        if LONG:
            shutil.rmtree(folder)
            self.assertEqual(run(*self.job(folder, 1500)).returncode, 0)
            self.assertEqual(run(TRAIN, "--out", self.folder / "alone", *options, "--episodes", "300").returncode, 0)
            self.assertEqual((self.folder / "run" / "policy.bin").read_bytes(),
                             (self.folder / "alone" / "policy.bin").read_bytes())

    def test_readers_leave_a_read_only_dataset_as_it_is(self):
        folder = self.folder / "data"
        self.assertEqual(run(*self.job(folder, 300)).returncode, 0)
        (folder / ".lock").unlink()
        os.chmod(folder, 0o555)
        before = files_of(folder)
        self.assertEqual(run("automap-inspect", folder, "--verify").returncode, 0)
        if (BIN / TRAIN).exists():
            result = run(TRAIN, "--data", folder, "--out", self.folder / "run", *SMALL, "--episodes", "32")
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(files_of(folder), before)
        os.chmod(folder, 0o755)


if __name__ == "__main__":
    unittest.main()
