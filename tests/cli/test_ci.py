"""What CI uses: scripts/jax_python.sh finds or makes a Python with jax, tests/run_script.py runs a script of tests,
scripts/list_skipped.py says what was left out, scripts/ci_table.py where the time went."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

from programs import SOURCE, ProgramTest, environment

# Stands for a Python that can make virtual environments. Its pip leaves the environment with jax, unless $PIP_FAILS.
FAKE_PYTHON = """#!/bin/bash
[[ $1 == -c ]] && { echo 3.11 fake; exit 0; }
[[ "$1 $2" == "-m venv" ]] || exit 9
echo "venv $3" >> "$CALLS"
mkdir -p "$3/bin"
cat > "$3/bin/pip" <<'END'
#!/bin/bash
echo "pip $*" >> "$CALLS"
if [[ -n $PIP_FAILS ]]; then echo "no matching distribution"; exit 1; fi
touch "$(dirname "$0")/../has_jax"
END
cat > "$3/bin/python" <<'END'
#!/bin/bash
[[ -e "$(dirname "$0")/../has_jax" ]]
END
chmod +x "$3/bin/pip" "$3/bin/python"
"""


class JaxPython(ProgramTest):
    def setUp(self):
        super().setUp()
        self.python = self.put("python3", FAKE_PYTHON)
        self.python.chmod(0o755)
        self.calls = self.put("calls", "")

    def ask(self, *arguments, **extra):
        env = environment(AUTOMAP_VENV_PYTHON=str(self.python), XDG_CACHE_HOME=str(self.folder / "cache"),
                          CALLS=str(self.calls), **extra)
        return subprocess.run([SOURCE / "scripts" / "jax_python.sh", *arguments], env=env, capture_output=True, text=True)

    def test_is_made_once_and_used_again(self):
        before = self.ask("--no-install")
        self.assertEqual((before.returncode, before.stdout), (1, ""))
        self.assertIn("no Python with jax is there yet", before.stderr)
        first = self.ask()
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(Path(first.stdout.strip()).parents[2], self.folder / "cache" / "automap")
        made = self.calls.read_text()
        self.assertIn("export_requirements.txt", made)
        for arguments in ((), ("--no-install",)):
            again = self.ask(*arguments)
            self.assertEqual((again.returncode, again.stdout, again.stderr), (0, first.stdout, ""))
        self.assertEqual(self.calls.read_text(), made)

    def test_registry_that_cannot_be_reached(self):
        failed = self.ask(PIP_FAILS="yes")
        self.assertEqual((failed.returncode, failed.stdout), (1, ""))
        self.assertIn("no matching distribution", failed.stderr)
        self.assertIn("the package registry could not be reached", failed.stderr)
        # Nothing half made is taken for a whole one, and the next run tries again.
        self.assertEqual(self.ask("--no-install").returncode, 1)
        self.assertEqual(self.ask().returncode, 0)

    def test_python_that_was_named(self):
        named = self.ask(AUTOMAP_JAX_PYTHON="/bin/true")
        self.assertEqual((named.returncode, named.stdout), (0, "/bin/true\n"))
        wrong = self.ask(AUTOMAP_JAX_PYTHON="/bin/false")
        self.assertEqual((wrong.returncode, wrong.stdout), (1, ""))
        self.assertIn("cannot import jax", wrong.stderr)
        self.assertEqual(self.ask("--nothing").returncode, 2)
        self.assertEqual(self.calls.read_text(), "")


LOG = """1/3 Testing: io.2-of-4
[ RUN      ] Pedigree.Corpus
../../tests/io_test.cpp:5: Skipped
no corpus
[  SKIPPED ] Pedigree.Corpus (0 ms)
2/3 Testing: cli.test_a
test_one (__main__.A.test_one) ... ok
test_two (__main__.A.test_two) ... skipped "it's Monday"
test_three (__main__.A.test_three)
With a docstring. ... skipped 'no corpus'
setUpClass (__main__.B) ... skipped 'no corpus'
OK (skipped=3)
3/3 Testing: cli.test_b
test_skipped_rows (__main__.A.test_skipped_rows) ... ok
"""


class ListSkipped(ProgramTest):
    def told(self, text):
        done = subprocess.run([sys.executable, SOURCE / "scripts" / "list_skipped.py", self.put("log", text)],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_names_and_reasons(self):
        self.assertEqual(self.told(LOG), "skipped: 4 tests\n"
                         "  it's Monday\n    cli.test_a.test_two\n"
                         "  no corpus\n    io.Pedigree.Corpus\n    cli.test_a.test_three\n    cli.test_a.setUpClass\n")

    def test_none(self):
        self.assertEqual(self.told("1/1 Testing: a\n[       OK ] a\n"), "skipped: no test\n")

    def test_no_log(self):
        done = subprocess.run([sys.executable, SOURCE / "scripts" / "list_skipped.py", self.folder / "none"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 3)
        self.assertIn("none", done.stderr)


SCRIPT = """import unittest
class One(unittest.TestCase):
    def test_a(self): print("a ran")
    def test_b(self): print("b ran")
class Two(unittest.TestCase):
    def test_c(self): raise AssertionError("c ran")
"""


class RunScript(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "cli").mkdir()
        self.script = self.put("cli/test_x.py", SCRIPT)
        self.sanitized = self.folder / "sanitized"
        self.sanitized.mkdir()

    def run_script(self, *tests, listed="", sanitized=True):
        (self.sanitized / "automap").write_text("__asan_init" if sanitized else "")
        return subprocess.run([sys.executable, "-B", SOURCE / "tests" / "run_script.py", self.script, *tests], text=True,
                              env=environment(AUTOMAP_ONE_BUILD=str(self.put("list", listed)), AUTOMAP_BIN=str(self.sanitized)),
                              capture_output=True)

    def test_all_or_what_was_named(self):
        done = self.run_script()
        self.assertEqual((done.returncode, done.stdout), (1, "a ran\nb ran\n"))
        self.assertRegex(done.stderr, r"test_a \(test_x.One.test_a\) \.\.\. ok \(\d+\.\d\d s, processor \d+\.\d\d s\)\n")
        self.assertIn("c ran", done.stderr)
        done = self.run_script("One.test_b")
        self.assertEqual((done.returncode, done.stdout), (0, "b ran\n"), done.stderr)
        self.assertEqual(self.run_script("One").stdout, "a ran\nb ran\n")
        self.assertEqual(self.run_script("One.test_d").returncode, 2)

    def test_a_sanitized_build_leaves_out_what_is_listed(self):
        done = self.run_script(listed="# a comment\ncli.test_x.Two  # another\ncli.test_x.One.test_a\ncli.test_xy\nbase.Two\n")
        self.assertEqual((done.returncode, done.stdout), (0, "b ran\n"), done.stderr)
        self.assertEqual(done.stderr.count("skipped 'left to the build without sanitizers"), 2)
        done = self.run_script(listed="cli.test_x.Two\n", sanitized=False)
        self.assertEqual((done.returncode, done.stdout), (1, "a ran\nb ran\n"))
        done = self.run_script(listed="cli.test_x\n")
        self.assertEqual(done.returncode, 0)
        self.assertIn("test_x ... skipped 'left to", done.stdout)

    def test_a_name_that_no_test_has(self):
        done = self.run_script(listed="cli.test_x.One.test_gone\n")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("error: cli.test_x has no test One.test_gone", done.stderr)

    def test_lists_name_tests_that_there_are(self):
        """The C++ ones, which CMake makes a filter of; scripts look themselves."""
        cases = set()
        for path in (SOURCE / "tests").rglob("*_test.cpp"):
            cases |= {".".join(names) for names in re.findall(r"^(?:TEST|TEST_F|TEST_P)\((\w+), (\w+)\)", path.read_text(), re.M)}
        for name in ("one_build.txt", "timing_sensitive.txt"):
            for line in (SOURCE / "tests" / name).read_text().splitlines():
                test = line.split("#")[0].strip()
                if not test:
                    continue
                room, _, rest = test.partition(".")
                if room in ("cli", "faults"):
                    self.assertTrue((SOURCE / "tests" / room / f"{rest.split('.')[0]}.py").exists(), test)
                else:
                    # Of one with parameters: INSTANCE/SUITE.CASE/WHICH
                    self.assertIn(re.sub(r"^\w+/|/[\w*]+$", "", rest), cases, name)


RUN = """1/3 Testing: graph.1-of-4
[       OK ] Graph.Small (5 ms)
[       OK ] Graph.Large (1500 ms)
Test time =   1.60 sec
2/3 Testing: cli.test_a
test_one (test_a.A.test_one) ... ok (2.25 s, processor 1.50 s)
test_two (test_a.A.test_two) ... skipped 'no corpus'
Test time =   2.50 sec
3/3 Testing: install.consumer
Test time =   0.75 sec
"""
NINJA = """# ninja log v5
10\t2010\t1\tCMakeFiles/automap_base.dir/Unity/unity_0_cxx.cxx.o\tabc
10\t510\t1\ttests/CMakeFiles/test-base.dir/common/base/cli_test.cpp.o\tabc
0\t9000\t1\tautomap-infer\tabc
600\t4600\t1\tCMakeFiles/automap_base.dir/Unity/unity_0_cxx.cxx.o\tabc
"""


class Table(ProgramTest):
    def table(self, *arguments):
        (self.folder / "build/Testing/Temporary").mkdir(parents=True, exist_ok=True)
        self.put("build/Testing/Temporary/LastTest.log", RUN)
        self.put("build/.ninja_log", NINJA)
        return subprocess.run([sys.executable, SOURCE / "scripts" / "ci_table.py", *arguments, "build"], cwd=self.folder,
                              capture_output=True, text=True)

    def test_slowest(self):
        done = self.table("--costs", "costs.txt")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "\nTests of build: 4, 5 s in all; the slowest\n"
                         "      2.25 s  cli.test_a.A.test_one\n      1.50 s  graph.Graph.Large\n      0.75 s  install.consumer\n"
                         "      0.01 s  graph.Graph.Small\n"
                         "\nCompilations of build: 2, 4 s in all; the slowest\n"
                         "      4.00 s  automap_base: unity_0_cxx.cxx.o\n      0.50 s  test-base: common/base/cli_test.cpp.o\n")
        self.assertEqual((self.folder / "costs.txt").read_text().splitlines()[1:],
                         ["cli.test_a 2.5", "graph.1-of-4 1.6", "install.consumer 0.8"])

    def test_processor_seconds_are_limited(self):
        self.put("steps", "build\t100\t150.5\ntests\t60\t80\n")
        self.put("limit", "# a reason\n230\n")
        done = self.table("--steps", "steps", "--limit", "limit")
        self.assertEqual(done.returncode, 1)
        self.assertIn("tests                                         60 s       80 s\n", done.stdout)
        self.assertIn("error: 230 s of processor time are more than the 230 s of limit", done.stderr)
        self.put("limit", "231")
        self.assertEqual(self.table("--steps", "steps", "--limit", "limit").returncode, 0)
        self.put("limit", "# none\n")
        done = self.table("--steps", "steps", "--limit", "limit")
        self.assertEqual((done.returncode, done.stderr), (3, "ci_table.py: no line with a number of seconds\n"))


if __name__ == "__main__":
    unittest.main()
