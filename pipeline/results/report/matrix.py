"""The matrix: a grid of tokenizers and suites, then every cell with its builders side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from ...model.verdicts import Verdict
from ...system.text import visible
from ..summary.console import by_builder
from .row_budget import Index, Rows
from .run_view import RunView
from .sections import ReportData, register
from .site import TABLE, Page
from .transcripts import Name, Transcripts, label, name_of
from .verdict_looks import Look, look, worst_first

_WHO = ("target", "model", "tokenizer")


@register
class Matrix:
    """See `sections.Section`."""

    name, file, title, place = "matrix", "matrix.html", "Matrix", 20

    def pages(self, data: ReportData) -> Iterator[Page]:
        """See the module."""
        yield _page(data.run, data.transcripts)


def _page(run: RunView, made: Transcripts) -> Page:
    """`matrix.html`."""
    cells = run.cells
    builders = by_builder(cells)
    names, causes = Index(), Index()
    rows = Rows(_rows(cells, builders, made, names, causes))
    return Page(
        file="matrix.html",
        template="matrix.html",
        title="Matrix",
        needs=(TABLE,),
        script="matrix",
        values={
            "n": cells.height,
            "builders": [visible(builder, 60) for builder in builders],
            "suites": [visible(suite, 60) for suite in _suites(cells)],
            "grid": list(_grid(cells, builders)),
            "rows": rows,
            "data": {
                "builders": [visible(builder, 60) for builder in builders],
                "names": names.values,
                "causes": causes.values,
                "files": [file.path for file in made.files],
            },
        },
    )


def _rows(
    cells: pl.DataFrame, builders: list[str], made: Transcripts, names: Index, causes: Index
) -> Iterator[list[Any]]:
    """[target, model, tokenizer, suite, case, [verdict, cause, file] or 0 for each builder].

    Names and causes are indices into shared lists; the worst rows come first.
    """
    found: dict[Name, dict[str, tuple[str, str]]] = {}
    for row in cells.iter_rows(named=True):
        found.setdefault(name_of(row), {})[row["builder"]] = row["verdict"], row["cause"] or ""

    def badness(item: tuple[Name, dict[str, tuple[str, str]]]) -> int:
        return -max(look(verdict).badness for verdict, _ in item[1].values())

    for name, of in sorted(found.items(), key=badness):
        who = [names[visible(part, 120)] for part in (*name[:3], name.suite)]
        sides = [
            [of[builder][0], causes[of[builder][1]], made.where[name, builder][0]]
            if builder in of
            else 0
            for builder in builders
        ]
        yield [*who, label(name), sides]


def _suites(cells: pl.DataFrame) -> list[str]:
    return cells["suite"].unique().sort().to_list()


def _grid(cells: pl.DataFrame, builders: list[str]) -> Iterator[dict[str, Any]]:
    """A row for each target, model and tokenizer; an entry for each suite and builder."""
    counts: dict[tuple[str, ...], dict[str, int]] = {}
    by = [*_WHO, "suite", "builder"]
    for *key, verdict, n in cells.group_by([*by, "verdict"]).len().iter_rows():
        counts.setdefault(tuple(key), {})[verdict] = n
    for who in cells.select(_WHO).unique().sort(_WHO).iter_rows():
        yield {
            "target": visible(who[0], 60),
            "model": visible(who[1], 60),
            "tokenizer": visible(who[2], 60),
            "entries": [
                _entry(suite, builder, counts.get((*who, suite, builder)))
                for suite in _suites(cells)
                for builder in builders
            ],
        }


def _entry(suite: str, builder: str, counts: dict[str, int] | None) -> dict[str, Any] | None:
    if counts is None:
        return None
    order = worst_first(list(counts))
    worst: Look = look(order[0])
    return {
        "suite": visible(suite, 60),
        "builder": visible(builder, 60),
        "look": worst,
        "right": counts.get(Verdict.OK, 0),
        "n": sum(counts.values()),
        "tally": ", ".join(f"{counts[name]} {name}" for name in order),
    }
