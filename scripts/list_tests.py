#!/usr/bin/env python3
"""Lists every test by name: GoogleTest's cases of a build, and the methods of the unittest scripts.

    scripts/list_tests.py BUILD [SOURCE]      e.g. scripts/list_tests.py build/release >before; diff before after

BUILD: a folder with tests/test-<room>; SOURCE: the checkout it is of (default: this one). Sorted, one a line.
"""

import ast
import subprocess
import sys
from pathlib import Path


def google_tests(program):
    room, suite, out = program.name[len("test-"):], "", []
    listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            out.append(f"{room}.{suite}{name.strip()}")
        elif name.endswith("."):
            suite = name
    return out


def script_tests(script):
    return [f"{script.parent.name}.{script.stem}.{found.name}.{method.name}" for found in ast.parse(script.read_text()).body
            if isinstance(found, ast.ClassDef) for method in found.body
            if isinstance(method, ast.FunctionDef) and method.name.startswith("test")]


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    build = Path(sys.argv[1])
    source = Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).resolve().parent.parent
    programs = sorted(path for path in (build / "tests").glob("test-*") if path.is_file() and not path.suffix)
    if not programs:
        print(f"list_tests.py: {build}/tests has no test-* programs: build it with tests", file=sys.stderr)
        return 3
    names = [name for program in programs for name in google_tests(program)]
    names += [name for folder in ("cli", "faults") for script in sorted((source / "tests" / folder).glob("test_*.py"))
              for name in script_tests(script)]
    print("\n".join(sorted(names)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
