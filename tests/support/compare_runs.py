"""Runs to compare: the embedded matrix by the real command, copies of it, and made-up ones."""

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
    """Makes `matrix` the default run of this session."""
    assert default_run.code == 0, default_run.err
    _RUNS.append(default_run.folder)


def matrix() -> Path:
    """The folder of a run of the embedded matrix, made once by the real command."""
    return _RUNS[-1]


def copied(
    folder: Path,
    edit: Edit | None = None,
    *,
    table: str = "cells",
    manifest: dict[str, Any] | None = None,
    source: Path | None = None,
) -> Path:
    """A copy of a run (the matrix, unless told), one table and the manifest edited."""
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
    """A small made-up run: cells of one model; what a cell does not say is filled in."""
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
    """A cell that came out wrong."""
    return {"case": case, "verdict": "unenforced", "cause": "bytes", "reason": "lost"} | more
