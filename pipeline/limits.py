"""What a worker may take of the machine, and how long the work on one case may last.

Set by the worker on itself, before any native library is loaded.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from pathlib import Path

Key = tuple[str, ...]

_OPEN_FILES = 512
_GRACE = 1.0
"""Seconds beyond its limit after which a case is not waited for any more."""


def confine(memory: int, *, gpu: bool) -> None:
    """Limit memory (bytes; 0: what the machine has), open files and core dumps of this process.

    A GPU's driver reserves more address space than there is memory; where there may be one, only
    a limit that was asked for is set. What cannot be limited here is left as it is.
    """
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if memory or not (gpu and Path("/dev/nvidiactl").exists()):
        _limit(resource.RLIMIT_DATA, memory or _machine_memory())
    with contextlib.suppress(OSError):  # if memory runs out all the same, it is this one's turn
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(kind, (value, value))


def _machine_memory() -> int:
    """Bytes this machine, or the container, has."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or `max`
        return min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text("ascii")))
    return whole


class Clock:
    """How long the work on each case has taken, and the end of this process if it goes on.

    Work that looks at `over` now and then ends by itself. Native work cannot be stopped: where one
    call goes on beyond the limit, `give_up` is told and the process ends.
    """

    def __init__(self, limit: float, give_up: Callable[[Key], None]) -> None:
        self._limit = limit
        self._give_up = give_up
        self._spent: defaultdict[Key, float] = defaultdict(float)
        self._now: dict[int, tuple[Key, float]] = {}  # by thread
        if limit:
            threading.Thread(target=self._watch, daemon=True).start()

    def another(self) -> Clock:
        """A clock with the same limit, for another thread: one clock counts one block at a time."""
        return Clock(self._limit, self._give_up)

    @contextlib.contextmanager
    def on(self, key: Key) -> Generator[None]:
        """Count this block for a case, in whichever thread. Blocks do not nest."""
        begun, thread = time.monotonic(), threading.get_ident()
        self._now[thread] = key, begun
        try:
            yield
        finally:
            del self._now[thread]
            self._spent[key] += time.monotonic() - begun

    def over(self, key: Key) -> bool:
        """Whether a case has had its time."""
        return bool(self._limit) and self._spent[key] > self._limit

    def _watch(self) -> None:
        while True:
            time.sleep(min(_GRACE, self._limit) / 4)
            for key, begun in [*self._now.values()]:
                if self._spent[key] + time.monotonic() - begun > self._limit + _GRACE:
                    self._give_up(key)
                    os._exit(1)


UNTIMED = Clock(0.0, lambda _: None)
"""For work that may take as long as it likes."""
