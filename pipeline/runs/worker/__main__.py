"""The entry point of a worker process: one job from standard input, messages out."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from ..protocol import Job, Refused, read_job
from . import limits
from .channel import Channel


def main() -> None:
    """Run the job on standard input, or the tokenizations of `tokenize FILE HEX …`."""
    if sys.argv[1:2] == ["tokenize"]:
        from .survival import tokenize_each  # loads llama.cpp

        tokenize_each(sys.argv[2], [bytes.fromhex(text) for text in sys.argv[3:]])
        return
    channel = Channel()
    job = read_job(sys.stdin.readline())
    threading.Thread(target=_die_with_the_parent, daemon=True).start()
    limit = int((job.runtime.memory_limit or 0) * 2**30)
    limits.confine(limit, gpu=job.runtime.device != "cpu")
    _choose_libraries(job)
    try:
        from .job import run_job  # loads the native libraries that the job selects
    except (OSError, AttributeError, RuntimeError) as error:
        chosen = (job.runtime.llama_lib, job.runtime.llguidance_lib)
        files = " or ".join(file for file in chosen if file is not None)
        if not files:
            raise
        said = " ".join(str(error).split())[:300]
        channel.send(Refused(f"{files} cannot be used: {said}"))
        return
    run_job(job, channel)


def _choose_libraries(job: Job) -> None:
    """Set which native libraries are loaded, here and in the children of this process. The files
    with native handles read this when they are imported."""
    if job.runtime.llama_lib is not None:
        os.environ["LLAMA_CPP_LIB_PATH"] = str(Path(job.runtime.llama_lib).parent)
    if job.runtime.llguidance_lib is not None:
        os.environ["BYTE_EXACT_LLGUIDANCE_LIB"] = job.runtime.llguidance_lib


def _die_with_the_parent() -> None:
    """Kill this process and its children when standard input ends, that is when the parent dies.

    It is for systems whose kernel does not do this (see `processes.group`).
    """
    sys.stdin.read()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with its children
    os._exit(1)


if __name__ == "__main__":
    main()
