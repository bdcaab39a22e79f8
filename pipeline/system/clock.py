"""Time limits for single cases."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator

Key = tuple[str, ...]
_GRACE = 1.0
"""Seconds that a running call may exceed the limit before the process is ended."""


class Clock:
    """Counts the seconds spent on each case, and ends this process if a case exceeds `limit`.

    Python code polls `expired` and stops by itself. A native call cannot be stopped: if it runs
    more than `_GRACE` seconds beyond the limit, the clock calls `give_up(key)` and ends the
    process. `limit` is in seconds; 0 means no limit.
    """

    def __init__(self, limit: float, give_up: Callable[[Key], None]) -> None:
        self._limit = limit
        self._give_up = give_up
        self._spent: defaultdict[Key, float] = defaultdict(float)
        self._now: dict[int, tuple[Key, float]] = {}  # by thread
        if limit:
            threading.Thread(target=self._watch, daemon=True).start()

    def restarted(self) -> Clock:
        """A new clock with the same limit, which counts its own time."""
        return Clock(self._limit, self._give_up)

    @contextlib.contextmanager
    def count(self, key: Key) -> Generator[None]:
        """Count the time of this block for a case. Blocks of one thread must not nest."""
        begun, thread = time.monotonic(), threading.get_ident()
        self._now[thread] = key, begun
        try:
            yield
        finally:
            del self._now[thread]
            self._spent[key] += time.monotonic() - begun

    def expired(self, key: Key) -> bool:
        """Whether a case has used up its time limit."""
        return bool(self._limit) and self._spent[key] > self._limit

    def _watch(self) -> None:
        while True:
            time.sleep(min(_GRACE, self._limit) / 4)
            for key, begun in [*self._now.values()]:
                if self._spent[key] + time.monotonic() - begun > self._limit + _GRACE:
                    self._give_up(key)
                    os._exit(1)


UNTIMED = Clock(0.0, lambda _: None)
"""A clock without a limit."""
