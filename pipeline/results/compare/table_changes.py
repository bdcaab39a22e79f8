"""Changes in the tables other than cells, by id: wrong tokens, wrong ids of masks, and others.

Every table of `_COMPARED` that both runs have is compared. For the columns below it is known which
change is worse; a change of any other column is `changed`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import polars as pl

from ...model.names import IN_PROCESS
from ...model.verdicts import RowChange, Standing, Status, Tokenization, TokenizeMode, Verdict
from ..tables import schemas
from . import kept_changes
from .finding import SCHEMA
from .side import PARTS, Side

_FAULTS = {"tokens"}
"""Tables in which each row is a fault."""

_SHOWN = {"tokens": ["claimed"], "replay": ["verdict"], "standings": ["standing"]}
"""For these tables, only these columns are compared."""

_OF_TEXTS = ("replay",)
"""Tables without ids: they can be compared across vocabularies. `comparability` compares their
inputs."""

_IDS = {
    "bad_ids": (RowChange.WORSE, RowChange.BETTER),
    "allowed_ids": (RowChange.CHANGED, RowChange.CHANGED),
}
"""For id-list columns: how to classify an added and a removed id."""

_GOOD = {
    "status": (Status.OK.value,),
    "tokenize": (TokenizeMode.EXACT.value, TokenizeMode.GREEDY.value),
    "verdict": tuple(
        word.value for word in (Verdict.OK, Tokenization.EXACT, Tokenization.NON_CANONICAL)
    ),
}
"""For columns with good and bad values: the good values."""

_FEWER_IS_BETTER = (
    *("n_wrong", "n_bad", "n_disagreements", "n_lost_leading_space", "n_inner_space_lost"),
    *("n_emptied", "n_run_shortened", "n_other", "n_unsound", "n_incomplete"),
)

_COMPARED = ("replay", "tokens", "masks", "tokenizers", "specials", "exactness", "strings")
"""Tables whose rows mean the same on both sides, most important first. Walks are not among them:
after two masks differ, the walks take different tokens."""

_NOT_COMPARED = ("vocab_hash", "table_hash", "grammar", "reason", "true", "attribute")

_STANDINGS = {standing.value: place for place, standing in enumerate(Standing)}
"""Standings, worst first."""

_ORDER = {change.value: place for place, change in enumerate(RowChange)}
_CHANGED = pl.lit(RowChange.CHANGED.value)


def changes(before: Side, after: Side, compared: Collection[str]) -> tuple[pl.DataFrame, list[str]]:
    """All findings, worst first, and notes on what could not be compared.

    `compared` are the names, such as `builder`, that differ on purpose and pair nothing.
    """
    drop = [part for part in PARTS if part in compared]
    if before.folder is None:
        return _against_a_baseline(before, after, drop)
    standings = [
        _shaped(part, "standings", _keys("standings", drop))
        for part in _table(
            "standings",
            before.table("standings"),
            after.table("standings"),
            _keys("standings", drop),
        )
    ]
    if _of_a_server(before) or _of_a_server(after):
        told = "a server does not show its token table: only cells and standings are compared"
        return pl.concat([pl.DataFrame(schema=SCHEMA), *standings]), [told]
    found, notes = [pl.DataFrame(schema=SCHEMA), *standings], list[str]()
    pairs = {
        table: (before.table(table), after.table(table))
        for table in _COMPARED
        if table in before.rows and table in after.rows
    }
    lone = [t for t in _COMPARED if (t in before.rows) != (t in after.rows)]
    if lone:
        notes.append(f"only one of the runs holds {', '.join(lone)}: not compared")
    same, other = _comparable(pairs.get("tokenizers"), drop)
    if other:
        notes.append(f"ids are not compared for {', '.join(other)}: the vocabularies differ")
    for table, (was, now) in pairs.items():
        key = _keys(table, drop)
        if table != "tokenizers" and table not in _OF_TEXTS:
            on = [name for name in key if name in same.columns]
            was, now = (rows.join(same.select(on), on=on, how="semi") for rows in (was, now))
        found += [_shaped(part, table, key) for part in _table(table, was, now, key)]
    return _sorted(_with_true(pl.concat(found), pairs.get("tokens"))), notes


def _keys(table: str, drop: list[str]) -> list[str]:
    return [name for name in schemas.SORT_KEYS[table] if name not in drop]


def _sorted(found: pl.DataFrame) -> pl.DataFrame:
    """Worst first, then the tables that say most."""
    order = pl.col("change").replace_strict(_ORDER, return_dtype=pl.Int64)
    place = {table: i for i, table in enumerate(("standings", *_COMPARED))}
    telling = pl.col("table").replace_strict(place, return_dtype=pl.Int64)
    names = ("tokenizer", "builder", "key", "token")
    return found.sort(order, telling, *names, maintain_order=True)


def _against_a_baseline(
    before: Side, after: Side, drop: list[str]
) -> tuple[pl.DataFrame, list[str]]:
    if before.kept is None or after.kept is None:
        told = f"{before.name} has format 1: tables are not compared; save the baseline again"
        return pl.DataFrame(schema=SCHEMA), [told]
    found, notes = kept_changes.changes(before.kept, after.kept, after.judged_tables(), drop)
    return _sorted(found), notes


def _of_a_server(side: Side) -> bool:
    """Whether a server generated all cells of the side; False without cells, as in an audit."""
    targets = side.cells["target"].unique().to_list()
    return bool(targets) and IN_PROCESS not in targets


def _with_true(
    found: pl.DataFrame, tokens: tuple[pl.DataFrame, pl.DataFrame] | None
) -> pl.DataFrame:
    """Add the true bytes of ids in masks, if a table of wrong tokens has them."""
    if tokens is None or not found["token"].drop_nulls().len():
        return found
    on = ["tokenizer", "token"]
    known = pl.concat([rows.select(*on, known="true") for rows in tokens]).unique(on)
    found = found.join(known, on=on, how="left", maintain_order="left")
    return found.with_columns(true=pl.coalesce("true", "known")).drop("known")


def _comparable(
    pair: tuple[pl.DataFrame, pl.DataFrame] | None, drop: list[str]
) -> tuple[pl.DataFrame, list[str]]:
    """(the (tokenizer, builder) pairs with a table over the same vocabulary on both sides; the
    tokenizers whose vocabulary differs)."""
    key = [name for name in ("tokenizer", "builder") if name not in drop]
    if pair is None:
        return pl.DataFrame(schema=dict.fromkeys(key, pl.String)), []
    was, now = (rows.filter(status=Status.OK).select(*key, "vocab_hash") for rows in pair)
    both = was.join(now, on=key, how="inner", suffix="_after")
    alike = pl.col("vocab_hash") == pl.col("vocab_hash_after")
    other = both.filter(~alike)["tokenizer"].unique().sort().to_list()
    return both.filter(alike), other


def _table(
    table: str, was: pl.DataFrame, now: pl.DataFrame, key: list[str]
) -> Iterator[pl.DataFrame]:
    """The findings of one table; `_shaped` then gives them the columns of `SCHEMA`."""
    for ids, (came, went) in _IDS.items():
        if ids in was.columns and ids in now.columns:
            lists = [
                rows.filter(pl.col(ids).is_not_null()).select(*key, token=pl.col(ids))
                for rows in (was, now)
            ]
            on_both = [rows.join(lists[0], on=key, how="semi") for rows in lists]
            on_both = [rows.join(lists[1], on=key, how="semi") for rows in on_both]
            each = [rows.explode("token").drop_nulls("token") for rows in on_both]
            for rows, less, change in ((each[1], each[0], came), (each[0], each[1], went)):
                gone = rows.join(less, on=[*key, "token"], how="anti")
                yield gone.with_columns(change=pl.lit(change.value), column=pl.lit(ids))
    columns = _SHOWN.get(table) or [
        name
        for name, kind in was.schema.items()
        if name in now.columns
        and name not in (*key, *PARTS, *_NOT_COMPARED)
        and not isinstance(kind, pl.List)
    ]
    carried = [name for name in ("true",) if name in was.columns and name in now.columns]
    left, right = (rows.select(*key, *carried, *columns, there=pl.lit(True)) for rows in (was, now))
    pairs = left.join(right, on=key, how="full", coalesce=True, suffix="_after", nulls_equal=True)
    pairs = pairs.with_columns(pl.coalesce(name, f"{name}_after") for name in carried)
    came, went = RowChange.ADDED, RowChange.REMOVED
    if table in _FAULTS:
        came, went = RowChange.WORSE, RowChange.BETTER
    for change, missing in ((came, "there"), (went, "there_after")):
        rows = pairs.filter(pl.col(missing).is_null())
        if table in _FAULTS:
            rows = _values(rows, columns[0])
        column = pl.lit(columns[0] if columns else "")
        yield rows.with_columns(change=pl.lit(change.value), column=column)
    both = pairs.filter(pl.col("there") & pl.col("there_after"))
    for name in columns:
        moved = both.filter(pl.col(name).ne_missing(pl.col(f"{name}_after")))
        yield _values(moved.with_columns(change=_way(name), column=pl.lit(name)), name)


def _way(name: str) -> pl.Expr:
    """The `RowChange` of a changed column: worse, better or changed."""
    was, now = pl.col(name), pl.col(f"{name}_after")
    if name == "standing":
        was, now = (
            column.replace_strict(_STANDINGS, return_dtype=pl.Int64) for column in (was, now)
        )
        worse, better = now < was, now > was
    elif name in _GOOD:
        was_good, now_good = was.is_in(_GOOD[name]), now.is_in(_GOOD[name])
        worse, better = was_good & ~now_good, now_good & ~was_good
    elif name in _FEWER_IS_BETTER:
        worse, better = now > was, now < was
    else:
        return _CHANGED
    otherwise = pl.when(better).then(pl.lit(RowChange.BETTER.value)).otherwise(_CHANGED)
    return pl.when(worse).then(pl.lit(RowChange.WORSE.value)).otherwise(otherwise)


def _values(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    return rows.with_columns(
        before=_binary(rows, name).alias("before"),
        after=_binary(rows, f"{name}_after").alias("after"),
    )


def _binary(rows: pl.DataFrame, name: str) -> pl.Expr:
    column = pl.col(name)
    if rows.schema[name] == pl.Binary():
        return column
    return column.cast(pl.String).cast(pl.Binary)


def _shaped(rows: pl.DataFrame, table: str, key: list[str]) -> pl.DataFrame:
    """The rows with the columns of `SCHEMA`."""
    rest = [name for name in key if name not in ("tokenizer", "builder", "token")]
    parts = [
        pl.col(name).bin.encode("hex") if kind == pl.Binary() else pl.col(name).cast(pl.String)
        for name, kind in rows.select(rest).schema.items()
    ]
    joined = pl.lit(None, dtype=pl.String)
    if parts:
        joined = pl.concat_str(parts, separator="/", ignore_nulls=True)
    rows = rows.with_columns(table=pl.lit(table), key=joined)
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None).alias(name)).cast(kind)
        for name, kind in SCHEMA.items()
    )
