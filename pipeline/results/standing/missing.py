"""What was requested and could have judged a builder, but did not come to a result."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from ...model.verdicts import BADNESS, InstanceVerdict, MaskVerdict, Status, Verdict
from .evidence import Evidence

UNFINISHED = (
    *(Verdict.CRASHED, Verdict.TIMEOUT, Verdict.BUSY, Verdict.REFUSED, Verdict.LOAD_REFUSED),
    Verdict.BUILDER_REFUSED,
)
"""Verdicts of cells that came to no result."""
NO_RESULT = (
    InstanceVerdict.UNREADABLE,
    InstanceVerdict.LIMIT,
    InstanceVerdict.TIMEOUT,
    InstanceVerdict.CRASHED,
    InstanceVerdict.BUILDER_REFUSED,
    InstanceVerdict.LOAD_REFUSED,
)
"""Verdicts of texts and schemas that came to no result."""
UNJUDGED = [
    *(MaskVerdict.NO_ORACLE.value, MaskVerdict.OVER_BUDGET.value),
    MaskVerdict.AFTER_DIVERGENCE.value,
]
"""Verdicts of masks that were not judged."""


def of(evidence: Evidence) -> Iterator[str]:
    """One sentence for each kind of missing result, most important first."""
    yield from _without_table(evidence)
    yield from _cells(evidence)
    yield from _walks(evidence)
    yield from _states(evidence)
    yield from _texts(evidence)


def _without_table(evidence: Evidence) -> Iterator[str]:
    for row in evidence.table("tokenizers").filter(pl.col("status") != Status.OK).to_dicts():
        yield f"there is no token table ({row['status']}): {_line(row['reason'])}"


def _cells(evidence: Evidence) -> Iterator[str]:
    cells = evidence.table("cells")
    for verdict in sorted((*UNFINISHED, Verdict.TRUNCATED), key=lambda v: -BADNESS[v]):
        same = cells.filter(verdict=verdict).sort("cell_key")
        if same.height:
            row = same.row(0, named=True)
            where = f"{row['model']} {row['suite']}/{row['case']}"
            are = "cell is" if same.height == 1 else "cells are"
            yield f"{same.height:,} {are} {verdict}, such as {where}: {_line(row['reason'])}"


def _walks(evidence: Evidence) -> Iterator[str]:
    walks = evidence.table("walks").filter(pl.col("status") != Status.OK)
    for status in Status:
        same = walks.filter(status=status).sort("walk", nulls_last=True)
        if same.height:
            row = same.row(0, named=True)
            along = f" along {row['grammar']}" if row["grammar"] else ""
            are = "walk is" if same.height == 1 else "walks are"
            yield f"{same.height:,} {are} {status}{along}: {_line(row['reason'])}"


def _states(evidence: Evidence) -> Iterator[str]:
    states = evidence.table("states")
    judged = states.filter(~pl.col("verdict").is_in(UNJUDGED))
    spent = states.filter(verdict=MaskVerdict.OVER_BUDGET)
    if spent.height:
        are = "mask was" if spent.height == 1 else "masks were"
        yield f"{spent.height:,} {are} not judged: {_line(spent['reason'][0])}"
    elif states.height and judged.is_empty():
        yield f"none of {states.height:,} masks could be judged: {_line(states['reason'][0])}"
    elif judged.height and not judged["step"].max():
        yield "only first masks were judged; engine.oracle=every judges all of them"
    unjudged = evidence.table("masks").filter(
        pl.col("n_missing").is_null() & pl.col("engine_error").is_null()
    )
    if unjudged.height and not spent.height:
        yield f"the first mask of {unjudged['probe'][0]} was not judged: the budget is spent"


def _texts(evidence: Evidence) -> Iterator[str]:
    for table, what in (("strings", "string"), ("replay", "schema")):
        for verdict in NO_RESULT:
            same = evidence.table(table).filter(verdict=verdict)
            if same.height:
                name = "grammar" if table == "strings" else "schema"
                row = same.sort(name).row(0, named=True)
                n = same[name].n_unique()
                are = f"{what} is" if n == 1 else f"{what}s are"
                yield f"{n:,} {are} {verdict}, such as {row[name]}: {_line(row['reason'])}"


def _line(reason: str | None) -> str:
    """The first line of a reason."""
    return (reason or "no reason is recorded").partition("\n")[0]
