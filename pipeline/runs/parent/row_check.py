"""Check that rows from a worker fit their tables.

A worker runs third-party native code on untrusted data. Its rows are checked before they are
written, so that the merge at the end of a run cannot fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import polars as pl

from ...model.names import Row
from ...results.tables import schemas
from ...results.tables.words import WORDS


def misfit(message: dict[str, Any]) -> str | None:
    """What is wrong with a `rows` message; None if it fits its table."""
    table, rows = message.get("table"), message.get("rows")
    if table not in schemas.SCHEMAS or not isinstance(rows, list):
        return f"rows of an unknown table ({str(table)[:40]!r})"
    kinds = _KINDS[str(table)]
    for row in cast(list[object], rows):
        if not isinstance(row, dict) or cast(Row, row).keys() != kinds.keys():
            return f"a row of {table} with wrong columns"
        for name, value in cast(Row, row).items():
            if value is None:
                continue
            known = WORDS.get((str(table), name))
            if not kinds[name](value) or (known is not None and value not in known):
                return f"{table}.{name} is {json.dumps(value)[:40]}"
    return None


def _fits(kind: pl.DataType) -> Callable[[Any], bool]:
    """A function that tells whether a JSON value (not null) fits a column of this type."""
    match kind:
        case pl.List():
            item = _fits(cast(pl.DataType, kind.inner))
            return lambda value: isinstance(value, list) and all(map(item, cast(list[Any], value)))
        case pl.Int64() | pl.Int32():
            most = 2 ** (63 if kind == pl.Int64() else 31)
            return lambda value: type(value) is int and -most <= value < most
        case pl.String():
            return lambda value: isinstance(value, str) and _encodes(value, "utf-8")
        case pl.Binary():
            return lambda value: isinstance(value, str) and _encodes(value, "latin-1")
        case pl.Boolean():
            return lambda value: type(value) is bool
        case _:
            return lambda value: type(value) in (int, float)


def _encodes(value: str, encoding: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


_KINDS = {
    table: {name: _fits(kind) for name, kind in schema.items()}
    for table, schema in schemas.SCHEMAS.items()
}
