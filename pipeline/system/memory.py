"""Total and available memory of this machine, or of the container that limits it, in bytes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def total() -> int:
    """Total memory in bytes; the cgroup limit if it is lower."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _limit("max")
    return machine if limit is None else min(machine, limit)


def free() -> int:
    """Bytes available without swapping, within the cgroup limit."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        machine = 1024 * next(
            int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")
        )
    limit, used = _limit("max"), _limit("current")
    return machine if limit is None or used is None else min(machine, limit - used)


def _limit(name: str) -> int | None:
    """A value of the control group in bytes; None if it is missing or `max`."""
    with contextlib.suppress(OSError, ValueError):
        return int((_CGROUP / f"memory.{name}").read_text("ascii"))
    return None
