"""The baseline: a small sorted text file, for a readable diff in review.

It has one verdict per cell, and what `kept` keeps of the tables. Lines that begin with `#` say what
made them. `# expected: URL` at the end of a line marks a known failure. A baseline is a ratchet:
saving accepts improvements, and regressions only with `allow_regressions`.

Format 1 had cells only. It is read; its tables are not compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import polars as pl

from ...model.errors import CompareError, ResultsError
from ...model.verdicts import Verdict
from ...system import files
from ..tables import parquet, schemas
from . import kept
from . import side as compare_side
from .kept import Kept
from .side import CELLS, KEY, Side, SideRequest, check_cells, select_part

_FORMAT = 2
_READ = (1, 2)
_MARK = "# byte-exact baseline, format "
"""Beginning of a baseline; the format's number follows, then text that may change."""
_FIRST = f"{_MARK}{_FORMAT}; written by `python -m pipeline baseline save`"
_WIDTH = max(len(verdict.value) for verdict in Verdict)
_EXPECTED = "  # expected: "
_NOT_KEPT = ("byte-exact", "commit", "devices", "python")
"""Versions that differ between machines; they would change with every save."""


def lines(side: Side, expected: Mapping[tuple[str, str], str] | None = None) -> list[str]:
    """A run as the lines of a baseline file. Raises CompareError for sampled repeats.

    `expected` has the links of known failures, see `Side.expected`; one that no longer fails in the
    same way loses its link.
    """
    if "repeat" in side.cells.columns and side.cells["repeat"].drop_nulls().len():
        raise CompareError(
            f"{side.name} holds sampled repeats; a baseline keeps one verdict per cell. "
            "Save a run without repeats."
        )
    return [f"{line}\n" for line in _lines(side, expected or {})]


def _lines(side: Side, expected: Mapping[tuple[str, str], str]) -> Iterator[str]:
    yield _FIRST
    yield f"# schema {schemas.SCHEMA_VERSION}"
    for name, value in sorted(side.versions.items()):
        if name not in _NOT_KEPT and not name.endswith(" library"):
            yield f"# version {name} = {value}"
    for name, value in sorted(side.settings.items()):
        yield f"# setting {name} = {value}"
    facts = [*kept.lines(side.kept)] if side.kept is not None else []
    yield f"# cells {side.cells.height}"
    yield f"# facts {len(facts)}"
    for (kind, name), digest in compare_side.digests(side.cells).items():
        yield f"# {kind} {name} = {digest}"
    cells = side.cells.select("verdict", "cell_key").sort("cell_key").rows()
    for word, key in [*cells, *facts]:
        link = expected.get((word, key))
        yield f"{word:{_WIDTH}}  {key}" + (f"{_EXPECTED}{link}" if link else "")


def counts(facts: Kept) -> Iterator[tuple[str, int]]:
    """(what, number) of each kind of kept rows."""
    names = ("standings", "token tables", "wrong tokens", "wrong strings", "wrong replays")
    for name, rows in zip(names, facts.rows.values(), strict=True):
        yield name, rows.height


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
        kept=None if side.kept is None else side.kept.only(request.part()),
        expected=side.expected,
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
    if said is None or int(said[1]) not in _READ:
        have = f"has format {said[1]}" if said else f"does not begin with `{_MARK}N`"
        raise CompareError(
            f"{path} {have}, but this byte-exact reads formats 1 and {_FORMAT}. The file was "
            "edited, or written by another tool or version. Save the baseline again."
        )
    versions: dict[str, str] = {}
    settings: dict[str, str] = {}
    digests: dict[tuple[str, str], str] = {}
    rows: list[tuple[str, str]] = []
    said_cells = said_facts = ""
    facts, expected, n_facts = kept.Reader(), dict[tuple[str, str], str](), 0
    for number, whole in enumerate(there[1:], start=2):
        line, _, link = whole.partition(_EXPECTED) if not whole.startswith("#") else (whole, "", "")
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
            elif kind == "facts":
                said_facts = name
            elif kind != "schema":
                digests[kind, name] = value
        elif cell := re.fullmatch(r"([a-z_]+) +([^/]+(?:/[^/]+){5})", line):
            rows.append((cell[1], cell[2]))
            if link:
                expected[cell[1], cell[2]] = link.strip()
        elif fact := re.fullmatch(r"([a-z]+)=(\S+) +(\S.*)", line):
            n_facts += 1
            try:
                facts.add(fact[1], fact[2], fact[3])
            except (KeyError, ValueError):
                raise _strange(path, number) from None
            if link:
                expected[f"{fact[1]}={fact[2]}", fact[3]] = link.strip()
        elif line.strip():
            raise _strange(path, number)
    if said_cells != str(len(rows)):
        raise CompareError(
            f"{path} says it holds {said_cells or 'no'} cells, but has {len(rows)} lines: it was "
            "cut short or merged by hand. Save the baseline again."
        )
    if said[1] != "1" and said_facts != str(n_facts):
        raise CompareError(
            f"{path} says it holds {said_facts or 'no'} facts, but has {n_facts}: it was cut short "
            "or merged by hand. Save the baseline again."
        )
    return Side(
        name=path.name,
        folder=None,
        part={},
        cells=_cells(rows, path),
        versions=versions,
        settings=settings,
        digests=digests,
        kept=None if said[1] == "1" else facts.kept(),
        expected=expected,
    )


def _strange(path: Path, number: int) -> CompareError:
    return CompareError(
        f"{path}, line {number} is neither `verdict  cell_key`, `kind=word  names` nor `# …`: the "
        "file was cut short, or a merge conflict is left in it. Correct it, or save the baseline "
        "again."
    )


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
