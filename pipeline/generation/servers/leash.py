"""`generation.servers.leash COMMAND…`: run a server that cannot outlive the process that started
it.

Standard input is the leash: the process that started this program holds the other end. It closes
when that process ends, also by Ctrl-C or SIGKILL. The server and all its children then get SIGTERM,
and SIGKILL after a few seconds. If this program itself is killed, they are killed at once
(`processes.group`). It runs in its own session, so that a signal to the terminal of the process
that started it does not reach the server directly.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

from ...system import processes

_GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL for the server."""


def main(command: list[str]) -> int:
    """Run the command until it ends or the leash closes; returns its exit code."""
    with processes.group(command, stdin=subprocess.DEVNULL) as server:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: _stop(server))
        threading.Thread(target=_hold, args=(server,), daemon=True).start()
        code = server.wait()
        _signal(server, signal.SIGKILL)  # children that it left
    return code if code >= 0 else 128 - code


def _hold(server: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    _stop(server)


def _stop(server: subprocess.Popen[bytes]) -> None:
    _signal(server, signal.SIGTERM)
    timer = threading.Timer(_GRACE, _signal, (server, signal.SIGKILL))
    timer.daemon = True
    timer.start()


def _signal(server: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
