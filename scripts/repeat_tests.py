#!/usr/bin/env python3
"""Runs tests again and again, and stops at the first failure.

    scripts/repeat_tests.py [--times N] [--busy N] [--build BUILD] [NAME ...]

NAME: ROOM.SUITE.CASE of GoogleTest, or cli.SCRIPT[.CLASS[.METHOD]]; without names those of tests/timing_sensitive.txt, which
clocks or the load of a machine once broke. --times: how often (20). --busy: so many endless loops beside them (0).
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent


def command_of(name, build):
    room, _, rest = name.partition(".")
    if room in ("cli", "faults"):
        script, _, test = rest.partition(".")
        return [sys.executable, "-B", SOURCE / "tests/run_script.py", SOURCE / "tests" / room / f"{script}.py", *([test] if test else [])]
    return [build / "tests" / f"test-{room}", f"--gtest_filter={rest}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--build", type=Path, default=SOURCE / "build/release")
    parser.add_argument("names", metavar="NAME", nargs="*")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    lines = (SOURCE / "tests/timing_sensitive.txt").read_text().splitlines()
    names = arguments.names or [word for word in (line.split("#")[0].strip() for line in lines) if word]
    environment = {**os.environ, "AUTOMAP_BIN": str(build), "AUTOMAP_SOURCE": str(SOURCE)}
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    try:
        for name in names:
            began = time.monotonic()
            for number in range(1, arguments.times + 1):
                done = subprocess.run([str(part) for part in command_of(name, build)], env=environment, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, errors="replace")
                # GoogleTest is content with a name that no test has.
                if done.returncode != 0 or "Running 0 tests" in done.stdout:
                    print(done.stdout)
                    print(f"error: {name} failed at its run {number}", file=sys.stderr)
                    return 1
            print(f"{name}: {arguments.times} times, {time.monotonic() - began:.1f} s", flush=True)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
