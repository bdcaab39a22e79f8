"""The channel from worker to parent: JSON lines on the process's original standard output."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from typing import IO, Any, cast

from ...model.names import Row, Unit
from ..protocol import Answered, Cell, Done, Message, Rows, Started


class Channel:
    """Sends messages to the parent, over the process's original standard output.

    Output of native code is redirected to standard error, so that it cannot be taken for a message.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._out: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, *messages: Message) -> None:
        """Send messages together, with no others between them. Any thread may call this."""
        text = "".join(json.dumps(_plain(message)) + "\n" for message in messages)
        with self._turn:
            self._out.write(text)
            self._out.flush()

    def started(self, *unit: str) -> None:
        """Announce a unit before work on it, so that a crash has a suspect."""
        self.send(Started(unit))

    def done(self, *unit: str) -> None:
        """Report that a unit is done: the rows sent since the last `done` are its rows."""
        self.send(Done(unit))

    def rows(self, table: str, rows: Iterable[Row]) -> None:
        """Send rows of one table; bytes are sent as Latin-1 text, one character per byte."""
        if plain := _as_text(rows):
            self.send(Rows(table, plain))

    def finish(self, unit: Unit, rows: Mapping[str, Iterable[Row]]) -> None:
        """Send a unit's rows, table by table, and its `done`, with no message between them."""
        self.send(*(Rows(table, _as_text(some)) for table, some in rows.items()), Done(unit))

    def answered(self) -> None:
        """Report that a server has answered."""
        self.send(Answered())


def _plain(message: Message) -> dict[str, Any]:
    """A message as a JSON object. The type comes first, so that readers recognise rows without
    parsing."""
    return {"type": message.type} | vars(message)


def _as_text(rows: Iterable[Row]) -> list[dict[str, Cell]]:
    """The rows, with bytes converted to Latin-1 text."""
    return [
        {
            name: value.decode("latin-1") if isinstance(value, bytes) else cast(Cell, value)
            for name, value in row.items()
        }
        for row in rows
    ]
