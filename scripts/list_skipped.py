#!/usr/bin/env python3
"""Says which tests of a run of ctest were skipped, and why; also those inside of a unittest script that passed.

  scripts/list_skipped.py build/release/Testing/Temporary/LastTest.log

GoogleTest prints "FILE:LINE: Skipped" and the reason below, unittest (-v) "NAME (CLASS) ... skipped 'REASON'".
Prints one line per reason with its tests; exit code 0, whatever was skipped.
"""

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

TEST = re.compile(r"^\d+/\d+ Testing: (\S+)")
GOOGLE_TEST = re.compile(r"^\[  SKIPPED \] (\S+)(?:, where .*)? \(\d+ ms\)$")
MOST_LINES = 50  # of the reason and of what the test prints behind it
UNITTEST = re.compile(r"""^(?:(\w+) \(\S+\)|.*)(?: \.\.\.)? skipped (['"].*['"])$""")
UNITTEST_NAME = re.compile(r"^(test\w*|setUpClass) \(\S+\)$")


def skipped_of(text):
    """[(test, reason)] in the order of the log."""
    found, current, name = [], None, None
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if match := TEST.match(line):
            current, name = match.group(1), None
        elif re.search(r"\.cpp:\d+: Skipped$", line):
            # The case stands below: of "planners.2-of-4" planners.Suite.Case.
            below = (GOOGLE_TEST.match(later) for later in lines[number + 1:number + 1 + MOST_LINES])
            case = next((later.group(1) for later in below if later), None)
            test = f"{current.split('.')[0]}.{case}" if case else current
            found.append((test, lines[number + 1].strip() if number + 1 < len(lines) else ""))
        elif match := UNITTEST_NAME.match(line):
            name = match.group(1)  # a test with a docstring: its first line, and the verdict, stand below
        elif match := UNITTEST.match(line):
            found.append((f"{current}.{match.group(1) or name or '?'}", ast.literal_eval(match.group(2))))
    return found


def told(found):
    reasons = defaultdict(list)
    for test, reason in found:
        reasons[reason].append(test)
    lines = [f"skipped: {len(found)} tests" if found else "skipped: no test"]
    for reason, tests in sorted(reasons.items()):
        lines.append(f"  {reason}")
        lines += [f"    {test}" for test in tests]
    return "\n".join(lines)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    path = Path(sys.argv[1])
    try:
        print(told(skipped_of(path.read_text(errors="replace"))))
    except OSError as error:
        print(f"list_skipped.py: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
