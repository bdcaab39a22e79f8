"""The standings of a run folder: made from its tables, written beside them, and read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from ...model.errors import TablesError
from ..tables import parquet
from . import evidence, standings

_TABLES = (*evidence.SPOKEN, "tokens", "cells")


def of(folder: Path, manifest: Mapping[str, Any] | None) -> pl.DataFrame:
    """The standings of a run from its tables as they are now.

    A table that cannot be read is a reason; a table that the run's version did not have is not.
    """
    tables: dict[str, pl.DataFrame] = {}
    unreadable: dict[str, str] = {}
    rows: Mapping[str, int] = (manifest or {}).get("rows", {})
    for name in _TABLES:
        if manifest and name not in rows:
            continue
        try:
            tables[name] = parquet.read(folder, name)
        except TablesError as error:
            unreadable[name] = str(error).replace(f"{folder}/", "")
            continue
        if manifest and tables[name].height != rows[name]:
            unreadable[name] = (
                f"it holds {tables[name].height:,} rows, and the manifest says {rows[name]:,}"
            )
    return standings.of(tables, manifest, unreadable)


def write(folder: Path, manifest: Mapping[str, Any]) -> int:
    """Write `standings.parquet`; returns the number of its rows. Raises OSError."""
    data = of(folder, manifest)
    parquet.write(data, folder / "standings.parquet")
    return data.height


def read(folder: Path, manifest: Mapping[str, Any]) -> pl.DataFrame:
    """The standings of a run; made from its tables for a run of a version without them.

    Raises TablesError if the file cannot be read.
    """
    if "standings" in manifest.get("rows", {}):
        return parquet.read(folder, "standings")
    return of(folder, manifest)
