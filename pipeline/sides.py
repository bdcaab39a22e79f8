"""The two sides of a comparison: which run, which part of it, and whether it is whole.

A side is a folder, a run by its name, the `latest` run, or the `baseline`; all of it or one
builder or target of it. A run that was not closed, or whose tables are not what its manifest says,
is refused here.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from pipeline import schemas, tables
from pipeline.errors import CompareError
from pipeline.verdict import Verdict

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

LATEST, BASELINE = "latest", "baseline"
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Asked:
    """A side as it was asked for."""

    run: str
    builder: str | None = None
    target: str | None = None

    def part(self) -> dict[str, str]:
        """The part of the run: a value for each name that narrows it."""
        named = {"target": self.target, "builder": self.builder}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Side:
    """One side, whole and readable."""

    name: str
    """What people call it: the run's folder name, or the baseline's file."""
    folder: Path | None
    """None for a baseline, which has verdicts only."""
    part: Mapping[str, str]
    cells: pl.DataFrame
    versions: Mapping[str, str]
    """Everything that made the run, by name."""
    settings: Mapping[str, str]
    """What was set that decides outcomes, by key; must be alike on both sides."""
    digests: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """For a baseline: (`suite`, `vocabulary` or `model`; its name) → hash, see `digests`."""
    rows: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many rows each table has, as the closing record says; none for a baseline."""

    def table(self, name: str) -> pl.DataFrame:
        """A table of the run beside its cells, of this side's part only."""
        assert self.folder is not None
        rows = whole(self.folder, name, self.rows[name])
        for part, value in self.part.items():
            if part in rows.columns:
                rows = rows.filter(pl.col(part) == value)
        return rows

    @property
    def label(self) -> str:
        """The name and the part."""
        return ", ".join([self.name, *(f"{name} {value}" for name, value in self.part.items())])


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


def load(asked: Asked, results_dir: Path) -> Side:
    """Read a run as a side."""
    folder = find(asked.run, results_dir)
    manifest = closed(folder)
    there = tables.scan(folder, "cells").collect_schema().names()
    columns = [*CELLS, *({"repeat"} & set(there))]
    cells = whole(folder, "cells", manifest["rows"].get("cells"), columns)
    builders = _builders(folder, manifest) if asked.builder else ()
    return Side(
        name=folder.name,
        folder=folder,
        part=asked.part(),
        cells=narrowed(checked(cells, str(folder)), asked, str(folder), builders),
        versions=_versions(manifest),
        settings=_settings(manifest),
        rows=manifest["rows"],
    )


def _builders(folder: Path, manifest: dict[str, Any]) -> set[str]:
    """The builders whose tables were audited or replayed."""
    named = [
        whole(folder, table, manifest["rows"][table], ["builder"])["builder"]
        for table in ("tokenizers", "replay")
        if table in manifest["rows"]
    ]
    return {builder for column in named for builder in column}


def whole(
    folder: Path, table: str, height: object, columns: list[str] | None = None
) -> pl.DataFrame:
    """A table with as many rows as the run's closing record says."""
    rows = tables.read(folder, table, columns)
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
    if not tables.readable(version):
        raise CompareError(
            f"{folder} has tables of schema version {version}; this byte-exact reads version "
            f"{schemas.SCHEMA_VERSION} and what it can convert to it. Make both runs with one "
            "version, or use the newer byte-exact."
        )
    return manifest


def checked(cells: pl.DataFrame, where: str) -> pl.DataFrame:
    """Cells with known verdicts and each there once; anything else is refused."""
    strange = set(cells["verdict"].unique().to_list()) - {verdict.value for verdict in Verdict}
    if strange:
        raise CompareError(f"{where} holds unknown verdicts: {sorted(map(str, strange))}.")
    identity = ["cell_key", *(["repeat"] if "repeat" in cells.columns else [])]
    twice = cells.filter(cells.select(identity).is_duplicated())["cell_key"].unique().sort()
    if twice.len():
        raise CompareError(
            f"{where} holds {twice.len()} cells more than once, such as {twice[0]}; "
            "which of them counts cannot be known. Make the run anew."
        )
    return cells


def narrowed(
    cells: pl.DataFrame, asked: Asked, where: str, builders: Iterable[str] = ()
) -> pl.DataFrame:
    """Only the cells of the builder or target that was asked for; `builders` are in other tables,
    so that a run without cells has them too."""
    for name, value in asked.part().items():
        there = {*cells[name].to_list(), *(builders if name == "builder" else ())}
        if value not in there:
            raise CompareError(
                f"{where} has no {name} {value!r}; there is {', '.join(sorted(there)) or 'none'}."
            )
        cells = cells.filter(pl.col(name) == value)
    return cells


def digests(cells: pl.DataFrame, cases: pl.DataFrame | None = None) -> dict[tuple[str, str], str]:
    """One short hash for the definition of each suite, each vocabulary and each model.

    With `cases` (suite, case), a suite's hash is made of these cases only. A suite has none where
    the definition of some case is not known, as of a case that no process lived to begin.
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


def _versions(manifest: dict[str, Any]) -> dict[str, str]:
    found = {str(name): str(value) for name, value in manifest.get("versions", {}).items()}
    for name in ("engine", "devices"):
        found[name] = ", ".join(manifest.get(name) or []) or "none"
    libraries: dict[str, str] = manifest.get("libraries") or {}
    found |= {f"{name} library": str(value)[:16] for name, value in libraries.items()}
    return found | {"commit": manifest.get("commit") or "none"}


def _settings(manifest: dict[str, Any]) -> dict[str, str]:
    """Everything set but the choice of suites and cases, which shows in the cells themselves."""
    found = {"stages": ",".join(manifest.get("stages", []))}
    groups: dict[str, dict[str, object]] = manifest.get("settings", {})
    for group, values in groups.items():
        if group != "grammar":
            found |= {
                f"{group}.{key}": json.dumps(value).strip('"') for key, value in values.items()
            }
    return found
