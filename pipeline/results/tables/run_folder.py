"""Run folders: find one by name, read its manifest and its tables."""

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
    """The folder of the run that a command names. All commands use this rule:

    - `latest` is the run under the results folder that finished last. A run without a manifest
      counts by the time of its folder `parts`. Unfinished runs are not skipped, because an older
      run would be mistaken for the newest: `compare` and `baseline` refuse an unfinished run
      (`complete_manifest`), `report` shows its results so far, and `collect` merges its parts.
    - With `unfinished` (`run resume=`), `latest` is the newest run that is not complete.
    - `baseline` is a file and not a run. Only the before side of a comparison can be a baseline.
    - Any other name is a folder under the results folder, or a path.

    Raises ConfigError if there is no such folder.
    """
    if run == LATEST:
        return _latest(results_dir, unfinished)
    if run == BASELINE:
        raise ConfigError(
            "The baseline can only be the before side: before.run=baseline. To use a run of that "
            f"name, give its folder: {results_dir / run}."
        )
    for folder in (results_dir / run, Path(run)):
        if run and folder.is_dir():
            return folder
    there = sorted((p.name for p in runs(results_dir)), reverse=True)
    listed = ", ".join(there[:8]) + (", …" if len(there) > 8 else "")
    raise ConfigError(
        f"There is no run {run!r} in {results_dir} ({listed or 'it holds no runs'}), and no folder "
        "of that name. Give a run's name, a folder or latest."
    )


def read_table(
    folder: Path, table: str, height: object, columns: list[str] | None = None
) -> pl.DataFrame:
    """Read a table. Raises CompareError if it does not have `height` rows, as in the manifest."""
    rows = parquet.read(folder, table, columns)
    if rows.height != height:
        raise CompareError(
            f"{folder}/{table}.parquet holds {rows.height} rows, its manifest says {height}: "
            "the file is truncated or belongs to another run. Run it again."
        )
    return rows


def complete_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a complete run.

    Raises CompareError if the manifest is missing or cannot be read, if the run is not complete, or
    if the schema version of its tables cannot be read.
    """
    path = folder / _MANIFEST
    if not path.exists():
        raise CompareError(
            f"{folder} has no manifest ({_MANIFEST}): the run was interrupted or is still running. "
            f"Let it finish, or finish it with `python -m pipeline run resume={folder}`. An "
            "incomplete run does not have all results."
        )
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        status, version, rows = manifest["status"], manifest["schema_version"], manifest["rows"]
    except (OSError, ValueError, KeyError, TypeError):
        raise CompareError(f"{path} cannot be read as a run's manifest. Run it again.") from None
    if status != RunStatus.COMPLETE or not isinstance(rows, dict):
        raise CompareError(
            f"{folder} is {status}, not complete. Finish it first with "
            f"`python -m pipeline run resume={folder}`."
        )
    if not parquet.readable(version):
        raise CompareError(
            f"{folder} has tables of schema version {version}; this byte-exact reads version "
            f"{schemas.SCHEMA_VERSION} and older versions that it can convert. Make both runs "
            "with one version, or use the newer byte-exact."
        )
    return manifest


def runs(results_dir: Path) -> list[Path]:
    """The folders of runs, finished or not."""
    if not results_dir.is_dir():
        return []
    marks = (_MANIFEST, "parts")
    return [p for p in results_dir.iterdir() if any((p / mark).exists() for mark in marks)]


def read_manifest(folder: Path) -> dict[str, Any]:
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
        there = [
            folder for folder in there if read_manifest(folder).get("status") != RunStatus.COMPLETE
        ]
    if not there:
        raise ConfigError(f"{results_dir} holds no unfinished run: all of its runs are complete.")
    return max(there, key=_age)


def _age(folder: Path) -> tuple[float, int, str]:
    """Sort key: when the run finished, by its manifest, because copying changes file times."""
    path = folder / _MANIFEST
    written = (path if path.exists() else folder / "parts").stat()
    finished = written.st_mtime
    with contextlib.suppress(ValueError, KeyError, TypeError):  # `complete_manifest` reports it
        said = read_manifest(folder)["volatile"]["finished"]
        finished = datetime.datetime.fromisoformat(said).timestamp()
    return finished, written.st_mtime_ns, folder.name
