"""What scripts that write tables into pages of docs/ share."""

import pathlib
import subprocess
import sys


def version(program):
    """What a page names as measured. A build of uncommitted changes is refused: nobody could measure that again."""
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    if "-dirty" in text:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {program} was built from uncommitted changes; commit them and build again")
    return text


def replace(text, script, name, rows):
    """The page with `rows` between the marks that `script` has there for its table `name`."""
    begin, end = f"<!-- {name}: scripts/{script}.py -->", f"<!-- end of {name} -->"
    first, last = text.index(begin) + len(begin), text.index(end)
    return text[:first] + "\n" + "\n".join(rows) + "\n" + text[last:]
