"""`generation.servers.leash COMMAND…`: run a server that cannot outlive the process that started
it.

Standard input is the leash: it stays open as long as its holder lives, however that dies, Ctrl-C
and SIGKILL included. At its end the server and all its children are asked to end, then ended; if
the leash itself is cut, they are ended at once (`processes.group`). Started in a session of its
own, so that a signal to the holder's terminal does not reach the server past its leash.
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
    """Run the command; its exit code, once it has ended or the leash was let go."""
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
