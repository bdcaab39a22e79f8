"""One side of a comparison: a run or a part of a run, checked to be complete.

A side is a run's folder, a run's name, the `latest` run, or the `baseline`. It is the whole run, or
one builder or target of it. A run is refused here if it has no manifest, or if its tables do not
match the manifest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from ...model.errors import CompareError
from ...model.verdicts import Verdict
from ..standing import stored
from ..tables import parquet
from ..tables.run_folder import complete_manifest, find, read_table
from . import kept
from .kept import Kept

KEY = ("target", "model", "tokenizer", "builder", "suite", "case")
"""The names that make a `cell_key`, in its order."""

PARTS = ("target", "builder")
"""The names by which two parts of one run can be compared."""

CELLS = (
    *KEY,
    *("cell_key", "cell_hash", "verdict", "cause", "output", "reason"),
    *("culprit_step", "lost_at_step"),
    *("model_sha256", "vocab_hash", "grammar_hash", "case_hash", "seed"),
)
"""The columns of `cells` that are compared."""


_KEPT = ("standings", "tokenizers", "tokens", "strings", "replay")


@dataclass(frozen=True)
class SideRequest:
    """A side as the user named it."""

    run: str
    builder: str | None = None
    target: str | None = None

    def part(self) -> dict[str, str]:
        """The compared part of the run: name → value."""
        named = {"target": self.target, "builder": self.builder}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Side:
    """One side, complete and readable."""

    name: str
    """Display name: the run's folder name, or the baseline's file."""
    folder: Path | None
    """None for a baseline, which has verdicts only."""
    part: Mapping[str, str]
    cells: pl.DataFrame
    versions: Mapping[str, str]
    """Versions of the software and libraries, the engines, devices and the commit, by name."""
    settings: Mapping[str, str]
    """Settings that decide outcomes, by key; they must be equal on both sides."""
    digests: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """For a baseline: (`suite`, `vocabulary` or `model`; its name) → hash, see `digests`."""
    rows: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of rows of each table, from the manifest; empty for a baseline."""
    kept: Kept | None = None
    """What a baseline keeps of the tables; None for a baseline of format 1."""
    expected: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """For a baseline: (word, key) of each known failure → the URL that reports it."""

    def table(self, name: str) -> pl.DataFrame:
        """Another table of the run, with only the rows of this side's part."""
        assert self.folder is not None
        if name == "standings":
            rows = stored.read(self.folder, complete_manifest(self.folder))
        else:
            rows = read_table(self.folder, name, self.rows[name])
        for part, value in self.part.items():
            if part in rows.columns:
                rows = rows.filter(pl.col(part) == value)
        return rows

    def judged_tables(self) -> dict[str, pl.DataFrame]:
        """The tables of which a baseline keeps something, as far as the run has them."""
        return {name: self.table(name) for name in _KEPT if name in self.rows}

    @property
    def label(self) -> str:
        """The name and the part."""
        return ", ".join([self.name, *(f"{name} {value}" for name, value in self.part.items())])


def load(request: SideRequest, results_dir: Path) -> Side:
    """Read a run as a side.

    Raises ConfigError if there is no such run, and CompareError if the run is not complete, if its
    cells are not valid, or if it does not have the requested part.
    """
    folder = find(request.run, results_dir)
    manifest = complete_manifest(folder)
    there = parquet.scan(folder, "cells").collect_schema().names()
    columns = [*CELLS, *({"repeat"} & set(there))]
    cells = read_table(folder, "cells", manifest["rows"].get("cells"), columns)
    builders = _builders(folder, manifest) if request.builder else ()
    found = Side(
        name=folder.name,
        folder=folder,
        part=request.part(),
        cells=select_part(check_cells(cells, str(folder)), request, str(folder), builders),
        versions=_versions(manifest),
        settings=_settings(manifest),
        rows=manifest["rows"] | {"standings": stored.read(folder, manifest).height},
    )
    return replace(found, kept=kept.of(found.judged_tables()))


def _builders(folder: Path, manifest: dict[str, Any]) -> set[str]:
    """The builders in the tables of an audit or a replay."""
    named = [
        read_table(folder, table, manifest["rows"][table], ["builder"])["builder"]
        for table in ("tokenizers", "replay")
        if table in manifest["rows"]
    ]
    return {builder for column in named for builder in column}


def check_cells(cells: pl.DataFrame, where: str) -> pl.DataFrame:
    """Return the cells as they are. Raises CompareError for unknown verdicts and repeated cells."""
    strange = set(cells["verdict"].unique().to_list()) - {verdict.value for verdict in Verdict}
    if strange:
        raise CompareError(f"{where} holds unknown verdicts: {sorted(map(str, strange))}.")
    identity = ["cell_key", *(["repeat"] if "repeat" in cells.columns else [])]
    twice = cells.filter(cells.select(identity).is_duplicated())["cell_key"].unique().sort()
    if twice.len():
        raise CompareError(
            f"{where} holds {twice.len()} cells more than once, such as {twice[0]}; "
            "it is unclear which one counts. Run it again."
        )
    return cells


def select_part(
    cells: pl.DataFrame, request: SideRequest, where: str, builders: Iterable[str] = ()
) -> pl.DataFrame:
    """Only the cells of the named builder or target. Raises CompareError if there is none.

    `builders` are the builders of other tables: a run without cells may still have the builder.
    """
    for name, value in request.part().items():
        there = {*cells[name].to_list(), *(builders if name == "builder" else ())}
        if value not in there:
            raise CompareError(
                f"{where} has no {name} {value!r}; there is {', '.join(sorted(there)) or 'none'}."
            )
        cells = cells.filter(pl.col(name) == value)
    return cells


def digests(cells: pl.DataFrame, cases: pl.DataFrame | None = None) -> dict[tuple[str, str], str]:
    """(kind, name) → hash of each suite's definition, each vocabulary and each model.

    A hash is the first 16 hexadecimal digits of a SHA-256. With `cases` (columns suite and case), a
    suite's hash covers only these cases. A suite has no hash if the definition of a case is
    unknown, for example because the case crashed before it started.
    """
    if cases is not None:
        cells = cells.join(cases.unique(), on=["suite", "case"], how="semi")
    found: dict[tuple[str, str], str] = {}
    for (suite,), group in cells.group_by("suite", maintain_order=True):
        defined = group.select("case", "case_hash").unique().sort("case", "case_hash")
        known = defined.drop_nulls("case_hash")
        if known["case"].n_unique() == defined["case"].n_unique():
            found["suite", str(suite)] = _short(json.dumps(known.rows()).encode())
    for kind, name, column in (
        ("vocabulary", pl.col("tokenizer"), "vocab_hash"),
        ("model", pl.concat_str("model", "tokenizer", separator="/"), "model_sha256"),
    ):
        hashed = cells.filter(pl.col(column).is_not_null()).select(name.alias("name"), column)
        for (named,), group in hashed.group_by("name", maintain_order=True):
            hashes = sorted(set(group[column].to_list()))
            found[kind, str(named)] = _short(",".join(hashes).encode())
    return dict(sorted(found.items()))


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _versions(manifest: dict[str, Any]) -> dict[str, str]:
    found = {str(name): str(value) for name, value in manifest.get("versions", {}).items()}
    for name in ("engine", "devices"):
        found[name] = ", ".join(manifest.get(name) or []) or "none"
    libraries: dict[str, str] = manifest.get("libraries") or {}
    found |= {f"{name} library": str(value)[:16] for name, value in libraries.items()}
    return found | {"commit": manifest.get("commit") or "none"}


def _settings(manifest: dict[str, Any]) -> dict[str, str]:
    """All settings except the choice of suites and cases, which the cells show."""
    found = {"stages": ",".join(manifest.get("stages", []))}
    groups: dict[str, dict[str, object]] = manifest.get("settings", {})
    for group, values in groups.items():
        if group != "grammar":
            found |= {
                f"{group}.{key}": json.dumps(value).strip('"') for key, value in values.items()
            }
    return found
