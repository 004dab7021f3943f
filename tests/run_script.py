#!/usr/bin/env python3
"""Runs one unittest script and says how long each of its tests took.

    python3 -B tests/run_script.py tests/cli/test_infer.py [TEST ...]     TEST: CLASS or CLASS.METHOD; without: all

For programs of a sanitized build (AUTOMAP_BIN) the tests that tests/one_build.txt lists are skipped. AUTOMAP_ONE_BUILD:
another list, for the tests of this script. Exit code: 1 when a test failed, 5 when there was none.
"""

import importlib.util
import os
import resource
import sys
import time
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parent
REASON = "left to the build without sanitizers (tests/one_build.txt)"


def left_out(room):
    """The names of `room` ("cli.test_infer") in the list: "" for all of it, else "Class" or "Class.method"."""
    lines = Path(os.environ.get("AUTOMAP_ONE_BUILD") or TESTS / "one_build.txt").read_text().splitlines()
    names = [line.split("#")[0].strip() for line in lines]
    return [name[len(room) + 1:] for name in names if name == room or name.startswith(room + ".")]


def is_sanitized(folder):
    # The smallest program, which every build has.
    program = Path(folder) / "automap"
    return program.exists() and b"__asan_init" in program.read_bytes()


def processor_seconds():
    """Of this process and of all the programs that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class TimedResult(unittest.TextTestResult):
    """Prints "ok (0.52 s, processor 0.40 s)" where unittest prints "ok"."""

    def startTest(self, test):
        super().startTest(test)
        self.began, self.used = time.monotonic(), processor_seconds()

    def addSuccess(self, test):
        unittest.TestResult.addSuccess(self, test)
        self.stream.writeln(f"ok ({time.monotonic() - self.began:.2f} s, processor {processor_seconds() - self.used:.2f} s)")
        self.stream.flush()

    def getDescription(self, test):
        return str(test)  # without the docstring: one line for each test


def tests_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


def name_of(test):
    return test.id().split(".", 1)[1]


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    script, wanted = Path(sys.argv[1]).resolve(), sys.argv[2:]
    sys.argv = [str(script)]
    sys.path.insert(0, str(script.parent))
    os.chdir(script.parent)
    room = f"{script.parent.name}.{script.stem}"
    skipped = left_out(room) if is_sanitized(os.environ.get("AUTOMAP_BIN", "")) else []
    if "" in skipped:
        # Not even loaded: it may ask JAX, or make what its tests share.
        print(f"{script.stem} ... skipped {REASON!r}")
        return 0
    spec = importlib.util.spec_from_file_location(script.stem, script)
    module = importlib.util.module_from_spec(spec)
    sys.modules[script.stem] = module
    spec.loader.exec_module(module)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    tests, known = list(tests_of(suite)), set()
    for test in tests:
        names = {name_of(test), name_of(test).split(".")[0]}
        known |= names
        if names & set(skipped):
            setattr(test, test._testMethodName, unittest.skip(REASON)(getattr(test, test._testMethodName)))
    if unknown := sorted((set(skipped) | set(wanted)) - known):
        print(f"error: {room} has no test {', '.join(unknown)}", file=sys.stderr)
        return 2
    if wanted:
        suite = unittest.TestSuite(test for test in tests if {name_of(test), name_of(test).split(".")[0]} & set(wanted))
    result = unittest.TextTestRunner(verbosity=2, resultclass=TimedResult).run(suite)
    if result.testsRun == 0 and not result.skipped:
        return 5
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
