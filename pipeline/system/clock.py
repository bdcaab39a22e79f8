"""How long the work on one case has taken, and what happens when it takes too long."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator

Key = tuple[str, ...]
_GRACE = 1.0
"""Seconds beyond its limit after which a case is not waited for any more."""


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
