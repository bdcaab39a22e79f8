"""The run of a report, read as far as it exists. What is missing is stated, not hidden.

`compare` refuses an incomplete run (`compare.side`); a report shows it and names the gaps, because
people look here to see what happened to a run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from ...model.errors import CompareError, ConfigError, TablesError
from ...model.verdicts import Verdict
from ...system.text import visible
from ..standing import stored
from ..tables import parquet, run_folder, schemas

REPEAT = "repeat"
"""The column of `cells` that distinguishes sampled repeats."""


@dataclass
class RunView:
    """A run, or the part of it that exists."""

    name: str
    """Name of the folder; empty if there is no run."""
    folder: Path | None
    """Folder from which the tables are read."""
    manifest: dict[str, Any] = field(default_factory=dict[str, Any])
    """The manifest; empty if the run has none."""
    notes: list[str] = field(default_factory=list[str])
    """What is missing, for every page."""
    unreadable: dict[str, str] = field(default_factory=dict[str, str])
    """Tables that cannot be read, with the reason."""
    _read: dict[str, pl.DataFrame] = field(default_factory=dict[str, pl.DataFrame])

    def table(self, name: str) -> pl.DataFrame:
        """A table; empty if it is missing or cannot be read, and then `notes` say so."""
        if name not in self._read:
            self._read[name] = self._table(name)
        return self._read[name]

    def _table(self, name: str) -> pl.DataFrame:
        if self.folder is None:
            return pl.DataFrame(schema=schemas.SCHEMAS[name])
        rows = self.manifest_part("rows")
        if self.manifest and name not in rows:
            return pl.DataFrame(
                schema=schemas.SCHEMAS[name]
            )  # made by a version without that table
        try:
            found = parquet.read(self.folder, name)
        except TablesError as error:
            self.unreadable[name] = visible(str(error).replace(f"{self.folder}/", ""), 400)
            self.notes.append(self.unreadable[name])
            return pl.DataFrame(schema=schemas.SCHEMAS[name])
        if self.manifest and found.height != rows[name]:
            self.notes.append(
                f"{name}.parquet holds {found.height:,} rows, the manifest says "
                f"{rows[name]:,}: the file is truncated or belongs to another run."
            )
        return found

    def manifest_part(self, *keys: str) -> dict[str, Any]:
        """Look up a nested manifest key; {} if absent."""
        found: dict[str, Any] = self.manifest
        for key in keys:
            found = found.get(key) or {}
        return found

    @cached_property
    def standings(self) -> pl.DataFrame:
        """The standing of each builder, from the tables as they are now."""
        if self.folder is None:
            return pl.DataFrame(schema=schemas.SCHEMAS["standings"])
        return stored.of(self.folder, self.manifest)

    @cached_property
    def cells(self) -> pl.DataFrame:
        """The cells with known verdicts, in the order of their keys."""
        cells = self.table("cells")
        known = cells.filter(pl.col("verdict").is_in([verdict.value for verdict in Verdict]))
        if strange := cells.height - known.height:
            self.notes.append(
                "Cells are left out, because this byte-exact does not know their verdicts: "
                f"{strange:,}."
            )
        return known


@contextmanager
def open_run(run: str, results: Path) -> Generator[RunView]:
    """The run by name, folder or `latest`. Raises ConfigError if a named run does not exist.

    A run without a manifest is read from its parts, which are merged into a temporary folder.
    """
    try:
        folder = run_folder.find(run, results)
    except ConfigError as error:
        if run != run_folder.LATEST:
            raise
        said = str(error).replace(str(results), results.name or "The results folder")
        yield RunView("", None, notes=[visible(said, 400)])
        return
    record = folder / "manifest.json"
    if record.exists():
        yield RunView(
            folder.name, folder, run_folder.read_manifest(folder), _manifest_faults(record)
        )
        return
    parts = sorted((folder / "parts").glob("*.jsonl"))
    cut = (
        "This run has no manifest (manifest.json): it was interrupted or is still running. "
        f"The content of its {len(parts)} part files is shown; an incomplete run does "
        "not have all results. Versions and settings are not known."
    )
    with tempfile.TemporaryDirectory(prefix="byte-exact-report-") as merged:
        try:
            parquet.merge(parts, Path(merged))
        except (TablesError, OSError, ValueError, KeyError, TypeError) as error:
            why = visible(f"{type(error).__name__}: {error}", 200)
            yield RunView(folder.name, None, notes=[cut, f"Its parts cannot be read: {why}"])
            return
        yield RunView(folder.name, Path(merged), notes=[cut])


def _manifest_faults(record: Path) -> list[str]:
    """What is wrong with the manifest: one message, or an empty list."""
    try:
        run_folder.complete_manifest(record.parent)
    except CompareError as error:
        return [visible(str(error).replace(str(record.parent), record.parent.name), 400)]
    return []
