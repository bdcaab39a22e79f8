"""Runs to compare: the embedded matrix from the real command, copies of it, and artificial runs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.results.compare.side import KEY
from pipeline.results.tables import parquet, schemas
from support.command import Finished

FIXTURES = Path(__file__).parents[1] / "fixtures"

Edit = Callable[[pl.DataFrame], pl.DataFrame]


_RUNS: list[Path] = []


@pytest.fixture(scope="session", autouse=True)
def matrix_run(default_run: Finished) -> None:
    """Register the default run of this session for `matrix`."""
    assert default_run.code == 0, default_run.err
    _RUNS.append(default_run.folder)


def matrix() -> Path:
    """The folder of the run of the embedded matrix, made once with the real command."""
    return _RUNS[-1]


def copied(
    folder: Path,
    edit: Edit | None = None,
    *,
    table: str = "cells",
    manifest: dict[str, Any] | None = None,
    source: Path | None = None,
) -> Path:
    """A copy of a run (default: the matrix), with one table and the manifest edited."""
    shutil.copytree(source or matrix(), folder, ignore=shutil.ignore_patterns("parts"))
    path = folder / "manifest.json"
    record = json.loads(path.read_text())
    if edit is not None:
        data = edit(parquet.read(folder, table))
        parquet.write(data, folder / f"{table}.parquet")
        record["rows"][table] = data.height
    path.write_text(json.dumps(record | (manifest or {})))
    return folder


def made(folder: Path, cells: list[dict[str, Any]]) -> Path:
    """A small artificial run: cells of one model; missing columns get default values."""
    folder.mkdir(parents=True)
    rows: list[dict[str, Any]] = []
    for cell in cells:
        names = {
            "target": "inprocess",
            "model": "m",
            "tokenizer": "t",
            "builder": "b",
            "suite": "s",
        }
        names |= {name: cell[name] for name in KEY if name in cell}
        known = {
            "cell_key": "/".join(names[name] for name in KEY),
            "verdict": "ok",
            "cause": "none",
            "reason": "",
            "case_hash": "c",
            "vocab_hash": "v",
            "model_sha256": "w",
            "seed": 0,
        }
        rows.append(dict.fromkeys(schemas.SCHEMAS["cells"]) | names | known | cell)
    data = parquet.frame("cells", rows)
    parquet.write(data, folder / "cells.parquet")
    record = {"schema_version": 1, "status": "complete", "rows": {"cells": data.height}}
    (folder / "manifest.json").write_text(json.dumps(record))
    return folder


def failing(case: str, **more: Any) -> dict[str, Any]:
    """A failing cell."""
    return {"case": case, "verdict": "unenforced", "cause": "bytes", "reason": "lost"} | more
