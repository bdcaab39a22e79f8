"""Rows that fit on a page, and the number of rows left out, which the page shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from .site import embed_json, to_json

ROOM = 3_000_000
"""Characters of data on one page, so that with its scripts it stays under 5 MB."""


class Rows:
    """Rows as JSON text, encoded once."""

    def __init__(self, rows: Iterable[Any], room: int = ROOM) -> None:
        """Take rows in their order, most important first, until the page is full."""
        kept: list[str] = []
        size = 0
        self.left_out = 0
        """How many rows did not fit."""
        for row in rows:
            if self.left_out:
                self.left_out += 1
                continue
            text = to_json(row)
            size += len(text) + 1
            if size > room:
                self.left_out = 1
                continue
            kept.append(text)
        self.count = len(kept)
        self._text = "[" + ",".join(kept) + "]"

    @property
    def json(self) -> Markup:
        """The rows for a `<script type="application/json">`."""
        return embed_json(self._text)


class Index:
    """Numbers for values that many rows share, to send each value once."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def __getitem__(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    @property
    def values(self) -> list[Any]:
        """The values by number. Call it only after every row is made."""
        return list(self._numbers)
