"""Engine errors in a server's log; nothing else is read from it.

When the constraint is lost, llama.cpp's bridge writes one line to the log and continues with
HTTP 200, so only the log shows it. The line names no request, so the error can be assigned only if
one request ran alone.
"""

from __future__ import annotations

import time
from pathlib import Path

_ERROR = b"llg error: "
"""Beginning of the line in `common/llguidance.cpp`."""
_DONE = b"stop processing"
"""The line that llama.cpp's server writes last for a request."""
_LATE = 0.5
"""Seconds to wait for that line: the server writes its log in a separate thread."""
_STEP = 0.005


class EngineLog:
    """A log file that a server appends to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_done = True

    def end(self) -> int:
        """Size of the log so far, in bytes."""
        return self._path.stat().st_size if self._path.exists() else 0

    def errors(self, since: int, requests: int = 1) -> tuple[str, ...]:
        """The engine errors after byte `since` of the log.

        Waits until the log reports the end of `requests` requests, for at most `_LATE` seconds.
        """
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
        """The last lines, joined to one line."""
        text = self._read(max(self.end() - 2000, 0)).decode("utf-8", "replace")
        lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-3:])[-600:] or "(empty)"
