"""The baseline: one verdict per cell in a small sorted text file, for a readable diff in review.

Lines that begin with `#` say what made the verdicts. A baseline is a ratchet: saving accepts
improvements, and regressions only with `allow_regressions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from ...model.errors import CompareError, ResultsError
from ...model.verdicts import Verdict
from ...system import files
from ..tables import parquet, schemas
from . import side as compare_side
from .side import CELLS, KEY, Side, SideRequest, check_cells, select_part

_FORMAT = 1
_MARK = "# byte-exact baseline, format "
"""Beginning of a baseline; the format's number follows, then text that may change."""
_FIRST = f"{_MARK}{_FORMAT}; written by `python -m pipeline baseline save`"
_WIDTH = max(len(verdict.value) for verdict in Verdict)
_NOT_KEPT = ("byte-exact", "commit", "devices", "python")
"""Versions that differ between machines; they would change with every save."""


def lines(side: Side) -> list[str]:
    """A run's verdicts as the lines of a baseline file. Raises CompareError for sampled repeats."""
    if "repeat" in side.cells.columns and side.cells["repeat"].drop_nulls().len():
        raise CompareError(
            f"{side.name} holds sampled repeats; a baseline keeps one verdict per cell. "
            "Save a run without repeats."
        )
    return [f"{line}\n" for line in _lines(side)]


def _lines(side: Side) -> Iterator[str]:
    yield _FIRST
    yield f"# schema {schemas.SCHEMA_VERSION}"
    for name, value in sorted(side.versions.items()):
        if name not in _NOT_KEPT and not name.endswith(" library"):
            yield f"# version {name} = {value}"
    for name, value in sorted(side.settings.items()):
        yield f"# setting {name} = {value}"
    yield f"# cells {side.cells.height}"
    for (kind, name), digest in compare_side.digests(side.cells).items():
        yield f"# {kind} {name} = {digest}"
    for key, verdict in side.cells.select("cell_key", "verdict").sort("cell_key").iter_rows():
        yield f"{verdict:{_WIDTH}}  {key}"


def load(path: Path, request: SideRequest) -> Side:
    """Read a baseline as a side of a comparison, with the requested part only.

    Raises CompareError if the file cannot be read or does not have this part.
    """
    side = read(path)
    return Side(
        name=side.name,
        folder=None,
        part=request.part(),
        cells=select_part(side.cells, request, str(path)),
        versions=side.versions,
        settings=side.settings,
        digests=side.digests,
    )


def read(path: Path) -> Side:
    """Read a baseline file. Raises CompareError; for a malformed line, it names the line."""
    try:
        there = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise CompareError(
            f"There is no baseline {path}; make one with `python -m pipeline baseline save`."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CompareError(f"The baseline {path} cannot be read: {error}.") from None
    said = re.match(rf"{_MARK}(\d+)\b", there[0] if there else "")
    if said is None or int(said[1]) != _FORMAT:
        have = f"has format {said[1]}" if said else f"does not begin with `{_MARK}N`"
        raise CompareError(
            f"{path} {have}, but this byte-exact reads format {_FORMAT}. The file was edited, or "
            "written by another tool or version. Save the baseline again."
        )
    versions: dict[str, str] = {}
    settings: dict[str, str] = {}
    digests: dict[tuple[str, str], str] = {}
    rows: list[tuple[str, str]] = []
    said_cells = ""
    for number, line in enumerate(there[1:], start=2):
        if head := re.fullmatch(r"# (\w+) (.+?)(?: = (.*))?", line):
            kind, name, value = head[1], head[2], head[3] or ""
            if kind == "schema" and not (name.isdecimal() and parquet.readable(int(name))):
                raise CompareError(
                    f"{path} has schema version {name}; this byte-exact reads version "
                    f"{schemas.SCHEMA_VERSION}. Save the baseline again."
                )
            if kind == "version":
                versions[name] = value
            elif kind == "setting":
                settings[name] = value
            elif kind == "cells":
                said_cells = name
            elif kind != "schema":
                digests[kind, name] = value
        elif cell := re.fullmatch(r"([a-z_]+) +([^/]+(?:/[^/]+){5})", line):
            rows.append((cell[1], cell[2]))
        elif line.strip():
            raise CompareError(
                f"{path}, line {number} is neither `verdict  cell_key` nor `# …`: the file was cut "
                "short, or a merge conflict is left in it. Correct it, or save the baseline again."
            )
    if said_cells != str(len(rows)):
        raise CompareError(
            f"{path} says it holds {said_cells or 'no'} cells, but has {len(rows)} lines: it was "
            "cut short or merged by hand. Save the baseline again."
        )
    return Side(path.name, None, {}, _cells(rows, path), versions, settings, digests)


def _cells(rows: list[tuple[str, str]], path: Path) -> pl.DataFrame:
    """The lines as cells, with null in the columns that a baseline does not have."""
    kinds = schemas.SCHEMAS["cells"]
    names = [key.split("/") for _, key in rows]
    columns: dict[str, list[str]] = {
        name: [parts[place] for parts in names] for place, name in enumerate(KEY)
    }
    columns |= {"cell_key": [key for _, key in rows], "verdict": [verdict for verdict, _ in rows]}
    cells = pl.DataFrame(columns, schema={name: kinds[name] for name in columns})
    cells = cells.with_columns(
        pl.lit(None, dtype=kinds[name]).alias(name) for name in CELLS if name not in columns
    )
    return check_cells(cells.select(CELLS), str(path))


def write(path: Path, content: Iterable[str]) -> None:
    """Write the file atomically. Raises ResultsError if it cannot be written."""
    try:
        files.write_text(path, content)
    except OSError as error:
        raise ResultsError(f"{path} cannot be written: {error.strerror}.") from None
