"""What changed its name or its place from one schema version to the next, as data.

The migration of older tables, `scripts/same_tables.py` and the table in CHANGELOG all follow these
lists.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

_UNFINISHED = ("crashed", "timeout", "load_refused", "builder_refused", "grammar_error")


@dataclass(frozen=True)
class Word:
    """A word of a column that is another one now."""

    table: str
    column: str
    old: str
    new: str


@dataclass(frozen=True)
class Moved:
    """Words that stood in a column that means something else; they have a column of their own."""

    table: str
    column: str
    words: tuple[str, ...]
    new_column: str
    otherwise: str
    """What the new column holds in every other row."""


WORDS_1_TO_2 = (
    Word("walks", "ended", "no_token", "empty_mask"),
    Word("walks", "ended", "refused", "consume"),
    Word("strings", "split", "longest", "greedy"),
    Word("strings", "split", "random1", "random"),
    Word("strings", "split", "random2", "random_2"),
)
MOVED_1_TO_2 = (
    Moved("prefix", "scheme", _UNFINISHED, "status", "ok"),
    Moved("walks", "verdict", _UNFINISHED, "status", "ok"),
    Moved("walks", "ended", _UNFINISHED, "status", "ok"),
    Moved("engines", "verdict", _UNFINISHED, "status", "ok"),
)


PROSE = ("reason", "objection", "report", "suite_file")
"""Columns of sentences: their wording may change from one commit to the next."""


def from_1_to_2(table: str, rows: pl.LazyFrame) -> pl.LazyFrame:
    """A table of schema version 1 as one of version 2.

    In `walks` the reason of a unit without a result stood in `objection`, and `all` in `walk`.
    """
    had = rows.collect_schema().names()
    if table == "walks" and "reason" not in had:
        failed = pl.col("ended").is_in(_UNFINISHED)
        rows = rows.with_columns(
            reason=pl.when(failed).then("objection").otherwise(pl.lit("")),
            objection=pl.when(~failed).then("objection"),
            walk=pl.when(failed).then(pl.lit("")).otherwise("walk"),
        )
    moves = [moved for moved in MOVED_1_TO_2 if moved.table == table and moved.column in had]
    failures = [pl.when(_is_in(moved)).then(moved.column) for moved in moves]
    if moves and moves[0].new_column not in had:
        status = pl.coalesce(*failures, pl.lit(moves[0].otherwise))
        rows = rows.with_columns(
            status.alias(moves[0].new_column),
            *(pl.when(~_is_in(moved)).then(moved.column).alias(moved.column) for moved in moves),
        )
    for word in WORDS_1_TO_2:
        if word.table == table and word.column in had:
            rows = rows.with_columns(pl.col(word.column).replace(word.old, word.new))
    return rows


def _is_in(moved: Moved) -> pl.Expr:
    return pl.col(moved.column).is_in(moved.words)
