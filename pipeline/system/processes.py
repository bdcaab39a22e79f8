"""Child processes: starting one from this package, ending it, and its last error lines.

A process started by `group`, and its children, cannot outlive the process that started it. The
first process of the new group holds one end of a pipe and the parent holds the other; nothing is
ever written to it. When the parent ends, for any reason, its end is closed. On Linux the kernel
then kills the group, even if its processes are stopped, loop in native code or are out of memory.
On other systems a process must watch for this itself.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_HELD = 'read -r _ < /dev/fd/{} || exit 1; exec "$@"'
"""Shell code that runs a command once the starter writes a line, or ends if the starter dies first.

Without it, a starter that is killed between starting a process and `_kill_at_hang_up` would leave
that process alive.
"""

HOME = Path(__file__).parent.parent
"""The folder of the `pipeline` package."""

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
"""Source of `load(home)`: imports the package from its folder and returns its name.

It works in an environment that does not have the package installed. An import by name could find a
file in the working folder instead; adding the package's parent folder to `sys.path` could expose
all packages installed there."""

_BOOT = f"""
import sys
sys.path[:] = filter(None, sys.path)
{LOAD}
import runpy
home, module = sys.argv[1:3]
del sys.argv[1:3]
runpy.run_module(load(home) + "." + module, run_name="__main__", alter_sys=True)
"""
"""Runs a module of the package as a program. Removes empty entries of `sys.path`, which stand for
the working folder."""

_TAIL = 2000
"""Bytes read from the end of a worker's standard error for its last lines."""

_BUILT_AT = re.compile(r"/\S*/(?=vendor/llama\.cpp/)")
"""Build path in llama.cpp's assert messages; removed so that results do not depend on it."""


def own(module: str, *arguments: str, python: str = "") -> list[str]:
    """The command line that runs a module of this package, such as `runs.worker`, as a program.

    `python` is the interpreter of another environment; empty for this one. The other interpreter
    gets the source of this package only, not the packages installed here.
    """
    interpreter = [python] if python else [sys.executable, "-P"]
    return [*interpreter, "-c", _BOOT, str(HOME), module, *arguments]


@contextlib.contextmanager
def group(command: Sequence[str], **how: Any) -> Generator[subprocess.Popen[Any]]:
    """Start a command in its own process group, and kill the group when the block ends.

    `how` goes to `subprocess.Popen`. Raises OSError if the command cannot be started.
    """
    _must_exist(command[0], how.get("env"))
    theirs, ours = os.pipe()
    gate, opener = os.pipe()
    process: subprocess.Popen[Any] | None = None
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _HELD.format(gate), "sh", *command],
            pass_fds=(theirs, gate),
            start_new_session=True,
            **how,
        )
        _kill_at_hang_up(theirs, process.pid)
        os.write(opener, b"\n")
        yield process
    finally:
        os.close(gate)
        os.close(opener)
        if process is not None:
            kill(process)
            process.wait()
        os.close(ours)  # before `theirs`: this makes the kernel kill children of a dead group head
        os.close(theirs)
        if process is not None:  # last: closing a stream can block while a child still holds it
            _close(process)


def _close(process: subprocess.Popen[Any]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a running process of `group` and its children."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()


def _must_exist(program: str, env: Mapping[str, str] | None) -> None:
    path = (os.environ if env is None else env).get("PATH")
    if shutil.which(program, path=path) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


def _kill_at_hang_up(end: int, head: int) -> None:
    """Have the kernel kill a process group when the last writer of this pipe closes (Linux only).

    Unlike `prctl(PR_SET_PDEATHSIG)` this reaches the whole group and needs no code in its
    processes. It also does not react to the end of a single thread of the parent.
    """
    if sys.platform == "linux":
        fcntl.fcntl(end, fcntl.F_SETOWN, -head)
        fcntl.fcntl(end, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(end, fcntl.F_SETFL, os.O_ASYNC)


def last_error_lines(errors: IO[bytes]) -> str:
    """The last three lines that a process wrote to its standard error, as one sentence."""
    errors.seek(0, os.SEEK_END)
    errors.seek(max(errors.tell() - _TAIL, 0))
    text = _BUILT_AT.sub("", errors.read().decode("utf-8", "replace"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "Its last error lines: " + " | ".join(lines[-3:]) if lines else "It wrote no error."
