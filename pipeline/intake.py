"""Whether the rows that a worker sends fit their tables.

A worker is a process in which foreign native code has run on foreign data; what it says is checked
before it is written down, so that the merge at the end of a run cannot fail on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import polars as pl

from pipeline import tables
from pipeline.worker import Row


def misfit(message: dict[str, Any]) -> str | None:
    """What is wrong with a `rows` message that a worker sent; None where it fits its table."""
    table, rows = message.get("table"), message.get("rows")
    if table not in tables.SCHEMAS or not isinstance(rows, list):
        return f"rows of no table there is ({str(table)[:40]!r})"
    kinds = _KINDS[str(table)]
    for row in cast(list[object], rows):
        if not isinstance(row, dict) or cast(Row, row).keys() != kinds.keys():
            return f"a row of {table} without its columns"
        for name, value in cast(Row, row).items():
            if value is not None and not kinds[name](value):
                return f"{table}.{name} is {json.dumps(value)[:40]}"
    return None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and (value.isascii() or _encodes(value, "utf-8"))


def _is_bytes(value: object) -> bool:
    return isinstance(value, str) and _encodes(value, "latin-1")


def _encodes(value: str, encoding: str) -> bool:
    try:
        value.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _is_number(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and all(
        type(item) is int and -(2**31) <= item < 2**31 for item in cast(list[object], value)
    )


_FITS: dict[type[pl.DataType], Callable[[object], bool]] = {
    pl.String: _is_text,
    pl.Int64: _is_number,
    pl.Boolean: lambda value: type(value) is bool,
    pl.Binary: _is_bytes,
    pl.List: _is_ids,
}
_KINDS = {
    table: {name: _FITS.get(type(kind), lambda _: True) for name, kind in schema.items()}
    for table, schema in tables.SCHEMAS.items()
}
