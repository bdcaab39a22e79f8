"""Run folders: find one by name, read its manifest and its whole tables."""

from __future__ import annotations

import contextlib
import datetime
import json
from pathlib import Path
from typing import Any

import polars as pl

from ...model.errors import CompareError, ConfigError
from ...model.verdicts import RunStatus
from . import parquet, schemas

LATEST, BASELINE = "latest", "baseline"
_MANIFEST = "manifest.json"


def find(run: str, results_dir: Path, *, unfinished: bool = False) -> Path:
    """The folder of the run that any command names: one rule for all of them.

    - `latest` is the newest run under the results folder, by when it was finished; one without a
      manifest, by when its parts were begun. An unfinished run counts: an older one in its
      place would pass for it. `compare` and `baseline` then refuse it (`closed`), `report` shows
      as much as there is, `collect` merges its parts.
    - With `unfinished`, as `run resume=` asks, `latest` is the newest run that is not complete.
    - `baseline` is no run but a file, which only the side before of a comparison can be.
    - Anything else is the name of a folder under the results folder, or a path.

    Raises ConfigError where there is no such folder.
    """
    if run == LATEST:
        return _latest(results_dir, unfinished)
    if run == BASELINE:
        raise ConfigError(
            "The baseline can only be the before side: before.run=baseline. A run of that name is "
            f"given as a folder: {results_dir / run}."
        )
    for folder in (results_dir / run, Path(run)):
        if run and folder.is_dir():
            return folder
    there = sorted((p.name for p in runs(results_dir)), reverse=True)
    listed = ", ".join(there[:8]) + (", …" if len(there) > 8 else "")
    raise ConfigError(
        f"There is no run {run!r}: neither in {results_dir} ({listed or 'which holds none'}) nor "
        "as a folder. Give a run's name, a folder or latest."
    )


def whole(
    folder: Path, table: str, height: object, columns: list[str] | None = None
) -> pl.DataFrame:
    """A table, checked to have as many rows as the manifest says."""
    rows = parquet.read(folder, table, columns)
    if rows.height != height:
        raise CompareError(
            f"{folder}/{table}.parquet holds {rows.height} rows, its manifest says {height}: "
            "a file of another run, or truncated. Run it again."
        )
    return rows


def closed(folder: Path) -> dict[str, Any]:
    """The manifest of a finished run. Raises CompareError for a run without one."""
    path = folder / _MANIFEST
    if not path.exists():
        raise CompareError(
            f"{folder} has no manifest ({_MANIFEST}): the run was interrupted or is still running. "
            f"Let it finish, or finish it with `python -m pipeline run resume={folder}`: an "
            "incomplete run is no result."
        )
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        status, version, rows = manifest["status"], manifest["schema_version"], manifest["rows"]
    except (OSError, ValueError, KeyError, TypeError):
        raise CompareError(f"{path} cannot be read as a run's manifest. Run it again.") from None
    if status != RunStatus.COMPLETE or not isinstance(rows, dict):
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


def recorded(folder: Path) -> dict[str, Any]:
    """A run's manifest, unchecked; empty if there is none or it cannot be read."""
    try:
        found: Any = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _latest(results_dir: Path, unfinished: bool) -> Path:
    there = runs(results_dir)
    if not there:
        raise ConfigError(f"{results_dir} holds no run; make one with `python -m pipeline run`.")
    if unfinished:
        there = [folder for folder in there if recorded(folder).get("status") != RunStatus.COMPLETE]
    if not there:
        raise ConfigError(f"{results_dir} holds no unfinished run: all of its runs are complete.")
    return max(there, key=_age)


def _age(folder: Path) -> tuple[float, int, str]:
    """When a run was finished, according to its manifest: a copy's files may be younger."""
    path = folder / _MANIFEST
    written = (path if path.exists() else folder / "parts").stat()
    finished = written.st_mtime
    with contextlib.suppress(ValueError, KeyError, TypeError):  # `closed` reports it
        said = recorded(folder)["volatile"]["finished"]
        finished = datetime.datetime.fromisoformat(said).timestamp()
    return finished, written.st_mtime_ns, folder.name
