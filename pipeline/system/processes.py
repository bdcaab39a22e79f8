"""Child processes: how one is started from this package, how it ends, what it said last.

A process of `group`, and whatever it starts in turn, cannot outlive the one that started it. The
head of the new process group holds one end of a pipe, its starter the other, and nothing is ever
written. However the starter ends, its end is closed then; on Linux the kernel answers that by
killing the group, even where its processes are stopped, spin in native code or have no memory left
to notice anything. Elsewhere a process must look after itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import IO, Any

HOME = Path(__file__).parent.parent
"""The folder of the whole package."""

LOAD = """
import importlib.util, os, sys
def load(home):
    name = os.path.basename(home)
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, os.path.join(home, "__init__.py"), submodule_search_locations=[home]
        )
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return name
"""
"""Loads the package from its place and gives its name there, in a process that need not have it.

Looked for by its name, the package could be a file of the working folder; its folder on `sys.path`
could bring a whole environment with it."""

_BOOT = f"""
import sys
sys.path[:] = filter(None, sys.path)
{LOAD}
import runpy
home, module = sys.argv[1:3]
del sys.argv[1:3]
runpy.run_module(load(home) + "." + module, run_name="__main__", alter_sys=True)
"""
"""Runs a module of the package as a program. An empty entry of `sys.path` is the working folder."""

_TAIL = 2000
"""Bytes of a dead worker's standard error that are looked at for its last words."""

_BUILT_AT = re.compile(r"/\S*/(?=vendor/llama\.cpp/)")
"""Build path in llama.cpp's assert messages; removed so that results do not depend on it."""


def own(module: str, *arguments: str, python: str = "") -> list[str]:
    """The command that runs a module of this package, such as `runs.worker`, as a program.

    `python` is an interpreter of another environment, which gets the source of this package and
    nothing that is installed beside it; empty for this one.
    """
    interpreter = [python] if python else [sys.executable, "-P"]
    return [*interpreter, "-c", _BOOT, str(HOME), module, *arguments]


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


def last_words(errors: IO[bytes]) -> str:
    """The end of what a process has written to its standard error."""
    errors.seek(0, os.SEEK_END)
    errors.seek(max(errors.tell() - _TAIL, 0))
    text = _BUILT_AT.sub("", errors.read().decode("utf-8", "replace"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "Its last words: " + " | ".join(lines[-3:]) if lines else "It left no words."
