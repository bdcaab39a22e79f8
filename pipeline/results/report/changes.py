"""The page "Before and after": flipped cells first, then every other change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from ...model.verdicts import Change
from ...system.text import visible
from ..compare.comparison import Comparison
from ..compare.formats import words
from ..compare.pairing import STILL, WORSE
from ..summary.console import by_builder
from .row_budget import Index, Rows
from .run_view import REPEAT, RunView
from .sections import ReportData, register
from .site import TABLE, Page
from .transcripts import Transcripts, name_of

_FILE = "changes.html"

_CALLED = {
    Change.REGRESSED: "regressed",
    Change.FAILURE_WORSE: "changed",
    Change.REMOVED: "removed",
    Change.ADDED: "added",
    Change.FAILURE_BETTER: "changed",
    Change.FIXED: "fixed",
}
"""Names of the filters; an output that changed under the same verdict is `changed`."""

_FILTERS = ("regressed", "fixed", "changed", "added", "removed")
_FINDINGS = 300


@register
class Changes:
    """See `sections.Section`."""

    name, file, title, place = "changes", _FILE, "Before and after", 60

    def pages(self, data: ReportData) -> Iterator[Page]:
        """See the module."""
        yield _page(data.run, data.transcripts, data.comparison)


def _page(run: RunView, made: Transcripts, comparison: Comparison | None) -> Page:
    """`changes.html`; without a comparison it shows the commands that make one."""
    title = "Before and after"
    if comparison is None:
        empty: dict[str, Any] = {"comparison": None, "example": _example(run)}
        return Page(_FILE, "changes.html", title, empty)
    shared = Index()
    rows = Rows(_rows(comparison, run, made, shared))
    counts: dict[str, int] = dict.fromkeys(_FILTERS, 0)
    for change in Change:
        if change not in STILL:
            counts[_CALLED[change]] += comparison.count(change)
    counts["changed"] += comparison.cells.filter(_only_output()).height
    findings = list(words.findings(comparison))
    return Page(
        file=_FILE,
        template="changes.html",
        title=title,
        needs=(TABLE,),
        script="changes",
        values={
            "comparison": {
                "before": visible(comparison.before.label, 120),
                "after": visible(comparison.after.label, 120),
                "is_worse": comparison.is_worse,
                "sentence": words.sentence(comparison),
                "versions": words.versions(comparison),
                "allowed": [visible(f"{d.kind}: {d.text}", 400) for d in comparison.allowed],
                "hints": [visible(hint, 400) for hint in comparison.hints],
                "rates": words.rates(comparison),
                "known": words.known(comparison),
                "findings": [visible(f.line, 500) for f in findings[:_FINDINGS]],
                "findings_left_out": max(0, len(findings) - _FINDINGS),
            },
            "counts": counts,
            "rows": rows,
            "data": {"shared": shared.values, "files": [file.path for file in made.files]},
        },
    )


def _only_output() -> pl.Expr:
    return pl.col("output_changed") & pl.col("change").is_in([c.value for c in STILL])


def _rows(
    comparison: Comparison, run: RunView, made: Transcripts, shared: Index
) -> Iterator[list[Any]]:
    """[change, worse, place, verdict before, after, cause before, after, why, [link, …]]."""
    cells = comparison.cells
    moved = ~pl.col("change").is_in([c.value for c in STILL])
    for part in (cells.filter(moved), cells.filter(_only_output())):
        for row in part.iter_rows(named=True):
            change = Change(row["change"])
            yield [
                shared[_CALLED.get(change, "changed")],
                int(change in WORSE),
                words.place(row, comparison),
                *(row[f"verdict_{end}"] or 0 for end in ("before", "after")),
                *(shared[row[f"cause_{end}"] or ""] for end in ("before", "after")),
                words.why(row),
                list(_links(row, comparison, run, made)),
            ]


def _links(
    row: dict[str, Any], comparison: Comparison, run: RunView, made: Transcripts
) -> Iterator[list[Any]]:
    """[`before` or `after`, file, index in the file] if that side is the run of this report."""
    for end, side in (("before", comparison.before), ("after", comparison.after)):
        if side.folder is None or side.folder != run.folder:
            continue
        name = name_of({REPEAT: None} | row | dict(side.part))
        builder = side.part.get("builder", row["builder"])
        if (name, builder) in made.where:
            href = made.href(name, builder)
            yield [end, made.where[name, builder][0], href.partition("#")[2]]


def _example(run: RunView) -> list[str]:
    """Commands that fill this page."""
    builders = by_builder(run.cells)
    of_run = f"run={run.name or 'latest'}"
    first, second = builders[:2] if len(builders) > 1 else ("unfixed", "fixed")
    return [
        f"python -m pipeline report {of_run} before.builder={first} after.builder={second}",
        "python -m pipeline report before.run=baseline after.run=latest",
        "python -m pipeline report before.run=MONDAY after.run=latest",
    ]
