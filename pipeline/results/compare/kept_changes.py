"""What changed against a baseline in standings, wrong tokens, strings and replays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from ...model.verdicts import RowChange, Standing
from . import kept
from .finding import SCHEMA
from .kept import SCHEMAS, Kept
from .side import Side

_TABLES = {
    "standing": ("standings", "standing"),
    "table": ("tokenizers", "table_hash"),
    "wrong": ("tokens", "claimed"),
    "string": ("strings", "verdict"),
    "replay": ("replay", "verdict"),
}
"""Kind of line → its table and column, as findings name them."""

_ORDER = {standing.value: place for place, standing in enumerate(Standing)}
"""Standings, worst first."""


def changes(
    before: Kept, after: Kept, tables: Mapping[str, pl.DataFrame], drop: list[str]
) -> tuple[pl.DataFrame, list[str]]:
    """All findings, as rows of `table_changes.SCHEMA`, and notes on what could not be compared.

    `tables` are those of the run after; `drop` are the compared parts, which pair nothing.
    """
    other, notes = _other_vocabularies(before, after, drop)
    found = [pl.DataFrame(schema=SCHEMA)]
    for kind, (table, column) in _TABLES.items():
        key = [name for name in SCHEMAS[kind] if name not in (*drop, "word")]
        was, now = (side.rows[kind] for side in (before, after))
        if table != "standings" and table not in tables:
            if was.height:
                notes.append(f"the run has no {table}: not compared")
            continue
        if kind in ("table", "wrong"):
            was, now = (rows.filter(~pl.col("tokenizer").is_in(other)) for rows in (was, now))
        pairs = was.join(now, on=key, how="full", coalesce=True, suffix="_now", nulls_equal=True)
        pairs = pairs.filter(pl.col("word").ne_missing(pl.col("word_now")))
        rest = [name for name in key if name not in ("tokenizer", "builder", "token")]
        rows = [
            {
                "table": table,
                "tokenizer": row["tokenizer"],
                "builder": row.get("builder"),
                "key": "/".join(_shown(row[name]) for name in rest if row[name]) or None,
                "token": row.get("token"),
                "column": column,
                "change": _change(kind, row, key, tables.get(table)).value,
                "true": None,
                "before": None if kind == "wrong" else _value(kind, row["word"]),
                "after": None if kind == "wrong" else _value(kind, row["word_now"]),
            }
            for row in pairs.iter_rows(named=True)
        ]
        frame = pl.DataFrame(rows, schema=SCHEMA)
        found.append(_with_bytes(frame, tables["tokens"]) if kind == "wrong" else frame)
    every = pl.concat(found)
    return _without_bare_hashes(every), notes


def _other_vocabularies(before: Kept, after: Kept, drop: list[str]) -> tuple[list[str], list[str]]:
    """The tokenizers whose vocabulary differs, and a note that names them."""
    on = [name for name in ("tokenizer", "builder") if name not in drop]
    vocabulary = pl.col("word").str.split("/").list.last()
    was, now = (side.rows["table"].select(*on, vocabulary=vocabulary) for side in (before, after))
    both = was.join(now, on=on, suffix="_now")
    moved = both.filter(pl.col("vocabulary") != pl.col("vocabulary_now"))
    names = moved["tokenizer"].unique().sort().to_list()
    told = f"ids are not compared for {', '.join(names)}: the vocabularies differ"
    return names, [told] if names else []


def _change(
    kind: str, row: dict[str, object], key: list[str], table: pl.DataFrame | None
) -> RowChange:
    was, now = row["word"], row["word_now"]
    if kind == "table":
        return _of(was, now, RowChange.CHANGED)
    if kind == "standing":
        if was is None or now is None:
            return _of(was, now, RowChange.CHANGED)
        worse = _ORDER[str(now)] < _ORDER[str(was)]
        return RowChange.WORSE if worse else RowChange.BETTER
    if was is None:
        return RowChange.WORSE
    if now is not None:
        return RowChange.CHANGED
    if kind == "wrong":
        return RowChange.BETTER
    assert table is not None
    there = table.filter(pl.col(name).eq_missing(pl.lit(row[name])) for name in key)
    return RowChange.BETTER if there.height else RowChange.REMOVED


def _of(was: object, now: object, otherwise: RowChange) -> RowChange:
    if was is None:
        return RowChange.ADDED
    return RowChange.REMOVED if now is None else otherwise


def _with_bytes(rows: pl.DataFrame, tokens: pl.DataFrame) -> pl.DataFrame:
    """Wrong tokens with the bytes that the run after has for them; a right one has none."""
    known = tokens.select("tokenizer", "builder", "token", known="true", claimed="claimed")
    on = ["tokenizer", "builder", "token"]
    if rows["builder"].null_count():
        on.remove("builder")
        known = known.drop("builder").unique(on)
    joined = rows.join(known, on=on, how="left", maintain_order="left")
    came = pl.when(change=RowChange.WORSE.value).then("claimed")  # a baseline has no bytes
    return joined.with_columns(true="known", after=came).select(*SCHEMA)


def _without_bare_hashes(rows: pl.DataFrame) -> pl.DataFrame:
    """Without the changes of hashes that the changes of tokens explain already."""
    changed = (pl.col("table") == "tokenizers") & (pl.col("change") == RowChange.CHANGED)
    explained = rows.filter(table="tokens").select("tokenizer", "builder").unique()
    hashes = rows.filter(changed).join(
        explained, on=["tokenizer", "builder"], how="anti", nulls_equal=True
    )
    return pl.concat([rows.filter(~changed), hashes])


def _value(kind: str, word: object) -> bytes | None:
    if word is None:
        return None
    shown = str(word).partition("/")[0] if kind == "table" else str(word)
    return shown.encode()


def _shown(name: object) -> str:
    return name.hex() if isinstance(name, bytes) else str(name)


@dataclass(frozen=True)
class KnownFailure:
    """A line of a baseline that is marked as an expected failure."""

    line: str
    url: str
    passes: bool
    """Whether it no longer fails in this way: an unexpected pass."""


def known_failures(before: Side, after: Side) -> Iterator[KnownFailure]:
    """The known failures of a baseline against a run, in the order of the file."""
    if not before.expected or after.kept is None:
        return
    now = {key: word for word, key in kept.lines(after.kept)}
    now |= dict(after.cells.select("cell_key", "verdict").iter_rows())
    for (word, key), url in before.expected.items():
        yield KnownFailure(f"{word}  {key}", url, now.get(key) != word)
