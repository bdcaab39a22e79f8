"""The result of a run in one sentence, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from ...model.verdicts import Cause, Standing, Status, Verdict
from ...system.text import visible
from ..compare.comparison import Comparison
from ..compare.formats import words as formats
from ..compare.pairing import WORSE
from ..standing import words
from ..summary.console import by_builder
from . import replay
from .run_view import RunView
from .verdict_looks import Group, look

_NAMED = 3
"""Number of worse findings of each kind that the first page names."""

_TOLD = (
    Verdict.TRUNCATED,
    Verdict.IMPOSSIBLE,
    Verdict.CHECKER_DISAGREES,
    Verdict.GRAMMAR_ERROR,
)
"""Verdicts that are no builder's fault; each gets its own sentence."""


@dataclass(frozen=True)
class Step:
    """One thing to do next."""

    text: str
    command: str = ""
    href: str = ""


def headline(run: RunView, comparison: Comparison | None) -> str:
    """The result in one sentence: of the comparison if there is one, else of the run."""
    if comparison is not None:
        return formats.verdict(comparison, "regression")
    return of_run(run) or "There is nothing to show yet."


def of_run(run: RunView) -> str:
    """The standings of the run in one sentence; empty if there is nothing."""
    if told := words.headline(run.standings):
        return visible(told, 600)
    if run.unreadable:
        return f"No builder can be judged: {next(iter(run.unreadable.values()))}"
    field = run.table("field")
    return _field(field) if field.height else ""


def _field(field: pl.DataFrame) -> str:
    wrong = field.filter(pl.col("n_wrong") > 0)
    refused = field.filter(pl.col("status") == Status.BUILDER_REFUSED).height
    told = f"; {refused} {'was' if refused == 1 else 'were'} refused" if refused else ""
    return (
        f"{wrong.height} of {field.height} token tables of {field['builder'].n_unique()} builders "
        f"have tokens with wrong bytes{told}."
    )


def details(run: RunView, comparison: Comparison | None) -> list[str]:
    """The sentences under the headline: what is worse, or the run itself."""
    told: list[str] = []
    if comparison is not None:
        told += [f"Worse: {finding.line}." for finding in formats.worse(comparison)[:_NAMED]]
        for change in WORSE:
            rows = formats.listed(comparison, change).head(_NAMED).iter_rows(named=True)
            told += [
                f"{change.value.replace('_', ' ').capitalize()}: "
                f"{formats.place(row, comparison)}: {formats.flip(row)}."
                for row in rows
            ]
        told.append(formats.sentence(comparison))
        told.append(of_run(run))
    cells = run.cells
    counts = dict(cells["verdict"].value_counts().iter_rows())
    if silent := counts.get(Verdict.SILENT_CORRUPTION, 0):
        times = "Once" if silent == 1 else f"{silent:,} times"
        told.append(f"{times} the output broke the grammar and nothing was reported.")
    if lost := counts.get(Verdict.UNENFORCED, 0):
        times = "Once" if lost == 1 else f"{lost:,} times"
        told.append(f"{times} the constraint was lost and generation went on without it.")
    return [visible(text, 600) for text in told if text]


def next_steps(run: RunView, comparison: Comparison | None) -> Iterator[Step]:
    """What to do next, the most urgent first."""
    if comparison is not None and comparison.is_worse:
        yield Step("Look at everything that is worse.", href="changes.html")
    cells = run.cells
    if not run.name:
        yield Step(
            "Start a run; its results go into this results folder.",
            "python -m pipeline run",
        )
        return
    if not run.manifest:
        yield Step(
            "Finish the run or start it again: an interrupted run does not have all results."
        )
    groups = {look(name).group for name in cells["verdict"].unique().to_list()}
    if Group.BROKEN in groups:
        yield Step(
            "Open the first broken cell: at its marked token the output leaves the grammar.",
            href="matrix.html",
        )
    if Group.DIED in groups:
        yield Step("Native processes died or hung: each of those cells gives the reason.")
    if run.table("tokens").height:
        yield Step(
            "Look at the wrong tokens by kind of damage: one fault in a builder shows as one kind.",
            href="tokens.html",
        )
    if run.table("replay").filter(cause=Cause.BUILDER).height:
        yield Step(
            "Look at the walks that failed because of a builder, and at the wrong tokens.",
            href=replay.FILE,
        )
    if (wrong := _released_and_wrong(run)) or run.table("engine_findings").height:
        yield Step(
            f"Look at the released libraries: {wrong} of their token tables are wrong, and "
            "the masks of their engines are listed on the same page.",
            href="field.html",
        )
    if n := run.table("reproducers").height:
        yield Step(
            f"Report the faults upstream: {n} small reproducers with report texts are on the pages "
            "of their builder's cells, and in the run's reproducers/ folder."
        )
    for verdict in _TOLD:
        if n := cells.filter(verdict=verdict).height:
            cells_are = "1 cell is" if n == 1 else f"{n:,} cells are"
            yield Step(f"{cells_are} {verdict.replace('_', ' ')}. {look(verdict).advice}")
    yield from _further(run, cells, comparison)


def _released_and_wrong(run: RunView) -> int:
    released = pl.col("version").is_not_null() & (pl.col("n_wrong") > 0)
    return run.table("field").filter(released).height


def _further(run: RunView, cells: pl.DataFrame, comparison: Comparison | None) -> Iterator[Step]:
    builders = by_builder(cells) if cells.height else []
    if len(builders) > 1 and comparison is None:
        yield Step(
            "Compare two builders, cell by cell.",
            f"python -m pipeline report run={run.name} before.builder={builders[0]} "
            f"after.builder={builders[1]}",
        )
    worse = comparison is not None and comparison.is_worse
    if run.manifest and cells.height and not worse:
        faulty = [Standing.UNSAFE.value, Standing.LIMITED.value]
        kept = run.standings.filter(pl.col("standing").is_in(faulty)).height
        this_run = "this run with its known faults" if kept else "this run"
        yield Step(
            f"Save {this_run} as the baseline: later runs are then compared with it.",
            f"python -m pipeline baseline save run={run.name}",
        )
    made = run.table("tokenizers").filter(status=Status.OK)
    if run.manifest and made.height and not cells.height and not run.unreadable:
        yield Step("Generate with these token tables, too.", "python -m pipeline run")
