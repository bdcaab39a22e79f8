"""What a server's log says of its engine: errors are counted, and nothing else is read there.

llama.cpp's bridge answers a lost constraint with one line in the log and goes on with HTTP 200,
so the log is the only place where a server tells of it. A line carries no request: whose error it
was is known only of a request that was alone.
"""

from __future__ import annotations

import time
from pathlib import Path

_ERROR = b"llg error: "
"""How `common/llguidance.cpp` begins the line."""
_DONE = b"stop processing"
"""A line llama.cpp's server writes behind all others of a request."""
_LATE = 0.5
"""Seconds to wait for that line: the log is written by a thread of its own."""
_STEP = 0.005


class EngineLog:
    """A log file that a server appends to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_done = True

    def end(self) -> int:
        """Bytes there so far."""
        return self._path.stat().st_size if self._path.exists() else 0

    def errors(self, since: int, requests: int = 1) -> tuple[str, ...]:
        """The engine's complaints behind byte `since`, once so many requests are through."""
        until = time.monotonic() + _LATE
        while (data := self._read(since)).count(_DONE) < requests:
            if not self._has_done or time.monotonic() > until:
                self._has_done = data.count(_DONE) > 0
                break
            time.sleep(_STEP)
        lines = [line.partition(_ERROR) for line in data.splitlines()]
        return tuple(said.decode("utf-8", "replace").strip() for _, found, said in lines if found)

    def _read(self, since: int) -> bytes:
        if not self._path.exists():
            return b""
        with self._path.open("rb") as file:
            file.seek(since)
            return file.read()

    def last_words(self) -> str:
        """The last lines, on one line."""
        text = self._read(max(self.end() - 2000, 0)).decode("utf-8", "replace")
        lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-3:])[-600:] or "nothing"
