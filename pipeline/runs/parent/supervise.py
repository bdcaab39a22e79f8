"""The parent's side of a worker: start it, read its messages, report how it died.

llama.cpp aborts the process on many bad inputs, so a crash is a normal outcome here.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO

from ...system import processes
from ...system.processes import last_error_lines
from ..protocol import Job

_LONGEST_LINE = 2**28
"""Longest accepted message line, in characters."""

_GRACE = 2.0
"""Seconds for reading a dead worker's last messages; its children may keep its standard output open
longer."""


class Garbage(Exception):
    """The worker sent a malformed message; the text describes it."""


@dataclass(frozen=True)
class Death:
    """How a worker failed: it crashed, hung or sent a malformed message."""

    hung: bool
    """True if it was killed because a time limit was reached; False otherwise."""
    reason: str
    """What happened; for a crash or a hang also the last lines of its standard error."""


def supervise(
    job: Job, take: Callable[[str], None], *, time_limit: float, deadline: float | None = None
) -> Death | None:
    """Run a job in a worker and pass each line of its output to `take`; None if it ended well.

    The worker is killed after `time_limit` seconds without a line, and at `deadline`, a time of
    `time.monotonic()`.
    """

    def patience() -> float:
        left = time_limit if deadline is None else deadline - time.monotonic()
        return max(min(time_limit, left), 0)

    with tempfile.TemporaryFile() as errors, _worker(errors) as process:
        hung = False
        try:
            for line in _lines(process, job.to_json() + "\n", patience):
                take(line)
            code = process.wait(timeout=patience())
        except (queue.Empty, subprocess.TimeoutExpired):
            hung = True
            processes.kill(process)
            code = process.wait()
        except Garbage as garbage:
            return Death(
                hung=False, reason=f"the worker sent a malformed message and was killed: {garbage}."
            )
        if code == 0:
            return None
        words = last_error_lines(errors)
    if hung:
        return Death(hung=True, reason=f"the worker sent nothing for {time_limit:g} s. {words}")
    died = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return Death(hung=False, reason=f"the native process died by {died}. {words}")


def _worker(errors: IO[bytes]) -> AbstractContextManager[subprocess.Popen[str]]:
    """A worker process; it and its children end with the block or with this process.

    It has its own session, so that only the parent receives a Ctrl-C.
    """
    return processes.group(
        processes.own("runs.worker"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        encoding="utf-8",
        errors="replace",
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


def _lines(
    process: subprocess.Popen[str], job: str, patience: Callable[[], float]
) -> Iterator[str]:
    """Send the job and yield whole lines.

    Standard input stays open, because a worker ends when it is closed. Raises queue.Empty after too
    long a silence, and Garbage for a line that is too long.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    inp, out = process.stdin, process.stdout
    arrived: queue.Queue[str | None] = queue.Queue()

    def send() -> None:
        with contextlib.suppress(ValueError, OSError):
            inp.write(job)
            inp.flush()

    def read() -> None:
        with contextlib.suppress(ValueError, OSError):
            while line := out.readline(_LONGEST_LINE):
                arrived.put(line)
        arrived.put(None)

    def watch() -> None:
        process.wait()
        time.sleep(_GRACE)
        arrived.put(None)

    for work in (send, read, watch):
        threading.Thread(target=work, daemon=True).start()
    while (line := arrived.get(timeout=patience())) is not None:
        if line.endswith("\n"):
            yield line
        elif len(line) >= _LONGEST_LINE:
            raise Garbage(f"a line of more than {_LONGEST_LINE} characters")
