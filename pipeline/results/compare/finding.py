"""The columns of what changed in the tables other than cells."""

from __future__ import annotations

import polars as pl

SCHEMA: dict[str, pl.DataType] = {
    "table": pl.String(),
    "tokenizer": pl.String(),
    "builder": pl.String(),
    "key": pl.String(),
    "token": pl.Int64(),
    "column": pl.String(),
    "change": pl.String(),
    "true": pl.Binary(),
    "before": pl.Binary(),
    "after": pl.Binary(),
}
"""One row per finding. `change` is a `RowChange`. `before` and `after` are the values; values that
are not bytes are converted to text and then to UTF-8."""
