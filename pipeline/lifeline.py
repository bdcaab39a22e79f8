"""A process, and whatever it starts in turn, that cannot outlive the one that started it.

The head of the new process group holds one end of a pipe, its starter the other, and nothing is
ever written. However the starter ends, its end is closed then; on Linux the kernel answers that by
killing the group, even where its processes are stopped, spin in native code or have no memory left
to notice anything. Elsewhere a process must look after itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from typing import Any


@contextlib.contextmanager
def group(command: Sequence[str], **how: Any) -> Generator[subprocess.Popen[Any]]:
    """Start a command in a process group of its own, which ends with the block at the latest.

    `how` is `subprocess.Popen`'s. Raises OSError where the command cannot be started.
    """
    theirs, ours = os.pipe()
    process: subprocess.Popen[Any] | None = None
    try:
        process = subprocess.Popen(command, pass_fds=(theirs,), start_new_session=True, **how)
        _kill_at_hang_up(theirs, process.pid)
        yield process
    finally:
        if process is not None:
            kill(process)
            process.wait()
        os.close(ours)  # first, while there is a reader to tell: children of a dead head go now
        os.close(theirs)
        if process is not None:  # only now: a child that holds a stream keeps it from being closed
            _close(process)


def _close(process: subprocess.Popen[Any]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def kill(process: subprocess.Popen[Any]) -> None:
    """End a process of `group` that has not ended, and what it has started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()


def _kill_at_hang_up(end: int, head: int) -> None:
    """Have the kernel kill a process group when the last writer of this pipe is gone.

    Unlike `prctl(PR_SET_PDEATHSIG)` this reaches the whole group, needs no code in it, and does
    not take the end of a mere thread for the end of the process.
    """
    if sys.platform == "linux":
        fcntl.fcntl(end, fcntl.F_SETOWN, -head)
        fcntl.fcntl(end, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(end, fcntl.F_SETFL, os.O_ASYNC)
