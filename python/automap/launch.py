"""Starts the processes of a run, on this machine or by ssh on others, and ends all of them when one fails."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time

from automap.programs import ProgramsError

# A process that this launcher started reads its standard input, which ends with the launcher.
PARENT = "AUTOMAP_RUN_PARENT"
HERE = ("localhost", "127.0.0.1")
# Of a failed run, how long the others have to say why before they are ended, and then to end.
SAYS_S, ENDS_S = 2, 5


def read_hosts(path):
    """The machine of every process: a line each, "NAME" or "NAME slots=N"; "#" begins a remark."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ProgramsError(f"--hosts {path}: {getattr(error, 'strerror', None) or error}") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, *slots = words
        count = slots[0].removeprefix("slots=") if slots else "1"
        if len(slots) > 1 or name.startswith("-") or not count.isdecimal() or not 1 <= int(count) <= 4096:
            raise ProgramsError(f"--hosts {path}: line {number}: found {line.strip()!r}, expected NAME or NAME slots=N")
        hosts += [name] * int(count)
    if not hosts:
        raise ProgramsError(f"--hosts {path}: it names no machine; expected lines NAME or NAME slots=N")
    return hosts


def without(argv, options):
    """The words of a command but those options and their values."""
    kept, words = [], iter(argv)
    for word in words:
        if word in options:
            next(words, None)
        elif not word.startswith(tuple(option + "=" for option in options)):
            kept.append(word)
    return kept


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def command_of(host, variables, argv):
    """The words that start a process there."""
    words = [sys.executable, "-B", os.path.abspath(sys.argv[0]), *argv]
    if host in HERE:
        return words
    settings = [f"{name}={value}" for name, value in variables.items()]
    settings += [f"{name}={os.environ[name]}" for name in ("XLA_FLAGS", "PYTHONPATH", "PATH") if name in os.environ]
    # BatchMode: ssh says that it would need a password, and does not wait for one.
    return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", host,
            shlex.join(["cd", os.getcwd()]) + " && exec " + shlex.join(["env", *settings, *words])]


def launch(hosts, argv):
    """The exit code: of the first process that failed, 3 where a signal ended it."""
    argv, port = without(argv, ("--processes", "--hosts")), free_port()
    address = "127.0.0.1" if all(host in HERE for host in hosts) else socket.gethostname() if hosts[0] in HERE else hosts[0].partition("@")[2] or hosts[0]
    started = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for rank, host in enumerate(hosts):
            variables = {"RANK": str(rank), "WORLD_SIZE": str(len(hosts)), "MASTER_ADDR": address, "MASTER_PORT": str(port),
                         "LOCAL_RANK": str(hosts[:rank].count(host)), "LOCAL_WORLD_SIZE": str(hosts.count(host)), PARENT: "1"}
            try:
                started.append(subprocess.Popen(command_of(host, variables, argv), stdin=subprocess.PIPE, env={**os.environ, **variables}))
            except OSError as error:
                raise ProgramsError(f"{host}: {error.filename}: {error.strerror}") from None
        return watched(hosts, started)
    finally:
        ended(started)


def watched(hosts, started):
    while True:
        codes = [process.poll() for process in started]
        failed = [rank for rank, code in enumerate(codes) if code]
        if failed:
            break
        if None not in codes:
            return 0
        time.sleep(0.05)
    until = time.monotonic() + SAYS_S
    while time.monotonic() < until and any(process.poll() is None for process in started):
        time.sleep(0.05)
    # All end with 1 where numbers differ, and process 0 has said which.
    lost = min(failed, key=lambda rank: (codes[rank] > 0, rank))
    code = codes[lost]
    if code < 0:
        how, code = f"was ended by {signal.Signals(-code).name}", 3
    else:
        how = f"ended with code {code}"
    if code != 1:
        left = "; the others were ended" if len(started) > 1 else ""
        print(f"automap-run: error: process {lost} of {len(hosts)}, on {hosts[lost]}, {how}{left}", file=sys.stderr)
    return code


def ended(started):
    """Nothing that was started is left."""
    for process in started:
        process.stdin.close()
        if process.poll() is None:
            process.terminate()
    until = time.monotonic() + ENDS_S
    for process in started:
        try:
            process.wait(max(0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end_with_parent(environment):
    """Where a launcher started this process: it ends when the launcher does, however that ended."""
    if not environment.get(PARENT):
        return

    def wait():
        while os.read(0, 1):
            pass
        os._exit(143)

    threading.Thread(target=wait, daemon=True).start()
