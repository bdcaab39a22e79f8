"""Run folders: find one by name, read its manifest and its whole tables."""

from __future__ import annotations

import contextlib
import datetime
import json
from pathlib import Path
from typing import Any

import polars as pl

from ...model.errors import CompareError
from . import parquet, schemas

LATEST, BASELINE = "latest", "baseline"
_MANIFEST = "manifest.json"


def find(run: str, results_dir: Path) -> Path:
    """The folder of a run: the latest, one by name under the results folder, or any folder."""
    if run == LATEST:
        return _latest(results_dir)
    for folder in (results_dir / run, Path(run)):
        if folder.is_dir():
            return folder
    there = sorted((p.name for p in runs(results_dir)), reverse=True)
    listed = ", ".join(there[:8]) + (", …" if len(there) > 8 else "")
    raise CompareError(
        f"There is no run {run!r}: neither in {results_dir} ({listed or 'which holds none'}) nor "
        "as a folder. Give a run's name, a folder, latest or baseline."
    )


def whole(
    folder: Path, table: str, height: object, columns: list[str] | None = None
) -> pl.DataFrame:
    """A table with as many rows as the run's closing record says."""
    rows = parquet.read(folder, table, columns)
    if rows.height != height:
        raise CompareError(
            f"{folder}/{table}.parquet holds {rows.height} rows, its manifest says {height}: "
            "a file of another run, or cut short. Make the run anew."
        )
    return rows


def closed(folder: Path) -> dict[str, Any]:
    """The manifest of a run that was finished; a run without one is truncated."""
    path = folder / _MANIFEST
    if not path.exists():
        raise CompareError(
            f"{folder} has no closing record ({_MANIFEST}): the run was cut short or still goes "
            f"on. Let it finish, or go on with `python -m pipeline run resume={folder}`; what it "
            "lacks must not pass for a result."
        )
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        status, version, rows = manifest["status"], manifest["schema_version"], manifest["rows"]
    except (OSError, ValueError, KeyError, TypeError):
        raise CompareError(f"{path} cannot be read as a run's manifest. Run it again.") from None
    if status != "complete" or not isinstance(rows, dict):
        raise CompareError(
            f"{folder} is {status}, not complete: run it to its end first with "
            f"`python -m pipeline run resume={folder}`."
        )
    if not parquet.readable(version):
        raise CompareError(
            f"{folder} has tables of schema version {version}; this byte-exact reads version "
            f"{schemas.SCHEMA_VERSION} and what it can convert to it. Make both runs with one "
            "version, or use the newer byte-exact."
        )
    return manifest


def runs(results_dir: Path) -> list[Path]:
    """The folders of runs, finished or not."""
    if not results_dir.is_dir():
        return []
    marks = (_MANIFEST, "parts")
    return [p for p in results_dir.iterdir() if any((p / mark).exists() for mark in marks)]


def _latest(results_dir: Path) -> Path:
    """The newest run, be it unfinished: an older one in its place would pass for it."""
    there = runs(results_dir)
    if not there:
        raise CompareError(f"{results_dir} holds no run; make one with `python -m pipeline run`.")

    return max(there, key=_age)


def _age(folder: Path) -> tuple[float, int, str]:
    """When a run was finished, in its own words: a copy's files may be younger than the run."""
    path = folder / _MANIFEST
    written = (path if path.exists() else folder / "parts").stat()
    finished = written.st_mtime
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # `closed` will tell
        said = json.loads(path.read_text(encoding="utf-8"))["volatile"]["finished"]
        finished = datetime.datetime.fromisoformat(said).timestamp()
    return finished, written.st_mtime_ns, folder.name
