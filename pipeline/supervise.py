"""The parent's side of a worker: start it, take its messages, say how it died.

llama.cpp aborts the process on many bad inputs, so death is an answer like any other here.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipeline.worker import Job

_TAIL = 2000
"""Bytes of a dead worker's standard error that are looked at for its last words."""


@dataclass(frozen=True)
class Death:
    """A worker that did not end by itself."""

    hung: bool
    """Killed after too long a silence; else it died of its own."""
    reason: str
    """The signal or exit code, and its last words."""


def supervise(job: Job, take: Callable[[str], None], *, time_limit: float) -> Death | None:
    """Run a job in a worker and hand each line it says to `take`; None when it ended well.

    `time_limit` is how many seconds it may say nothing.
    """
    with tempfile.TemporaryFile() as errors, _worker(errors) as process:
        hung = False
        try:
            for line in _lines(process, job.to_json() + "\n", time_limit):
                take(line)
            code = process.wait(timeout=time_limit)
        except (queue.Empty, subprocess.TimeoutExpired):
            hung = True
            process.kill()
            code = process.wait()
        if code == 0:
            return None
        words = last_words(errors)
    if hung:
        return Death(hung=True, reason=f"the worker said nothing for {time_limit:g} s. {words}")
    died = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return Death(hung=False, reason=f"the native process died by {died}. {words}")


@contextlib.contextmanager
def _worker(errors: IO[bytes]) -> Generator[subprocess.Popen[str]]:
    """A worker process that does not outlive the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        encoding="utf-8",
        errors="replace",
        env=os.environ | {"PYTHONPATH": _python_path(), "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _python_path() -> str:
    here = str(Path(__file__).parent.parent)
    return os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))


def _lines(process: subprocess.Popen[str], job: str, time_limit: float) -> Iterator[str]:
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
            for line in out:
                arrived.put(line)
        arrived.put(None)

    threading.Thread(target=send, daemon=True).start()
    threading.Thread(target=read, daemon=True).start()
    while (line := arrived.get(timeout=time_limit)) is not None:
        if line.endswith("\n"):
            yield line


def last_words(errors: IO[bytes]) -> str:
    """The end of what a process has written to its standard error."""
    errors.seek(0, os.SEEK_END)
    errors.seek(max(errors.tell() - _TAIL, 0))
    text = errors.read().decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "Its last words: " + " | ".join(lines[-3:]) if lines else "It left no words."
