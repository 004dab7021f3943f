"""The programs of AutoMap that are installed or built here, and calling them."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from automap.errors import Error

_HERE = Path(__file__).resolve().parent  # of the package


def folders(package=_HERE):
    """Where programs are looked for before the PATH: the package stands in share/automap/python of an installed copy or in
    lib/python3.x/site-packages of an environment, in a folder of pip install --target, in python of a build folder, or in python
    of the sources. One that stands near the root has fewer folders above it."""
    above = dict(enumerate(package.parents))
    return [above[number] / inside for number, inside in ((3, "bin"), (0, "bin"), (1, ""), (1, "build/release")) if number in above]


def find(name):
    for folder in folders():
        if os.access(folder / name, os.X_OK) and (folder / name).is_file():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise Error(f"{name} is neither beside the package nor on the PATH; build it in AutoMap's sources "
                    "(cmake --preset release && cmake --build --preset release) and put build/release on the PATH, or "
                    "install both there: pip install .")
    return found


def call(name, *arguments, folder, cwd=None, answered=lambda printed: False):
    """Runs a program; what it printed, and its warnings. Error with what it says where it fails. `folder`: a temporary one, which
    is not named. `cwd`: where paths start. `answered`: given what it printed, whether that nothing fits (exit code 4) is an answer."""
    try:
        done = subprocess.run([os.path.abspath(find(name)), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                              encoding="utf-8", errors="replace", cwd=cwd, env=_environment())
    except OSError as error:
        raise Error(f"{error.filename or name}: {error.strerror}") from None
    except ValueError as error:  # A word has a zero byte in it.
        raise Error(f"{name} cannot be called with these options: {error}") from None
    missing = _not_started(done)
    if missing:
        raise Error(f"{name} cannot be started on this machine: {missing}")
    if done.returncode != 0 and not (done.returncode == 4 and answered(done.stdout)):
        raise Error(_said(done.stderr).replace(os.path.join(folder, ""), "") or f"{name} ended with code {done.returncode}", done.returncode)
    return done.stdout, [line.removeprefix("warning: ") for line in done.stderr.splitlines() if line.startswith("warning: ")]


def _environment():
    """What programs do in Python (StableHLO made HLO) they do with this one where it has jaxlib and no other is named."""
    if os.environ.get("AUTOMAP_JAX_PYTHON") or not sys.executable or importlib.util.find_spec("jaxlib") is None:
        return None
    return {**os.environ, "AUTOMAP_JAX_PYTHON": sys.executable}


def _not_started(done):
    """What the loader says of a program that needs what this machine does not have, and what to do; "" of one that ran."""
    library = re.search(r"error while loading shared libraries: (.+)", done.stderr)
    if library and done.returncode == 127:
        return f"{library[1].strip()}; install the package that has it, or a wheel, whose programs need no library but the C library"
    version = re.search(r"version `(GLIBC\w*_[\d.]+)' not found", done.stderr)
    if version and done.returncode == 1:
        return f"it was built for a newer system, with {version[1]}; build it here: pip install . in AutoMap's sources"
    return ""


def _said(text):
    """The error of a program, and the hints behind it; the warnings before it are left out, unless there are no others."""
    _, found, said = ("\n" + text).partition("\nerror: ")
    return said.strip() if found else "\n".join(line.removeprefix("warning: ") for line in text.strip().splitlines())


def jax_error(error):
    """The Error to raise when a module of JAX cannot be imported: there is no JAX, or one of another version."""
    try:
        import jax
    except ImportError:
        return Error("this Python has no JAX; install jax 0.10")
    return Error(f"a plan is run with JAX 0.10, and this Python has {getattr(jax, '__version__', 'another')} ({error}); install jax 0.10")
