#!/usr/bin/env python3
"""Says where the time of a check went: its steps, and the slowest tests and compilations of its builds.

    scripts/ci_table.py [--steps FILE] [--limit FILE] [--costs FILE] BUILD...     e.g. build/release build/asan

BUILD: a build folder, whose .ninja_log and last run of ctest are read. --steps: lines "NAME<tab>WALL<tab>PROCESSOR" in
seconds, as .ci/run writes them. --limit: a file whose first line that is no comment is the most processor seconds that
all steps may take together; exit code 1 when they took more. --costs: writes the wall seconds of every test of the first
BUILD there, for ctest to begin the longest first (tests/costs.txt).
"""

import argparse
import re
import sys
from pathlib import Path

MOST = 20
STARTED = re.compile(r"^\d+/\d+ Testing: (\S+)$")
CTEST_SECONDS = re.compile(r"^Test time =\s+([0-9.]+) sec$")
GOOGLE_TEST = re.compile(r"^\[ +(?:OK|FAILED) +\] (\S+?)(?:, where .*)? \((\d+) ms\)$")
UNITTEST = re.compile(r"^\w+ \(([\w.]+)\) \.\.\. ok \(([0-9.]+) s(?:, .*)?\)$")


def tests_of(log):
    """({ctest's test: seconds}, [(seconds, one test inside)]) of the LastTest.log of ctest."""
    whole, single, current, inside = {}, [], None, False
    for line in log.splitlines():
        if match := STARTED.match(line):
            current, inside = match.group(1), False
        elif match := CTEST_SECONDS.match(line):
            whole[current] = float(match.group(1))
            if not inside:
                single.append((whole[current], current))
        elif match := GOOGLE_TEST.match(line):
            inside = True
            single.append((int(match.group(2)) / 1000, f"{current.split('.')[0]}.{match.group(1)}"))
        elif match := UNITTEST.match(line):
            inside = True
            # "test_infer.Infer.test_x", behind the room that ctest names
            single.append((float(match.group(2)), f"{current.split('.')[0]}.{match.group(1)}"))
    return whole, sorted(single, reverse=True)


def compilations_of(log):
    """[(seconds, file)] of a .ninja_log; a file that was built again counts with its last time."""
    seconds = {}
    for line in log.splitlines()[1:]:
        fields = line.split("\t")
        if len(fields) >= 4 and fields[3].endswith(".o"):
            seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return sorted(((s, re.sub(r"^(.*/)?CMakeFiles/(.*)\.dir/(Unity/)?", r"\2: ", file)) for file, s in seconds.items()), reverse=True)


def steps_of(text):
    rows = [line.split("\t") for line in text.splitlines() if line]
    return [(name, float(wall), float(processor)) for name, wall, processor in rows]


def limit_of(path):
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            return float(line.split()[0])
    raise ValueError("no line with a number of seconds")


def slowest(title, rows):
    print(f"\n{title}: {len(rows)}, {sum(seconds for seconds, _ in rows):.0f} s in all; the slowest")
    for seconds, name in rows[:MOST]:
        print(f"  {seconds:8.2f} s  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=Path)
    parser.add_argument("--limit", type=Path)
    parser.add_argument("--costs", type=Path)
    parser.add_argument("builds", metavar="BUILD", type=Path, nargs="+")
    arguments = parser.parse_args()
    try:
        for build in arguments.builds:
            log = build / "Testing/Temporary/LastTest.log"
            if log.exists():
                whole, single = tests_of(log.read_text(errors="replace"))
                slowest(f"Tests of {build}", single)
                if arguments.costs and build == arguments.builds[0]:
                    arguments.costs.write_text("# Written by scripts/ci_table.py --costs: wall seconds of every test of ctest.\n" +
                                               "".join(f"{name} {s:.1f}\n" for name, s in sorted(whole.items())))
            log = build / ".ninja_log"
            if log.exists():
                slowest(f"Compilations of {build}", compilations_of(log.read_text()))
        steps = steps_of(arguments.steps.read_text()) if arguments.steps else []
        limit = limit_of(arguments.limit) if arguments.limit else None
    except (OSError, ValueError) as error:
        print(f"ci_table.py: {error}", file=sys.stderr)
        return 3
    if not steps:
        return 0
    steps.append(("all", sum(step[1] for step in steps), sum(step[2] for step in steps)))
    print(f"\n{'step':40}  {'wall':>8}  {'processor':>9}")
    for name, wall, processor in steps:
        print(f"{name:40}  {wall:6.0f} s  {processor:7.0f} s")
    if limit is not None and steps[-1][2] > limit:
        print(f"error: {steps[-1][2]:.0f} s of processor time are more than the {limit:.0f} s of {arguments.limit}: make it cheaper,"
              " or raise the figure with a reason in the commit", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
