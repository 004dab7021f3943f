"""scripts/slurm on a real Slurm: one machine as two nodes, started here and ended again. Needs root, munge and slurm-wlm."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from programs import BIN, SOURCE, TIMEOUT_S, environment, free_port, run
from test_ranks import HAS_GLOO, LAUNCHERS, SMALL

SCRIPTS = SOURCE / "scripts" / "slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "squeue")
MISSING = [p for p in PROGRAMS if not shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin")]
WHY_NOT = ("Slurm is started as root" if os.geteuid() != 0 else
           f"no {', '.join(MISSING)} (Debian packages slurm-wlm and munge)" if MISSING else None)

WAIT_S = 300

# Seconds of work; what the scripts set, and tests themselves, left out.
LEARNING = ["--deterministic", *(text for option, value in zip(SMALL[::2], SMALL[1::2])
                                 if option not in ("--threads", "--evaluate-middle") for text in (option, value))]

CONF = """ClusterName=automap
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
MpiDefault=none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
KillWait=5
NodeName=am1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=am2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def wait_until(ready, seconds=WAIT_S):
    """Whether it is, in time."""
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def processes_of(folder):
    """{number: command} of the processes whose command names the folder, or that Slurm runs for it."""
    out = {}
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes() + b"\0" + (process / "environ").read_bytes()
        except OSError:
            continue
        if process.name != str(os.getpid()) and str(folder).encode() in words:
            out[int(process.name)] = words.split(b"\0")[0].decode(errors="replace")
    return out


def files_of(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir() if p.name != ".lock"}


@unittest.skipUnless(HAS_GLOO, "SKIPPED: automap-train was built without LibTorch or Gloo")
@unittest.skipIf(WHY_NOT, f"SKIPPED: {WHY_NOT}")
class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # A short name: munge's socket lies in it.
        cls.folder = Path(tempfile.mkdtemp(prefix="amslurm", dir="/tmp"))
        cls.folder.chmod(0o755)
        cls.daemons = []
        try:
            cls.start_slurm()
        except Exception:
            cls.tearDownClass()
            raise

    @classmethod
    def start_slurm(cls):
        (cls.folder / "state").mkdir()
        key = cls.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        ports = [free_port() for _ in range(3)]
        conf = cls.folder / "slurm.conf"
        conf.write_text(CONF.format(host=socket.gethostname().split(".")[0], folder=cls.folder, ports=ports))
        cls.env = {k: v for k, v in environment().items() if not k.startswith(LAUNCHERS)}
        # The nodes' names are no names of machines here.
        cls.env.update(SLURM_CONF=str(conf), MASTER_ADDR="127.0.0.1", PATH=cls.env["PATH"] + ":/usr/sbin")

        def daemon(*command):
            with open(cls.folder / "daemons.log", "ab") as log:
                cls.daemons.append(subprocess.Popen(command, env=cls.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

        def wait_for(what, ready):
            if wait_until(ready):
                return
            logs = "".join(f"== {p}\n{p.read_text(errors='replace')[-2000:]}\n" for p in cls.folder.glob("*.log"))
            raise RuntimeError(f"{what} did not start:\n{logs}")

        daemon("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={cls.folder}/munge.socket",
               f"--pid-file={cls.folder}/munged.pid", f"--log-file={cls.folder}/munged.log", f"--seed-file={cls.folder}/munge.seed")
        wait_for("munged", (cls.folder / "munge.socket").exists)
        daemon("slurmctld", "-D", "-c", "-i")
        for node in ("am1", "am2"):
            daemon("slurmd", "-D", "-N", node)
        wait_for("Slurm", lambda: subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], env=cls.env, capture_output=True,
                                                 text=True).stdout.strip() == "2")

    @classmethod
    def tearDownClass(cls):
        def queue():
            return subprocess.run(["squeue", "-h"], env=cls.env, capture_output=True, text=True, timeout=TIMEOUT_S)

        # Jobs first: a daemon that ends leaves its jobs running.
        if len(cls.daemons) > 2 and queue().returncode == 0:
            subprocess.run(["scancel", "--user=root"], env=cls.env, capture_output=True, timeout=TIMEOUT_S)
            wait_until(lambda: not queue().stdout.strip())
        for daemon in reversed(cls.daemons):
            daemon.terminate()
        for daemon in reversed(cls.daemons):
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # Whatever of it is alive was started here: the folder is this test's own.
        wait_until(lambda: not processes_of(cls.folder))
        left = processes_of(cls.folder)
        for process in left:
            try:
                os.kill(process, 9)
            except ProcessLookupError:
                pass
        shutil.rmtree(cls.folder, ignore_errors=True)
        if left:
            raise RuntimeError(f"left behind: {left}")

    def slurm(self, *command):
        return subprocess.run(list(map(str, command)), env=self.env, capture_output=True, text=True, timeout=TIMEOUT_S)

    def wait_for_jobs(self):
        if not wait_until(lambda: not self.slurm("squeue", "-h").stdout.strip()):
            self.fail(self.slurm("squeue").stdout)

    def logs(self, folder):
        return "".join(f"== {p.name}\n{p.read_text()}" for p in sorted((folder / "log").glob("*")))

    def test_a_night_of_three_seeds(self):
        night = self.folder / "night"
        # Any difference is good enough, so that something is promoted.
        learning = [*LEARNING, "--episodes", "96", "--evaluate-middle", "6", "--evaluate-exact-time", "0.02s", "--margin", "1"]
        submitted = self.slurm(SCRIPTS / "submit.sh", night, "--rows", 800, "--shard-rows", 200, "--parts", 3, "--cpus", 1,
                               "--preset", "fast", "--first", "none", "--bin", BIN, "--compare-problems", "6,6,0", "--compare-time", "60s", "--",
                               *learning)
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        self.assertRegex(submitted.stdout, r"generate \d+, check \d+, train \d+, promote \d+")
        self.wait_for_jobs()
        # The array's rows are those of one run, and the ranks' policy that of one process.
        whole = self.folder / "whole"
        self.assertEqual(run("automap-datagen", "--rows", 800, "--shard-rows", 200, "--seed", 1, "-o", whole).returncode, 0)
        self.assertEqual(files_of(night / "data"), files_of(whole), self.logs(night))
        alone = self.folder / "alone"
        result = run("automap-train", "--out", alone, "--data", night / "data", "--evaluate-data", "synth:mixed", "--preset", "fast",
                     "--seed", 2, "--threads", 1, *learning)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads((night / "seed-2" / "run.json").read_text())["ranks"], 2)
        for seed in (1, 2, 3):
            self.assertTrue((night / f"seed-{seed}" / "result.json").exists(), self.logs(night))
        self.assertEqual((night / "seed-2" / "policy.bin").read_bytes(), (alone / "policy.bin").read_bytes())
        log = self.logs(night)
        decision = json.loads((night / "decision.json").read_text())
        if decision["promoted"]:
            self.assertTrue(decision["comparison"]["accepted"])
            self.assertIn((night / "current.policy").read_bytes(),
                          [(night / f"seed-{seed}" / "policy.bin").read_bytes() for seed in (1, 2, 3)])
            self.assertRegex(log, "promoted, (better|not worse) than the search without a network")
        else:
            self.assertIn("kept the search without a network, ", log)
            if not decision["start_won"] and "real" not in decision:
                comparison = decision["comparison"]
                self.assertTrue(comparison["all_alike"] or comparison["first_lost"] > comparison["second_lost"], log)
            self.assertFalse((night / "current.policy").exists())

    def test_nothing_is_promoted_without_all_shards(self):
        bad = self.folder / "bad"
        self.assertEqual(run("automap-datagen", "--rows", 800, "--shard-rows", 200, "--part", "1/2", "-o", bad / "data").returncode, 0)
        (bad / "log").mkdir()
        env = {"FOLDER": bad, "BIN": BIN, "CONFIG": "mixed", "PRESET": "fast", "TIME": "5s", "FIRST": "none", "SEEDS": 1,
               "DATA_SEED": 1, "SCRIPTS": SCRIPTS.parent}
        export = "--export=ALL," + ",".join(f"{k}={v}" for k, v in env.items())
        log = f"--output={bad}/log/%x.txt"
        train = self.slurm("sbatch", "--parsable", export, log, "--array=1", "-N2", "-n2", "--ntasks-per-node=1", "--cpus-per-task=1",
                           SCRIPTS / "train.sbatch", *LEARNING)
        self.assertEqual(train.returncode, 0, train.stderr)
        promote = self.slurm("sbatch", "--parsable", export, log, "--kill-on-invalid-dep=yes",
                             f"--dependency=afterok:{train.stdout.strip()}", SCRIPTS / "promote.sbatch")
        self.assertEqual(promote.returncode, 0, promote.stderr)
        self.wait_for_jobs()
        text = self.logs(bad)
        self.assertIn("2 of 4 shards are missing (shard-000000.h5, shard-000001.h5)", text)
        self.assertFalse((bad / "log" / "automap-promote.txt").exists(), text)
        self.assertFalse((bad / "current.policy").exists())
        # Not even when it is started by hand.
        alone = subprocess.run(["bash", SCRIPTS / "promote.sbatch"], env={**self.env, **{k: str(v) for k, v in env.items()}},
                               capture_output=True, text=True)
        self.assertEqual(alone.returncode, 3)
        self.assertRegex(alone.stderr, "seed-1 has no result .*: nothing is promoted")

    def test_a_job_that_loses_a_rank_queues_again(self):
        """Slurm waits as long as credentials are good for (cred_expire above; two minutes where nobody says) before it starts the job again."""
        night = self.folder / "again"
        self.assertEqual(run("automap-datagen", "--rows", 800, "--shard-rows", 200, "-o", night / "data").returncode, 0)
        (night / "log").mkdir()
        env = {"FOLDER": night, "BIN": BIN, "CONFIG": "mixed", "PRESET": "fast", "TIME": "120s", "FIRST": "none", "SEEDS": 1,
               "DATA_SEED": 1, "SCRIPTS": SCRIPTS.parent}
        learning = [*LEARNING, "--evaluate-middle", "0", "--checkpoint-every", "1ms"]

        def train(episodes):
            job = self.slurm("sbatch", "--parsable", "--requeue", "--export=ALL," + ",".join(f"{k}={v}" for k, v in env.items()),
                             f"--output={night}/log/%x.txt", "--open-mode=append", "--array=1", "-N2", "-n2", "--ntasks-per-node=1",
                             "--cpus-per-task=1", SCRIPTS / "train.sbatch", *learning, "--episodes", episodes)
            self.assertEqual(job.returncode, 0, job.stderr)

        train(6400)
        out = night / "seed-1"
        self.assertTrue(wait_until((out / "checkpoint").exists), self.logs(night))
        ranks = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and self.is_rank(p, out)]
        owner = (out / ".lock").read_text()
        other = [pid for pid in ranks if f"process {pid} on" not in owner]
        self.assertEqual(len(other), 1, (ranks, owner))
        os.kill(other[0], 9)
        self.wait_for_jobs()
        text = self.logs(night)
        self.assertIn("Exited with exit code 75", text)
        self.assertTrue((out / "result.json").exists(), text)
        # The same policy as that of one process that nothing happened to.
        alone = self.folder / "undisturbed"
        result = run("automap-train", "--out", alone, "--data", night / "data", "--evaluate-data", "synth:mixed", "--preset", "fast",
                     "--seed", 1, "--threads", 1, *learning, "--episodes", 6400)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((out / "policy.bin").read_bytes(), (alone / "policy.bin").read_bytes())

    def test_wrong_numbers(self):
        for option, value in (("--data-seed", "x"), ("--data-seed", "-1"), ("--shard-rows", "0"), ("--shard-rows", "1e3"),
                              ("--rows", "many"), ("--first", "/nowhere.policy")):
            refused = self.slurm(SCRIPTS / "submit.sh", self.folder / "wrong", option, value)
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertIn(f"found '{value}'", refused.stderr)
        self.assertFalse((self.folder / "wrong").exists())

    def test_srun_alone_and_a_rank_that_dies(self):
        out = self.folder / "run"
        command = [BIN / "automap-train", "--out", out, *LEARNING, "--threads", 1, "--evaluate-middle", 0, "--checkpoint-every", "1ms"]
        step = subprocess.Popen(list(map(str, ["srun", "-N2", "-n2", "--kill-on-bad-exit=0", *command, "--episodes", "1000000"])),
                                env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            self.assertTrue(wait_until((out / "checkpoint").exists))
            about = json.loads((out / "run.json").read_text())
            self.assertEqual(about["ranks"], 2)
            # The rank that does not hold the run's lock.
            ranks = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and self.is_rank(p, out)]
            self.assertEqual(len(ranks), 2, ranks)
            owner = (out / ".lock").read_text()
            other = [pid for pid in ranks if f"process {pid} on" not in owner]
            self.assertEqual(len(other), 1, owner)
            os.kill(other[0], 9)
            text = step.communicate(timeout=WAIT_S)
        finally:
            step.kill()
            step.wait()
        self.assertIn(f"process {other[0]}) is gone", text[1])
        again = self.slurm("srun", "-n1", *command, "--resume", "--episodes", 64)
        self.assertEqual(again.returncode, 0, again.stderr)

    @staticmethod
    def is_rank(process, out):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return words[0].endswith(b"automap-train") and str(out).encode() in words


if __name__ == "__main__":
    unittest.main()
