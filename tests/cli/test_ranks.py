"""automap-train as several processes: the same bytes as one, lost ranks, wrong starts, bad networks."""

import json
import os
import signal
import socket
import subprocess
import unittest

import lossy_network
from programs import BIN, SANITIZED, TIMEOUT_S, ProgramTest, environment, free_port

PROGRAM = "automap-train"
SMALL = ["--evaluate-small", "6", "--evaluate-middle", "0", "--evaluate-deep", "0", "--label-devices", "8", "--label-stages", "4",
         "--round-episodes", "32", "--batch-size", "16", "--hidden", "16", "--threads", "1", "--evaluate-every", "64",
         # For a start on a busy machine. Nobody waits so long: a connection that ends is noticed at once.
         "--rank-timeout", "300s"]
LIBRARY = BIN / "libautomap_learned.so"
HAS_GLOO = LIBRARY.exists() and b"found no rank 0 at" in LIBRARY.read_bytes()
# What a launcher would say of another job is not ours.
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "SLURM", "OMPI_", "PMI_", "TORCHELASTIC", "GLOO_")


class RanksTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.processes = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def start(self, name, rank, size, port, *options, address="127.0.0.1", around=lambda command: command):
        env = {k: v for k, v in environment().items() if not k.startswith(LAUNCHERS)}
        if size > 1:
            env.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR=address, MASTER_PORT=str(port))
        options = [str(option) for option in options]
        for option, value in zip(SMALL[::2], SMALL[1::2]):
            if option not in options:
                options += [option, value]
        command = [str(BIN / PROGRAM), "--out", str(self.folder / name), "--deterministic", *options]
        process = subprocess.Popen(around(command), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def job(self, name, size, *options, **kwargs):
        port = free_port()
        return [self.start(name, rank, size, port, *options, **kwargs) for rank in range(size)]

    def ends(self, processes):
        """[(exit code, standard output, standard error)]"""
        out = []
        for process in processes:
            text = process.communicate(timeout=TIMEOUT_S)
            for sign in ("terminate called", "Sanitizer", "internal check failed", "bug in AutoMap"):
                self.assertNotIn(sign, text[1])
            out.append((process.returncode, *text))
        return out

    def codes(self, processes):
        ends = self.ends(processes)
        self.last = ends
        return [end[0] for end in ends]

    def policy(self, name):
        return (self.folder / name / "policy.bin").read_bytes()

    def gaps(self, name):
        """What the curves say that neither a clock nor the last session alone has a part in."""
        lines = (self.folder / name / "curves.csv").read_text().splitlines()
        names = lines[0].split(",")
        kept = [i for i, n in enumerate(names) if n == "episodes" or n.startswith(("gap/", "small/")) or n == "train/updates"]
        return [[line.split(",")[i] for i in kept] for line in lines]

    def wait_for_checkpoint(self, name, processes, newer_than=None):
        """That there is one, or another than there was; when it was written."""
        path = self.folder / name / "checkpoint"
        self.wait_until(lambda: path.exists() and path.stat().st_mtime_ns != newer_than, *processes)
        return path.stat().st_mtime_ns

    def first_end(self, processes):
        """The exit code and standard error of the first that ends. The others would wait in vain: they are killed."""
        self.wait_until(lambda: any(process.poll() is not None for process in processes))
        first = next(process for process in processes if process.poll() is not None)
        for process in processes:
            if process.poll() is None:
                process.kill()
        return next(end for process, end in zip(processes, self.ends(processes)) if process is first)[::2]


@unittest.skipUnless(HAS_GLOO, "SKIPPED: automap-train was built without LibTorch or Gloo")
class Ranks(RanksTest):
    def test_the_same_bytes_from_one_two_and_three(self):
        for size in (1, 3) if SANITIZED else (1, 2, 3):
            self.assertEqual(self.codes(self.job(f"of{size}", size, "--episodes", 150, "--json")), [0] * size, self.last)
            # Rank 0 alone speaks on standard output.
            self.assertEqual(json.loads(self.last[0][1])["schema"], "automap.training/2")
            self.assertEqual([end[1] for end in self.last[1:]], [""] * (size - 1))
            self.assertEqual(self.policy(f"of{size}"), self.policy("of1"))
            self.assertEqual(self.gaps(f"of{size}"), self.gaps("of1"))
        self.assertEqual(json.loads((self.folder / "of3" / "run.json").read_text())["ranks"], 3)

    def test_a_round_that_takes_longer_than_the_timeout(self):
        # Rank 0 plays an eighth of the first round and is done long before the other one. A busy machine may not start
        # both within the time: it gets more, and a round as much longer.
        for more in (1, 5):
            episodes = 3000 * more
            options = ("--episodes", 2 * episodes, "--round-episodes", episodes, "--evaluate-every", episodes)
            whole, both = f"whole{more}", f"run{more}"
            self.assertEqual(self.codes(self.job(whole, 1, *options)), [0], self.last)
            self.codes(self.job(both, 2, *options, "--rank-timeout", f"{2 * more}s"))
            if not any("did not come within" in end[2] or "found no rank 0" in end[2] for end in self.last):
                break
        self.assertEqual([end[0] for end in self.last], [0, 0], self.last)
        self.assertEqual(self.policy(both), self.policy(whole))
        self.assertEqual(self.gaps(both), self.gaps(whole))

    def test_killed_ranks_and_resumed_with_other_numbers(self):
        # Far more than will be played: sessions end when they are ended.
        # Schedules of their own lengths: those of the run would follow --episodes, which changes.
        schedules = ("--learning-rate-updates", 5000, "--epsilon-episodes", 5000)
        often = ("--episodes", 1000000, "--checkpoint-every", "1ms", *schedules)
        # Another rank, then rank 0, then all by a signal.
        first = self.job("run", 3, *often)
        self.wait_for_checkpoint("run", first)
        first[2].kill()
        self.assertEqual(self.codes(first), [75, 75, -signal.SIGKILL], self.last)
        self.assertIn("rank 2 (", self.last[0][2])
        self.assertIn("is gone: the run ended after the last whole round", self.last[0][2])
        self.assertIn("rank 0 ended the run: rank 2 (", self.last[1][2])
        written = (self.folder / "run" / "checkpoint").stat().st_mtime_ns
        second = self.job("run", 2, "--resume")
        written = self.wait_for_checkpoint("run", second, written)
        second[0].kill()
        self.assertEqual(self.codes(second), [-signal.SIGKILL, 75], self.last)
        self.assertIn("rank 0 is gone", self.last[1][2])
        written = (self.folder / "run" / "checkpoint").stat().st_mtime_ns
        third = self.job("run", 2, "--resume", "--json")
        self.wait_for_checkpoint("run", third, written)
        for process in third:
            process.terminate()
        self.assertEqual(self.codes(third), [75, 75], self.last)
        episodes = json.loads(self.last[0][1])["episodes"] + 200
        self.assertEqual(self.codes(self.job("run", 1, "--resume", "--episodes", episodes)), [0], self.last)
        self.assertEqual(self.codes(self.job("whole", 1, "--episodes", episodes, *schedules)), [0], self.last)
        self.assertEqual(self.policy("run"), self.policy("whole"))
        self.assertEqual(self.gaps("run"), self.gaps("whole"))

    def refused(self, processes, *parts):
        """Rank 0's error and the others' end; nothing is written."""
        ends = self.ends(processes)
        self.assertEqual({end[0] for end in ends}, {2}, ends)
        self.assertEqual(ends[0][2].count("error: "), 1, ends)
        for part in parts:
            self.assertIn(part, ends[0][2])
        return ends

    def test_ranks_that_differ(self):
        port = free_port()
        processes = [self.start("run", 0, 2, port, "--episodes", 64, "--seed", 1),
                     self.start("run", 1, 2, port, "--episodes", 64, "--seed", 2)]
        ends = self.refused(processes, "rank 1 (", "was started differently: --seed is 2, for rank 0 it is 1")
        self.assertIn("rank 0 ended the run: rank 1 (", ends[1][2])
        port = free_port()
        processes = [self.start("run", 0, 2, port, "--episodes", 64),
                     self.start("run", 1, 2, port, "--episodes", 64, "--data", "synth:small")]
        self.refused(processes, "the data is synth ")
        self.assertFalse((self.folder / "run").exists())
        # What a rank itself cannot do is the run's error.
        port = free_port()
        processes = [self.start("run", 0, 2, port, "--episodes", 64),
                     self.start("run", 1, 2, port, "--episodes", 64, "--data", self.folder / "missing")]
        ends = self.ends(processes)
        self.assertIn("error: rank 1: ", ends[0][2])
        self.assertEqual(ends[0][0], ends[1][0])

    def test_a_checkpoint_of_another_model(self):
        self.assertEqual(self.codes(self.job("run", 2, "--episodes", 64)), [0, 0], self.last)
        before = self.policy("run")
        port = free_port()
        processes = [self.start("run", rank, 2, port, "--episodes", 128, "--resume", "--hidden", "24") for rank in (0, 1)]
        self.refused(processes, "belongs to a run with other options: --hidden was 16 and is now 24")
        self.assertEqual(self.policy("run"), before)

    def test_a_port_in_use_and_ranks_that_do_not_come(self):
        with socket.socket() as other:
            other.bind(("0.0.0.0", 0))
            other.listen()
            port = other.getsockname()[1]
            processes = [self.start("run", rank, 2, port, "--rank-timeout", "2s", *more) for rank, more in ((0, ()), (1, ("--verbose",)))]
            ends = self.ends(processes)
            self.assertEqual([end[0] for end in ends], [2, 2], ends)
            self.assertIn(f"rank 0 cannot listen at port {port}: Address already in use", ends[0][2])
            self.assertIn("MASTER_PORT=", ends[0][2])
            self.assertIn("rank 1 found no rank 0 at 127.0.0.1", ends[1][2])
            # The library says as much as the program was asked to: why not.
            self.assertRegex(ends[1][2], r"^(?!error)\S.*\nerror: ")
        alone = self.ends([self.start("run", 0, 2, free_port(), "--rank-timeout", "1s")])
        self.assertEqual(alone[0][0], 2)
        self.assertIn("rank 1 of 2 did not come within 1 s", alone[0][2])
        port = free_port()
        code, errors = self.first_end([self.start("run", rank, 3, port) for rank in (1, 0, 1)])
        self.assertEqual(code, 2, errors)
        self.assertIn("two processes say that they are rank 1", errors)
        port = free_port()
        code, errors = self.first_end([self.start("run", 0, 2, port), self.start("run", 1, 3, port)])
        self.assertEqual(code, 2, errors)
        self.assertIn("WORLD_SIZE is the same for every rank", errors)
        self.assertFalse((self.folder / "run").exists())


WHY_NOT = lossy_network.why_not()


@unittest.skipUnless(HAS_GLOO, "SKIPPED: automap-train was built without LibTorch or Gloo")
@unittest.skipIf(WHY_NOT, f"SKIPPED: {WHY_NOT}")
class Network(RanksTest):
    def setUp(self):
        super().setUp()
        self.network = lossy_network.LossyNetwork()
        self.addCleanup(self.network.close)

    def two(self, name, *options):
        return [self.start(name, rank, 2, 29500, *options, address=self.network.addresses[0],
                           around=lambda command: self.network.inside(rank, *command)) for rank in (0, 1)]

    def test_delay_loss_and_a_wire_that_is_cut(self):
        self.assertEqual(self.codes(self.job("whole", 1, "--episodes", 150)), [0], self.last)
        self.assertEqual(self.codes(self.two("run", "--episodes", 150)), [0, 0], self.last)
        self.assertEqual(self.policy("run"), self.policy("whole"))
        self.assertGreater(self.network.packets, 100)
        # Nobody ends and nothing arrives any more: silence is noticed. Long enough for both to start on a busy machine.
        cut = self.two("cut", "--episodes", 1000000, "--checkpoint-every", "1ms", "--rank-timeout", "20s")
        self.wait_for_checkpoint("cut", cut)
        self.network.cut = True
        self.assertEqual(self.codes(cut), [75, 75], self.last)
        self.assertIn("rank 1 (", self.last[0][2])
        self.assertIn("is gone", self.last[0][2])


if __name__ == "__main__":
    unittest.main()
