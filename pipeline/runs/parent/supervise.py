"""The parent's side of a worker: start it, take its messages, say how it died.

llama.cpp aborts the process on many bad inputs, so death is an answer like any other here.
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
from ...system.processes import last_words
from ..protocol import Job

_LONGEST_LINE = 2**28
"""Longest accepted message line, in characters."""

_GRACE = 2.0
"""Seconds after a worker's death in which what it has said is read; its children may hold on to its
standard output for longer."""


class Garbage(Exception):
    """The worker sent a malformed message; the text says which."""


@dataclass(frozen=True)
class Death:
    """A worker that did not end by itself."""

    hung: bool
    """Killed after too long a silence; else it died of its own."""
    reason: str
    """The signal or exit code, and its last words."""


def supervise(
    job: Job, take: Callable[[str], None], *, time_limit: float, deadline: float | None = None
) -> Death | None:
    """Run a job in a worker and hand each line it says to `take`; None when it ended well.

    `time_limit` is how many seconds it may say nothing; `deadline` is when, by
    `time.monotonic()`, it is ended whatever it says.
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
            return Death(hung=False, reason=f"the worker sent garbage and was ended: {garbage}.")
        if code == 0:
            return None
        words = last_words(errors)
    if hung:
        return Death(hung=True, reason=f"the worker said nothing for {time_limit:g} s. {words}")
    died = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return Death(hung=False, reason=f"the native process died by {died}. {words}")


def _worker(errors: IO[bytes]) -> AbstractContextManager[subprocess.Popen[str]]:
    """A worker process that does not outlive the block, nor this process; nor do its children.

    A session of its own, so that a Ctrl-C is the parent's to answer.
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
    """Send the job and give out whole lines; raises queue.Empty after too long a silence.

    Standard input stays open: it is how a worker knows that its parent lives.
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
