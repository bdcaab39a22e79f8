"""What a worker may take of the machine: memory, open files, core dumps.

Set by the worker on itself, before any native library is loaded.
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

from ...system import memory

_OPEN_FILES = 512


def confine(limit: int, *, gpu: bool) -> None:
    """Limit memory (bytes; 0: what the machine has), open files and core dumps of this process.

    A GPU's driver reserves more address space than there is memory; where there may be one, only
    a limit that was asked for is set. What cannot be limited here is left as it is.
    """
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if limit or not (gpu and Path("/dev/nvidiactl").exists()):
        _limit(resource.RLIMIT_DATA, limit or memory.whole())
    with contextlib.suppress(OSError):  # if memory runs out all the same, it is this one's turn
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(kind, (value, value))
