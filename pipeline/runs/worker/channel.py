"""Where a worker's messages go: JSON lines on the process's first standard output."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from typing import IO

from ...model.names import Row, Unit


class Channel:
    """Where a worker's messages go: the process's first standard output.

    Whatever native code prints is turned to standard error, so that it cannot be taken for a
    message.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._out: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, kind: str, **fields: object) -> None:
        """Send one message at once; any thread may."""
        line = json.dumps({"type": kind, **fields}) + "\n"
        with self._turn:
            self._out.write(line)
            self._out.flush()

    def started(self, *unit: str) -> None:
        """Say what the process is at, before it can die of it."""
        self.send("started", unit=unit)

    def done(self, *unit: str) -> None:
        """Say that a unit is done: the rows sent since the last one are its rows."""
        self.send("done", unit=unit)

    def rows(self, table: str, rows: Iterable[Row]) -> None:
        """Send rows of one table; bytes travel as Latin-1 text, one character a byte."""
        if plain := self._plain(rows):
            self.send("rows", table=table, rows=plain)

    def finish(self, unit: Unit, rows: Mapping[str, Iterable[Row]]) -> None:
        """Send a unit's rows, table by table, and its `done`, with no other message between."""
        messages: list[dict[str, object]] = [
            {"type": "rows", "table": table, "rows": self._plain(some)}
            for table, some in rows.items()
        ]
        messages.append({"type": "done", "unit": unit})
        text = "".join(json.dumps(message) + "\n" for message in messages)
        with self._turn:
            self._out.write(text)
            self._out.flush()

    @staticmethod
    def _plain(rows: Iterable[Row]) -> list[Row]:
        return [
            {
                name: value.decode("latin-1") if isinstance(value, bytes) else value
                for name, value in row.items()
            }
            for row in rows
        ]
