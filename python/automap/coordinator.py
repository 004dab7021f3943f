"""The service at which the processes of a run meet (JAX's distributed runtime): coordinator.py HOST:PORT COUNT, started by
process 0 as a program of its own. It ends a while after process 0 has: until then the others hear that it is lost."""

import os
import socket
import sys
import time

STAYS_S = 14  # longer than a lost process takes to be missed


def is_free(address, seconds=STAYS_S + 6):
    """Whether nobody listens there, or not for longer than so many seconds: the service of a run that failed a moment ago may
    still be there, and two would share the port without a word."""
    host, port = address.rsplit(":", 1)
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1" if host == "[::]" else host, int(port)), 1).close()
        except OSError:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(0.2)


def main():
    from jaxlib import _jax

    address, count = sys.argv[1:]
    try:
        if not is_free(address):
            raise OSError("another program listens there")
        service = _jax.get_distributed_runtime_service(address, int(count), heartbeat_timeout=60, shutdown_timeout=60)
    except Exception as error:
        print(f"automap-run: error: {address}: the processes cannot meet there: {str(error).splitlines()[0]}; choose another MASTER_PORT",
              file=sys.stderr)
        return 3
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # Who reads what the processes print does not wait for this one.
        os.dup2(nothing, stream)
    if sys.stdin.read() != "end":
        time.sleep(STAYS_S)
    service.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
