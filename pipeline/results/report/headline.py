"""The result of a run in one sentence, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from ...model.verdicts import Cause, Status, Verdict
from ...system.text import visible
from ..summary.console import by_builder
from . import replay
from .run_view import RunView
from .verdict_looks import Group, look

_NAMED = 2
"""Number of failing builders that the headline names."""

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


def headline(run: RunView) -> str:
    """The result of the run in one sentence."""
    cells, tokenizers = run.cells, run.table("tokenizers")
    if not cells.height and (walks := replay.result_sentence(run.table("replay"))):
        return f"Replay: {walks}"
    if not cells.height:
        if tokenizers.height:
            return _audit_alone(tokenizers)
        field = run.table("field")
        return _field(field) if field.height else "There is nothing to show yet."
    right = cells.filter(verdict=Verdict.OK).height
    so_far = "" if run.manifest else "So far: "
    if right == cells.height:
        cells_obey = "the one cell obeys its" if right == 1 else f"all {right:,} cells obey their"
        sentence = f"{so_far}{cells_obey} grammar, to the byte."
        return sentence[0].upper() + sentence[1:]
    good: dict[int, list[str]] = {}
    bad: list[tuple[int, int, str]] = []
    for builder in by_builder(cells):
        mine = cells.filter(builder=builder)
        wrong = mine.filter(pl.col("verdict") != Verdict.OK).height
        if wrong:
            bad.append((wrong, mine.height, visible(builder, 60)))
        else:
            good.setdefault(mine.height, []).append(visible(builder, 60))
    bad.sort(key=lambda item: -item[0] / item[1])
    told = [f"{name} fails {wrong:,} of {n:,} cells" for wrong, n, name in bad]
    if len(bad) > _NAMED:
        wrong, n, name = bad[0]
        told = [f"{len(bad)} builders fail, {name} worst with {wrong:,} of {n:,} cells"]
    told += [
        f"{_joined(names)} {'passes' if len(names) == 1 else 'pass'} all {n:,}"
        for n, names in good.items()
    ]
    return f"{so_far}{'; '.join(told)}."


def _audit_alone(tokenizers: pl.DataFrame) -> str:
    wrong = tokenizers.filter(pl.col("n_wrong") > 0)
    ok = tokenizers.filter(status=Status.OK)
    if not wrong.height:
        return f"{ok.height} of {tokenizers.height} token tables were built; none has wrong bytes."
    return (
        f"{wrong.height} of {tokenizers.height} token tables have tokens with wrong bytes: "
        f"{int(wrong['n_wrong'].sum()):,} in all. Nothing was generated."
    )


def _field(field: pl.DataFrame) -> str:
    wrong = field.filter(pl.col("n_wrong") > 0)
    refused = field.filter(pl.col("status") == Status.BUILDER_REFUSED).height
    told = f"; {refused} {'was' if refused == 1 else 'were'} refused" if refused else ""
    return (
        f"{wrong.height} of {field.height} token tables of {field['builder'].n_unique()} builders "
        f"have tokens with wrong bytes{told}."
    )


def detail(run: RunView) -> str:
    """The second sentence: how cells fail, and how many token-table entries are wrong."""
    cells, parts = run.cells, list[str]()
    counts = dict(cells["verdict"].value_counts().iter_rows())
    silent = counts.get(Verdict.SILENT_CORRUPTION, 0)
    lost = counts.get(Verdict.UNENFORCED, 0)
    if silent:
        parts.append(f"{silent:,} times the output broke the grammar and nothing was reported")
    if lost:
        parts.append(f"{lost:,} times the constraint was lost and generation went on without it")
    wrong = run.table("tokenizers").filter(pl.col("n_wrong") > 0)
    if wrong.height:
        worst = max(wrong.iter_rows(named=True), key=lambda row: (row["n_wrong"], row["builder"]))
        who, of = (visible(worst[name], 60) for name in ("builder", "tokenizer"))
        parts.append(
            f"{who} has wrong bytes for {worst['n_wrong']:,} of the {worst['n_tokens']:,} tokens "
            f"of {of}"
        )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def next_steps(run: RunView, compared: bool) -> Iterator[Step]:
    """What to do next, the most urgent first."""
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
    yield from _further(run, cells, compared)


def _released_and_wrong(run: RunView) -> int:
    released = pl.col("version").is_not_null() & (pl.col("n_wrong") > 0)
    return run.table("field").filter(released).height


def _further(run: RunView, cells: pl.DataFrame, compared: bool) -> Iterator[Step]:
    builders = by_builder(cells) if cells.height else []
    if len(builders) > 1 and not compared:
        yield Step(
            "Compare two builders, cell by cell.",
            f"python -m pipeline report run={run.name} before.builder={builders[0]} "
            f"after.builder={builders[1]}",
        )
    if run.manifest and cells.height:
        yield Step(
            "Save these verdicts as the baseline for later runs.",
            f"python -m pipeline baseline save run={run.name}",
        )
    elif run.manifest and run.table("tokenizers").height:
        yield Step("Generate with these token tables, too.", "python -m pipeline run")


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
