"""No output replaces an input, the outputs of one run appear together, links are followed: all programs."""

from faults import rounds

import itertools
import json
import os
import re
import signal
import subprocess
import time
import unittest

from programs import BIN, FIXTURES, SOURCE, ProgramTest, environment, profile_csv, run

TINY = FIXTURES / "tiny_mlp.hlo"
# What the name of such a file has to end in.
ENDS = {"timeline": ".svg", "trace": ".json", "report": ".html", "chart": ".svg", "graph": ".svg"}
# What --help calls values that may be files.
FILES = {"FILE", "DIR", "CLUSTER", "DEVICE", "DATA", "POLICY", "MODEL", "INPUT"}


class Program:
    """Which options of a program read a file, which write one, and which do neither though they look so."""

    def __init__(self, command, reads, writes, folders=(), base=()):
        self.command, self.reads, self.writes, self.folders = command.split(), reads.split(), writes.split(), folders
        self.base = dict(zip(base[::2], base[1::2]))

    def arguments(self, **options):
        out, positionals = list(self.command), []
        for name, value in {**self.base, **{k.replace("_", "-"): v for k, v in options.items()}}.items():
            if name.isupper():
                positionals.append(str(value))
            else:
                out += [f"--{name}", str(value)]
        return out + positionals


PROGRAMS = [
    Program("automap-infer", "INPUT variables device cluster policy plan config measured measured-hlo", "output search-state",
            base=("INPUT", TINY, "cluster", "config-a")),
    Program("automap-infer", "INPUT variables device cluster policy plan config", "timeline trace report", ["emit-programs"],
            base=("INPUT", TINY, "cluster", "config-a")),
    Program("automap-infer", "INPUT variables device cluster policy config", "csv chart",
            base=("INPUT", TINY, "cluster", "config-a", "vary", "batch=16")),
    Program("automap-profile", "MODEL device variables also-device cluster calibrate config measured measured-hlo", "output hlo",
            base=("MODEL", TINY)),
    Program("automap-search opp", "MODEL variables cluster device policy config", "output emit-hlo emit-jax emit-sdy",
            base=("MODEL", TINY, "shards", 2)),
    Program("automap-search adp", "MODEL variables cluster device policy config", "output emit-hlo emit-jax emit-sdy",
            base=("MODEL", TINY, "shards", 2)),
    Program("automap-search apply", "MODEL variables plan cluster device config", "emit-hlo emit-jax emit-sdy",
            base=("MODEL", TINY, "plan", "none")),
    Program("automap-search explain", "MODEL variables plan cluster device config", ""),
    Program("automap-search propagate", "MODEL variables config", ""),
    Program("automap-inspect", "FILE config", "plot", base=("FILE", "none")),
    Program("automap-inspect", "FILE plan config", "graph", base=("FILE", TINY)),
    Program("automap-datagen", "config options", "", ["output"]),
    Program("automap-train", "POLICY data evaluate-data init cluster config", "", ["out"]),
]
PROGRAMS = [p for p in PROGRAMS if (BIN / p.command[0]).exists()]


def options_that_name_files(help_text):
    """Names of options and arguments, by what --help-all calls their values."""
    found = set()
    for line in help_text.splitlines():
        option = re.match(r"  (?:-\w, )?--([a-z0-9-]+) ([A-Z]+)(?: |$)", line)
        if option and option[2] in FILES:
            found.add(option[1])
        argument = re.match(r"  ([A-Z]+)(?:\.\.\.)?  ", line)
        if argument and argument[1] in FILES:
            found.add(argument[1])
    return found


class Faults(ProgramTest):
    def aliases(self, path):
        """Other names of the file: itself, through a folder, soft link, hard link."""
        soft, hard = path.with_name("soft" + path.suffix), path.with_name("hard" + path.suffix)
        for link in (soft, hard):
            link.unlink(missing_ok=True)
        soft.symlink_to(path.name)
        os.link(path, hard)
        return [path, path.parent / "." / ".." / path.parent.name / path.name, soft, hard]

    def assert_same(self, path, before):
        self.assertEqual((path.read_bytes(), path.stat().st_ino), before)

    def assert_no_temporaries(self):
        self.assertEqual([p.name for p in self.folder.rglob("*") if p.name.endswith(".tmp")], [])


class Inputs(Faults):
    def test_every_option_that_names_a_file_is_tried_here(self):
        for command in {tuple(program.command) for program in PROGRAMS}:
            with self.subTest(command):
                text = run(*command, "--help-all").stdout
                tried = {name for program in PROGRAMS if tuple(program.command) == command
                         for name in (*program.reads, *program.writes, *program.folders)}
                self.assertEqual(options_that_name_files(text), tried)

    def test_no_output_replaces_an_input(self):
        tried = 0
        for program in PROGRAMS:
            for reads, writes in itertools.product(program.reads, program.writes):
                mine = self.put("mine" + ENDS.get(writes, ".csv"), "")  # an empty file of options is right
                before = mine.read_bytes(), mine.stat().st_ino
                for number, alias in enumerate(self.aliases(mine)):
                    if program.command[-1] == "adp" and number != 2:
                        continue
                    with self.subTest(program.command, reads=reads, writes=writes, alias=alias):
                        tried += 1
                        result = run(*program.arguments(**{reads: mine, writes: alias}))
                        shown = {"output": "-o"}.get(writes, f"--{writes}")
                        self.assert_fails(result, 2, f"{shown} would replace {reads if reads.isupper() else '--' + reads} {mine}")
                        self.assert_same(mine, before)
        self.assertGreater(tried, 150)
        self.assert_no_temporaries()

    def test_wherever_the_names_come_from(self):
        mine = self.put("mine.csv", profile_csv())
        before = mine.read_bytes(), mine.stat().st_ino
        plan = ["automap-infer", mine, "--cluster", "config-a", "--time-limit", "0.1"]
        self.assert_fails(run(*plan, env=environment(AUTOMAP_INFER_OUTPUT=str(mine))), 2, "-o would replace INPUT")
        options = self.put("options.ini", f"output = {mine}\n")
        self.assert_fails(run(*plan, "--config", options), 2, "-o would replace INPUT")
        plan[1] = "-"
        with open(mine, "rb") as stdin:
            result = subprocess.run([str(BIN / plan[0]), *map(str, plan[1:]), "-o", str(mine)], stdin=stdin, env=environment(),
                                    capture_output=True, text=True)
        self.assert_fails(result, 2, "-o would replace INPUT <stdin>")
        plan[1] = mine
        for json_option in ([], ["--json"]):
            with open(mine, "ab") as stdout:
                result = subprocess.run([str(BIN / plan[0]), *map(str, plan[1:]), *json_option], stdout=stdout,
                                        stderr=subprocess.PIPE, env=environment(), text=True)
            self.assertEqual(result.returncode, 2)
            self.assertIn("standard output goes to INPUT", result.stderr)
            self.assert_same(mine, before)

    def test_files_that_no_option_names(self):
        data = self.folder / "data"
        data.mkdir()
        profile = data / "shard-000000.h5"  # a profile by its content
        profile.write_text(profile_csv())
        before = profile.read_bytes(), profile.stat().st_ino
        config = self.put("config.json", json.dumps({"families": {"empirical": {"files": ["data/shard-000000.h5"]}}}))
        self.assert_fails(run("automap-datagen", "--config", config, "--rows", 5, "-o", data), 2, "would replace an input")
        self.assert_same(profile, before)
        self.assertEqual(os.listdir(data), [profile.name])

        self.assertEqual(run("automap-datagen", "--config", config, "--rows", 5, "-o", self.folder / "rows").returncode, 0)
        shard = self.folder / "rows" / "shard-000000.h5"
        before = shard.read_bytes(), shard.stat().st_ino
        os.link(shard, self.folder / "hard.svg")
        inspect = ["automap-inspect", self.folder / "rows", "--plot"]
        self.assert_fails(run(*inspect, shard), 2, "is inside FILE")
        self.assert_fails(run(*inspect, self.folder / "rows" / "new.svg"), 2, "is inside FILE")
        self.assert_fails(run(*inspect, self.folder / "hard.svg"), 2, "would replace an input")
        self.assert_same(shard, before)
        self.assertEqual(sorted(os.listdir(self.folder / "rows")), [".lock", "dataset.json", "shard-000000.h5"])
        self.assertEqual(run(*inspect, self.folder / "new.svg").returncode, 0)

    def test_programs_beside_their_module(self):
        module = self.put("module.hlo.txt", TINY.read_text())
        before = module.read_bytes(), module.stat().st_ino
        result = run("automap-infer", module, "--cluster", "config-a", "--batch", 32, "--layout", "dp=2,pp=2,micro-batch-size=8",
                     "--emit-programs", self.folder)
        self.assert_fails(result, 2, "would replace an input")
        self.assert_same(module, before)
        self.assertEqual(os.listdir(self.folder), [module.name])

    @unittest.skipUnless((BIN / "automap-train").exists(), "built without LibTorch")
    def test_a_run_keeps_the_options_it_was_given(self):
        out = self.folder / "run"
        out.mkdir()
        options = out / "config.ini"
        options.write_text("# by hand\nepisodes = 32\n")
        before = options.read_bytes(), options.stat().st_ino
        train = ["automap-train", "--out", out, "--evaluate-small", 2, "--evaluate-middle", 0, "--evaluate-deep", 0,
                 "--round-episodes", 16, "--hidden", 8, "--threads", 1, "--label-fraction", 0]
        self.assert_fails(run(*train, "--config", options), 2, "would replace an input")
        self.assert_same(options, before)
        self.assertEqual(sorted(os.listdir(out)), [".lock", "config.ini"])
        # The run's own, which it reads and writes again, whoever names it.
        self.assertEqual(run(*train, "--resume").returncode, 0)
        for more in ([], ["--config", options]):
            result = run("automap-train", "--out", out, "--resume", *more)
            self.assertEqual(result.returncode, 0, result.stderr)


class Together(Faults):
    def search(self, *options, **more):
        return run("automap-search", "opp", TINY, "--shards", 2, *options, **more)

    def test_a_device_that_takes_nothing_leaves_nothing(self):
        for old in (None, "old"):
            plan, specs = self.folder / "ok.json", self.folder / "specs.py"
            if old:
                plan.write_text(old)
            for json_option in ([], ["--json"]):
                result = self.search("-o", plan, "--emit-jax", specs, "--emit-hlo", "/dev/full", *json_option)
                self.assertEqual(result.returncode, 3)
                self.assertIn("No space left", result.stderr)
                self.assertEqual(len(json.loads(result.stdout)) if json_option else result.stdout, 1 if json_option else "")
            self.assertEqual(self.leftovers(), ["ok.json"] if old else [])
        self.assertEqual(plan.read_text(), "old")

    def test_standard_output_that_takes_nothing_leaves_nothing(self):
        profile = self.put("profile.csv", profile_csv())
        data = self.folder / "data"
        self.assertEqual(run("automap-datagen", "--rows", 5, "-o", data).returncode, 0)
        before = self.leftovers()
        for command in (["automap-infer", profile, "--cluster", "config-a", "--time-limit", "0.1", "-o"],
                        ["automap-profile", TINY, "-o"], ["automap-search", "opp", TINY, "--shards", 2, "-o"],
                        ["automap-inspect", data, "--plot"]):
            target = self.folder / "new.csv"
            with open("/dev/full", "wb") as full, self.subTest(command):
                result = subprocess.run([str(BIN / command[0]), *map(str, command[1:]), str(target)], stdout=full,
                                        stderr=subprocess.PIPE, env=environment())
                self.assertEqual(result.returncode, 3, result.stderr)
                self.assertEqual(self.leftovers(), before)
            # A reader that goes away is no reason to write nothing.
            with self.subTest(command):
                reader, writer = os.pipe()
                os.close(reader)
                result = subprocess.run([str(BIN / command[0]), *map(str, command[1:]), str(target)], stdout=writer,
                                        stderr=subprocess.PIPE, env=environment())
                os.close(writer)
                self.assertEqual((result.returncode, result.stderr.count(b"error")), (0, 0))
                self.assertGreater(target.stat().st_size, 100)
                target.unlink()

    def test_what_is_appended_to_stays(self):
        log = self.put("log", "before\n")
        with open(log, "ab") as stdout:
            subprocess.run([str(BIN / "automap-profile"), str(TINY), "-o", "/dev/stdout"], stdout=stdout, stderr=subprocess.DEVNULL,
                           env=environment(), check=True)
        self.assertTrue(log.read_text().startswith("before\n# schema"), log.read_text()[:100])


class Links(Faults):
    def test_outputs_go_where_a_link_points(self):
        (self.folder / "there").mkdir()
        for command in (["automap-profile", TINY, "-o"], ["automap-search", "opp", TINY, "--shards", 2, "-o"]):
            link, target = self.folder / "link.csv", self.folder / "there" / "new.csv"
            link.symlink_to("there/new.csv")
            for _ in range(2):  # not there yet, and there
                self.assertEqual(run(*command, link).returncode, 0)
                self.assertTrue(link.is_symlink())
                self.assertTrue(target.is_file())
            link.unlink()
            target.unlink()
            link.symlink_to("other.csv")
            (self.folder / "other.csv").symlink_to("link.csv")
            self.assert_fails(run(*command, link), 3, "Too many levels of symbolic links", "leads back to itself")
            self.assertTrue(link.is_symlink())
            link.unlink()
            (self.folder / "other.csv").unlink()

    def test_folders_too(self):
        programs = [["automap-datagen", "--rows", 5, "-o"]]
        if (BIN / "automap-train").exists():
            programs.append(["automap-train", "--episodes", 16, "--evaluate-small", 2, "--evaluate-middle", 0,
                             "--evaluate-deep", 0, "--hidden", 8, "--threads", 1, "--label-fraction", 0, "--out"])
        for number, command in enumerate(programs):
            link = self.folder / f"link{number}"
            link.symlink_to(f"made{number}/by/link")
            result = run(*command, link)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertTrue(link.is_symlink())
            self.assertTrue(any((self.folder / f"made{number}" / "by" / "link").iterdir()))
            self.assertEqual(run(*command, self.folder / f"missing{number}" / "x").returncode, 0)
            loop = self.folder / f"loop{number}"
            loop.symlink_to(loop.name)
            self.assert_fails(run(*command, loop), 3, "Too many levels of symbolic links")
            self.assert_fails(run(*command, loop / "x"), 3, "Too many levels of symbolic links")
            file = self.put(f"file{number}", "mine")
            self.assert_fails(run(*command, file), 3, "Not a directory")
            self.assertEqual(file.read_text(), "mine")


class Leftovers(Faults):
    def test_the_next_run_removes_what_a_kill_left(self):
        target = self.folder / "plan.json"
        for _ in range(rounds(1, 20)):
            for command in (["automap-search", "opp", "-", "--shards", "2"], ["automap-infer", "-", "--cluster", "config-a"]):
                # Its input does not come, so it holds the file that it is going to write.
                process = subprocess.Popen([str(BIN / command[0]), *command[1:], "-o", str(target)], stdin=subprocess.PIPE,
                                           stdout=subprocess.DEVNULL, env=environment())
                while not list(self.folder.glob("*.tmp")):
                    self.assertIsNone(process.poll())
                    time.sleep(0.005)
                # While it lives, it keeps it.
                self.assertEqual(run("automap-search", "opp", TINY, "--shards", 2, "-o", target).returncode, 0)
                self.assertEqual(len(self.leftovers()), 2)
                process.send_signal(signal.SIGKILL)
                process.communicate()
                self.assertEqual(len(self.leftovers()), 2)
                self.assertEqual(run("automap-search", "opp", TINY, "--shards", 2, "-o", target).returncode, 0)
                self.assertEqual(self.leftovers(), ["plan.json"])


if __name__ == "__main__":
    unittest.main()
