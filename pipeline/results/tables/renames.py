"""Changes of names and places between schema versions, as data.

The migration of older tables, `scripts/same_tables.py` and the table in CHANGELOG all follow these
lists.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from ...model.verdicts import Status

_FAILURES = tuple(status.value for status in Status if status is not Status.OK)


@dataclass(frozen=True)
class Word:
    """A word of a column that has changed; None stands for null."""

    table: str
    column: str
    old: str
    new: str | None


@dataclass(frozen=True)
class Moved:
    """Words that were in a column with another meaning and now have a column of their own."""

    table: str
    column: str
    new_column: str
    changelog: str
    """The words, as in CHANGELOG."""


@dataclass(frozen=True)
class Emptied:
    """A column that held a placeholder for a unit without a result; the value is null now."""

    table: str
    column: str
    changelog: str
    """The value, as in CHANGELOG."""


WORDS_1_TO_2 = (
    Word("walks", "ended", "no_token", "empty_mask"),
    Word("walks", "ended", "refused", "consume"),
    Word("walks", "walk", "all", None),
    Word("walks", "grammar", "", None),
    Word("engines", "walk", "", None),
    Word("engines", "grammar", "", None),
    Word("prefix", "implementation", "", None),
    Word("templates", "reference", "", None),
    Word("strings", "split", "longest", "greedy"),
    Word("strings", "split", "random1", "random"),
    Word("strings", "split", "random2", "random_2"),
    Word("replay", "instance", "", None),
    Word("replay", "split", "", None),
    Word("replay", "verdict", "compile_refused", "grammar_error"),
    Word("exactness", "class", "unknown", "unknown_token"),
    Word("engine_findings", "kind", "empty", "no_bytes"),
    Word("engine_findings", "kind", "refused", "consume"),
)
MOVED_1_TO_2 = (
    Moved("prefix", "scheme", "status", "`crashed`, `timeout`, …"),
    Moved("walks", "verdict", "status", "`crashed`, `timeout`, …"),
    Moved("walks", "ended", "status", "`crashed`, `timeout`, …"),
    Moved("walks", "objection", "reason", "why there is no result"),
    Moved("engines", "verdict", "status", "`crashed`, `grammar_error`, …"),
)
EMPTIED_1_TO_2 = (
    Emptied("walks", "n_steps", "`0`"),
    Emptied("walks", "n_non_canonical", "`0`"),
    Emptied("walks", "accepting", "`false`"),
    Emptied("engines", "step", "`0`"),
    Emptied("prefix", "text", "empty"),
    Emptied("prefix", "scheme", "`none of them`"),
)

PROSE = ("reason", "objection", "report", "suite_file")
"""Columns of sentences: their wording may change from one commit to the next."""


def from_1_to_2(table: str, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Convert a table of schema version 1 to version 2."""
    moved = [one.column for one in MOVED_1_TO_2 if (one.table, one.new_column) == (table, "status")]
    if moved:
        rows = _with_status(table, rows, moved)
    for word in WORDS_1_TO_2:
        if word.table == table:
            rows = rows.with_columns(pl.col(word.column).replace(word.old, word.new))
    return rows


def _with_status(table: str, rows: pl.LazyFrame, moved: list[str]) -> pl.LazyFrame:
    """Add the column `status`; replace failures and placeholders in other columns with null."""
    status = pl.coalesce(*(pl.when(_failure(name)).then(name) for name in moved))
    if table == "prefix":  # `none of them` with a reason: our encoder refused the vocabulary
        refused = pl.when(pl.col("reason") != "").then(pl.lit(Status.LOAD_REFUSED.value))
        status = pl.coalesce(status, refused)
    rows = rows.with_columns(status=pl.coalesce(status, pl.lit(Status.OK.value)))
    failed = pl.col("status") != Status.OK
    if table == "walks":
        rows = rows.with_columns(
            reason=pl.when(failed).then("objection").otherwise(pl.lit("")),
            objection=pl.when(~failed).then("objection"),
        )
    # A grammar that an engine does not compile keeps the keys of its walk.
    nothing = failed & (pl.col("status") != Status.GRAMMAR_ERROR)
    emptied = [one.column for one in EMPTIED_1_TO_2 if one.table == table]
    return rows.with_columns(
        *(pl.when(~_failure(name)).then(name).alias(name) for name in moved if name not in emptied),
        *(pl.when(~nothing).then(name).alias(name) for name in emptied),
    )


def _failure(column: str) -> pl.Expr:
    return pl.col(column).is_in(_FAILURES)
