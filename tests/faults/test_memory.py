"""Memory runs out at every moment: one clear error and exit 3, or the answer; nothing half written, never a crash.

Two ways: a preloaded library (failing_malloc.c) makes the N-th allocation fail, or the N-th and all behind it; and
`ulimit -v`, as batch systems set it. Sanitizers bring allocators and address spaces of their own: neither works there.
"""

import json
import random
import resource
import shutil
import signal
import subprocess
import unittest

from faults import rounds

from programs import BIN, FIXTURES, SANITIZED, TIMEOUT_S, ProgramTest, environment, profile_csv, run

FAILING_MALLOC = BIN / "libfailing_malloc.so"
TINY = FIXTURES / "tiny_mlp.hlo"


def contents(folder):
    """name -> bytes of the files below a folder."""
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


class OutOfMemory(ProgramTest):
    def setUp(self):
        super().setUp()
        if SANITIZED:
            self.skipTest("sanitized build: its allocator cannot be made to fail")
        self.profile = self.put("in.csv", profile_csv(20))
        self.data = self.folder / "dataset"
        self.assertEqual(run("automap-datagen", "--rows", "64", "--seed", "1", "-o", self.data, "--quiet").returncode, 0)
        self.assertEqual(run("automap-profile", TINY, "--device", "h100", "-o", self.folder / "in.h5").returncode, 0)
        self.random = random.Random(1)

    def cases(self):
        """name -> a command; its outputs go below the folder it is given."""
        return {
            "inspect": lambda out: ("automap-inspect", TINY),
            "inspect-data": lambda out: ("automap-inspect", self.data, "--verify"),
            "profile-h5": lambda out: ("automap-profile", TINY, "-o", out / "p.h5"),
            "profile-csv": lambda out: ("automap-profile", TINY, "-o", out / "p.csv"),
            "infer": lambda out: ("automap-infer", self.profile, "--cluster", "config-a", "--planner", "policy", "-o", out / "plan.json"),
            "infer-h5": lambda out: ("automap-infer", self.folder / "in.h5", "--cluster", "h100-1x8", "--planner", "rollouts", "--stages", "2", "-o", out / "plan.json"),
            "search": lambda out: ("automap-search", "opp", TINY, "--shards", "2", "-o", out / "plan.json", "--emit-hlo", out / "sharded.hlo"),
            "search-adp": lambda out: ("automap-search", "adp", TINY, "--shards", "2", "--json"),
            "datagen": lambda out: ("automap-datagen", "--rows", "300", "--shard-rows", "100", "--threads", "2", "-o", out / "d", "--quiet"),
            "datagen-compressed": lambda out: ("automap-datagen", "--rows", "300", "--compress", "-o", out / "d", "--quiet"),
            "front": lambda out: ("automap", "inspect", self.profile),
        }

    def start(self, command, limit=None, **extra):
        def preexec():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        return subprocess.run([str(BIN / command[0]), *map(str, command[1:])], env=environment(**extra), capture_output=True,
                              timeout=TIMEOUT_S, preexec_fn=preexec)

    def fresh(self):
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        return out

    def check(self, result, out, whole):
        """An answer, or one error about memory; of the outputs none is half there."""
        text = result.stderr.decode(errors="replace")
        self.assertIn(result.returncode, (0, 3), text)
        for sign in ("terminate called", "bug in AutoMap", "internal check failed", "libgomp"):
            self.assertNotIn(sign, text)
        if result.returncode == 3:
            said = text + result.stdout.decode(errors="replace")  # --verify prints what it found as its result
            self.assertLessEqual(text.count("error: "), 1, text)
            self.assertRegex(said, "memory")
        found = contents(out)
        for name, content in found.items():
            self.assertFalse(name.endswith(".tmp"), f"{name} stayed\n{text}")
            if name.endswith((".h5", ".csv", ".hlo")):
                self.assertEqual(content, whole[name], f"{name} is not whole\n{text}")
            elif name.endswith(".json"):
                json.loads(content)
        if result.returncode == 0:
            self.assertEqual(found.keys(), whole.keys(), text)

    def test_every_allocation_may_fail(self):
        for name, case in self.cases().items():
            out = self.fresh()
            counts = self.folder / "count"
            result = self.start(case(out), LD_PRELOAD=str(FAILING_MALLOC), FAILING_MALLOC_COUNT=str(counts))
            self.assertEqual(result.returncode, 0, result.stderr.decode())
            whole = contents(out)
            total = int(counts.read_text())
            self.assertGreater(total, 100)
            places = set(range(1, rounds(15, 400)))
            places |= {self.random.randint(1, total) for _ in range(rounds(12, 400))}
            failed = 0
            for n in sorted(p for p in places if p <= total):
                for mode in ("once", "after"):
                    with self.subTest(case=name, mode=mode, n=n):
                        out = self.fresh()
                        result = self.start(case(out), LD_PRELOAD=str(FAILING_MALLOC), FAILING_MALLOC=f"{mode}:{n}")
                        self.check(result, out, whole)
                        failed += result.returncode == 3
            self.assertGreater(failed, 0, f"{name}: no allocation failed")

    def test_datagen_goes_on_after_running_out(self):
        out = self.fresh()
        command = self.cases()["datagen"]
        self.assertEqual(self.start(command(out)).returncode, 0)
        expected = {p.name: p.read_bytes() for p in (out / "d").iterdir()}
        counts = self.folder / "count"
        self.start(command(self.fresh()), LD_PRELOAD=str(FAILING_MALLOC), FAILING_MALLOC_COUNT=str(counts))
        total = int(counts.read_text())
        out = self.fresh()
        failed = 0
        for part in range(1, rounds(4, 20)):
            n = total * part // rounds(4, 20)
            failed += self.start(command(out), LD_PRELOAD=str(FAILING_MALLOC), FAILING_MALLOC=f"after:{n}").returncode == 3
        self.assertGreater(failed, 0)
        self.assertEqual(self.start(command(out)).returncode, 0)
        self.assertEqual({p.name: p.read_bytes() for p in (out / "d").iterdir()}, expected)

    def test_json_says_it_too(self):
        result = self.start(("automap-inspect", TINY, "--json"), LD_PRELOAD=str(FAILING_MALLOC), FAILING_MALLOC="after:300")
        self.assertEqual(result.returncode, 3)
        self.assertIn(b'"kind": "memory"', result.stdout)

    def least_to_start(self, *command):
        """The address space with which the system can load a program at all, bytes."""
        low, high = 1 << 20, 4 << 30
        while high - low > 1 << 18:
            middle = (low + high) // 2
            started = self.start((*command, "--version"), limit=middle).returncode == 0
            low, high = (low, middle) if started else (middle, high)
        return high

    def test_limits_of_the_address_space(self):
        starts = {}
        for name, case in self.cases().items():
            # The front becomes another program, which has to be loaded, too.
            program = case(self.folder)[: 2 if name == "front" else 1]
            if program not in starts:
                starts[program] = self.least_to_start(*program)
            out = self.fresh()
            self.assertEqual(self.start(case(out)).returncode, 0)
            whole = contents(out)
            limit, answered = starts[program], False
            while not answered:
                limit = int(limit * (1 + self.random.uniform(0, rounds(0.05, 0.01)))) + (1 << 16)
                out = self.fresh()
                with self.subTest(case=name, limit=limit):
                    result = self.start(case(out), limit=limit)
                    answered = result.returncode == 0 or limit > 2 << 30
                    self.check(result, out, whole)
                    self.assertLess(limit, 2 << 30, "never enough")

    def test_limits_just_below_what_loads_a_program(self):
        """There the loader says what it lacks (127), or the program does: no signal, though not even an exception can be made.

        The loader itself may be killed by one: glibc 2.36 does not look at what it gets for its own tables, in 8 KiB of
        limits. It tells of its work where asked to, so that this is seen for what it is: nothing had been initialized."""
        for program in ("automap", "automap-infer", "automap-search", "automap-profile"):
            least = self.least_to_start(program)
            initialized = 0
            for below in range(0, 640, rounds(16, 4)):
                with self.subTest(program=program, below=below):
                    result = self.start((program, "--version"), limit=least - (below << 10), LD_DEBUG="files")
                    text = result.stderr.decode(errors="replace")
                    if "calling init: " in text:
                        initialized += below > 0
                        self.assertIn(result.returncode, (0, 3, 127), text)
                    else:
                        self.assertIn(result.returncode, (127, -signal.SIGSEGV), text)
                    if result.returncode == 3:
                        self.assertIn("error: out of memory", text)
            self.assertGreater(initialized, 0, f"{program} was loaded under none of the limits")

    @unittest.skipUnless((BIN / "libautomap_learned.so").exists(), "built without LibTorch")
    def test_training_in_little(self):
        """What LibTorch computes with asks without end for what it does not get: too little is refused in front."""
        learning = ("automap-train", "--episodes", "16", "--round-episodes", "8", "--evaluate-small", "1",
                    "--evaluate-middle", "0", "--evaluate-deep", "0", "--threads", "1", "-q")
        for megabytes in (400, 650, 800, 950):
            with self.subTest(megabytes=megabytes):
                result = self.start((*learning, "--out", self.folder / str(megabytes)), limit=megabytes << 20)
                text = result.stderr.decode(errors="replace")
                self.assertEqual(result.returncode, 3, text)
                self.assertIn("error: out of memory", text)
        self.assertEqual(self.start((*learning, "--out", self.folder / "enough")).returncode, 0)


if __name__ == "__main__":
    unittest.main()
