"""What CI uses to run the extended tests: scripts/jax_python.sh finds or makes a Python with jax, scripts/list_skipped.py
says what was left out."""

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


LOG = """1/3 Testing: io.Pedigree.Corpus
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


if __name__ == "__main__":
    unittest.main()
