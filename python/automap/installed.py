"""The programs of AutoMap that are installed or built here, and calling them."""

import os
import shutil
import subprocess
from pathlib import Path

from automap.errors import Error

_HERE = Path(__file__).resolve().parent  # of the package


def folders():
    """Where programs are looked for before the PATH: the package stands in share/automap/python of an installed copy, in
    python of a build folder, or in python of the sources."""
    return [_HERE.parents[3] / "bin", _HERE.parents[1], _HERE.parents[1] / "build" / "release"]


def find(name):
    for folder in folders():
        if os.access(folder / name, os.X_OK) and (folder / name).is_file():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise Error(f"{name} is neither beside the package nor on the PATH; build it in AutoMap's sources "
                    "(cmake --preset release && cmake --build --preset release) and put build/release on the PATH")
    return found


def call(name, *arguments, folder):
    """Runs a program; Error with what it says where it fails. `folder`: a temporary one, which is not named."""
    try:
        done = subprocess.run([find(name), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise Error(f"{name}: {error.strerror}") from None
    if done.returncode != 0:
        raise Error(_said(done.stderr).replace(os.path.join(folder, ""), "") or f"{name} ended with code {done.returncode}", done.returncode)


def _said(text):
    """The error of a program, and the hints behind it; the warnings before it are left out."""
    found = text.startswith("error: ") or "\nerror: " in text
    return ("\n" + text).split("\nerror: ", 1)[1].strip() if found else text.strip()
