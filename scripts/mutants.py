#!/usr/bin/env python3
"""Bugs of one line, put in one at a time: does a test notice?

    scripts/mutants.py [--only REGEX] [--jobs N] [--keep FOLDER]

Reads scripts/mutants.txt: blocks of a file and the unit test programs that should notice, a line that stands once in the
file and what it becomes. Works in a clone of this checkout under build/mutants, never in the checkout itself: each
mutant is compiled there, the programs run until one fails, and the file is put back. Exit code 1 where a line is not
found, or fewer than nine of ten are noticed; those that nothing can notice say why behind "equivalent:" and do not count.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEAST_SHARE = 0.9
MOST_SECONDS = 600  # of one test program


def mutants(path):
    """-> [(file, [test programs], old, new, why it is equivalent or "")]"""
    found = []
    for number, block in enumerate(path.read_text().split("\n\n")):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if not lines:
            continue
        if len(lines) < 3 or lines[1][:2] != "- " or lines[2][:2] != "+ " or " | " not in lines[0]:
            raise SystemExit(f"{path}: block {number + 1} is no mutant: FILE | TESTS, '- old', '+ new'")
        file, tests = lines[0].split(" | ")
        why = lines[3].removeprefix("equivalent: ") if len(lines) > 3 else ""
        found.append((file, tests.split(), lines[1][2:], lines[2][2:], why))
    return found


def run(command, where, **more):
    return subprocess.run(command, cwd=where, capture_output=True, text=True, **more)


def prepare(folder):
    """A clone at this commit, with what is changed and not committed, configured."""
    if not (folder / ".git").exists():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "fetch", "-q", "origin", "HEAD"], cwd=folder, check=True)
    subprocess.run(["git", "checkout", "-q", "--force", "FETCH_HEAD"], cwd=folder, check=True)
    changed = run(["git", "diff", "HEAD"], ROOT).stdout
    if changed:
        subprocess.run(["git", "apply"], cwd=folder, input=changed, text=True, check=True)
    if not (folder / "build/release/build.ninja").exists():
        subprocess.run(["cmake", "--preset", "release", "-DAUTOMAP_BUILD_BENCH=OFF"], cwd=folder, check=True)


def noticed(folder, tests, jobs):
    """-> (by whom, seconds); nobody: "". A mutant that does not compile is noticed by the compiler."""
    start = time.monotonic()
    for test in tests:
        built = run(["ninja", "-C", "build/release", f"-j{jobs}", test], folder)
        if built.returncode != 0:
            return "the compiler", time.monotonic() - start
        try:
            result = run([f"build/release/tests/{test}", "--gtest_brief=1", "--gtest_fail_fast"], folder,
                         timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            return f"{test} (endless)", time.monotonic() - start
        if result.returncode != 0:
            case = re.search(r"FAILED  \] (\S+)", result.stdout)
            return f"{test} {case.group(1) if case else result.returncode}", time.monotonic() - start
    return "", time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="mutants of files, lines or programs that match")
    parser.add_argument("--jobs", type=int, default=2, help="of the compiler")
    parser.add_argument("--keep", type=pathlib.Path, default=ROOT / "build/mutants", help="where the clone is")
    options = parser.parse_args()
    chosen = [m for m in mutants(ROOT / "scripts/mutants.txt") if re.search(options.only, " ".join([m[0], *m[1], m[2]]))]
    if not chosen:
        raise SystemExit(f"no mutant matches {options.only!r}")
    folder = options.keep.resolve()
    prepare(folder)
    all_tests = sorted({test for _, tests, *_ in chosen for test in tests})
    whole = run(["ninja", "-C", "build/release", f"-j{options.jobs}", *all_tests], folder)
    if whole.returncode != 0:
        raise SystemExit("the checkout itself does not compile:\n" + whole.stdout[-2000:])
    counted = killed = 0
    missing = []
    for file, tests, old, new, why in chosen:
        path = folder / file
        text = path.read_text()
        if text.count(old) != 1:
            missing.append(f"{file}: '{old}' stands {text.count(old)} times")
            continue
        try:
            path.write_text(text.replace(old, new))
            by, seconds = noticed(folder, tests, options.jobs)
        finally:
            path.write_text(text)
        if not why:
            counted += 1
            killed += bool(by)
        verdict = f"equivalent ({why})" if why and not by else by or "NOBODY NOTICES"
        print(f"{file}: {old.strip()}  ->  {new.strip()}\n    {verdict}, {seconds:.0f} s", flush=True)
    for line in missing:
        print(line, file=sys.stderr)
    print(f"{killed} of {counted} noticed")
    return 1 if missing or killed < LEAST_SHARE * counted else 0


if __name__ == "__main__":
    sys.exit(main())
