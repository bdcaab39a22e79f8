"""Resource limits of a worker: memory, open files, core dumps.

The worker sets them itself, before it loads a native library.
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

from ...system import memory

_OPEN_FILES = 512


def confine(limit: int, *, gpu: bool) -> None:
    """Limit memory, open files and core dumps of this process.

    `limit` is in bytes; 0 means the memory of the machine. With a GPU, 0 means no limit, because
    its driver reserves more address space than the machine has memory. Limits that the system does
    not allow are skipped.
    """
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if limit or not (gpu and Path("/dev/nvidiactl").exists()):
        _limit(resource.RLIMIT_DATA, limit or memory.total())
    with contextlib.suppress(OSError):
        # if memory still runs out, the kernel kills this process first
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(kind, (value, value))
