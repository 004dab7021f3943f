"""What the command-line tests share: running the built programs, small inputs."""

import json
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("AUTOMAP_SOURCE", Path(__file__).resolve().parent.parent.parent))
BIN = Path(os.environ.get("AUTOMAP_BIN", SOURCE / "build" / "release"))
FIXTURES = SOURCE / "fixtures" / "hlo"
# Sanitized builds on busy machines are slow; nothing here should take this long. A limit of time says that something
# hangs and nothing else: what must have happened is waited for (wait_until, use_processor).
TIMEOUT_S = 600
SANITIZED = (BIN / "automap-inspect").exists() and b"__asan_init" in (BIN / "automap-inspect").read_bytes()

# Where a test says nothing of the effort: the same search, only less of it. Tests of the rooms search with all efforts.
# None: what people get who say nothing.
EFFORT = "quick"


def plan_with_the_default_effort():
    """For scripts whose tests are about what people get who say nothing; sanitized programs would take minutes."""
    global EFFORT
    if not SANITIZED:
        EFFORT = None


def python_with_jax():
    """The Python named by AUTOMAP_JAX_PYTHON, or the python3 of the path, whichever has jax; None: neither."""
    for candidate in (os.environ.get("AUTOMAP_JAX_PYTHON"), shutil.which("python3")):
        if candidate and subprocess.run([candidate, "-c", "import jax"], capture_output=True).returncode == 0:
            return candidate
    return None


NO_JAX = "no Python with jax; AUTOMAP_JAX_PYTHON=$(scripts/jax_python.sh) makes one"


def environment(**extra):
    """The environment without what would change the programs' options."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("AUTOMAP_") or k in ("AUTOMAP_BIN", "AUTOMAP_SOURCE")}
    kept["PATH"] = f"{BIN}{os.pathsep}{kept.get('PATH', '')}"
    # Sentences are looked for whole; how reports fit is what test_narrow.py and others say themselves.
    kept["COLUMNS"] = "1000"
    if EFFORT:
        kept["AUTOMAP_INFER_EFFORT"] = EFFORT
    kept.update(extra)
    return kept


def run(*command, stdin=None, cwd=SOURCE, env=None):
    """Runs a program of AutoMap with `stdin` (text or bytes) and gives its result, output as text."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    result = subprocess.run([str(BIN / command[0]), *map(str, command[1:])], input=stdin, cwd=cwd, env=env or environment(),
                            capture_output=True, timeout=TIMEOUT_S)
    result.stdout, result.stderr = result.stdout.decode(), result.stderr.decode()
    return result


# Measured, and so different from run to run: how long things took and when they were found.
TIMES = re.compile(r"^(planning_ms|found_ms|proven_ms|.*_seconds)$")


def without_times(value):
    if isinstance(value, dict):
        # Whether something was proven is no measurement; when it was, is.
        return {k: (v is not None if k == "proven_ms" else None) if TIMES.match(k) else without_times(v) for k, v in value.items()}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def read_terminal(ours):
    """All that programs write to a terminal until the last of them has closed it; `ours` is the other end."""
    text = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the end, of a terminal
            part = b""
        if not part:
            os.close(ours)
            return text.decode()
        text += part


TAKEN_PORTS = []  # sockets that say so


def free_port():
    """A port at which nobody listens. Below those that the system gives to whoever asks for any, so that it stays free,
    and no other test takes it as long as this one runs."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0automap-test-port-{port}")
            with socket.socket() as s:
                s.bind(("0.0.0.0", port))
        except OSError:
            mark.close()
            continue
        TAKEN_PORTS.append(mark)
        return port


def profile_csv(instructions=40, **columns):
    """A profile whose instructions all cost the same; columns give other values."""
    values = {"c_ms": 1.0, "a_bytes": 1e6, "w_bytes": 1e6, "stash_bytes": 1e6, **columns}
    lines = [",".join(values)]
    for i in range(instructions):
        lines.append(",".join(str(v[i] if isinstance(v, list) else v) for v in values.values()))
    return "\n".join(lines) + "\n"


class ProgramTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = Path(self._folder.name)

    def put(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def assert_fails(self, result, code, *parts):
        """The exit code, one `error:` line with the parts, nothing on standard output, no sign of a crash."""
        self.assertEqual(result.returncode, code, f"{result.args}\n{result.stdout}\n{result.stderr}")
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("error: "), 1, result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)
        for sign in ("terminate called", "Sanitizer", "internal check failed", "bug in AutoMap"):
            self.assertNotIn(sign, result.stderr)

    def assert_json_error(self, result, code, kind):
        self.assertEqual(result.returncode, code, result.stderr)
        error = json.loads(result.stdout)["error"]
        self.assertEqual(error["kind"], kind)
        self.assertIn(error["message"], result.stderr)
        return error

    def wait_until(self, what, *processes):
        """Until what() is true. Fails when one of the processes ends before, or when nothing happens for TIMEOUT_S."""
        pause_s = 0.005
        # Counted in waits: the clock of a machine that was held up may jump.
        for _ in range(int(TIMEOUT_S / pause_s)):
            ended = [process for process in processes if process.poll() is not None]
            if what():
                return
            for process in ended:
                self.fail(f"ended too early: {process.args}, exit code {process.returncode}")
            time.sleep(pause_s)
        self.fail("nothing happened")

    def use_processor(self, process, seconds):
        """Until the process has used so much processor time: it is that far, however busy the machine."""
        ticks = os.sysconf("SC_CLK_TCK")

        def used():
            try:
                fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            except FileNotFoundError:
                return False  # it has ended
            return (int(fields[11]) + int(fields[12])) / ticks >= seconds

        self.wait_until(used, process)

    def leftovers(self):
        return sorted(p.name for p in self.folder.iterdir())
