"""What a baseline keeps of a run's tables, and its lines in the file.

    standing=unsafe  mistral_v1/unfixed/inprocess
    table=1f0c…/8a77…  mistral_v1/unfixed
    wrong=leading_space_lost  mistral_v1/unfixed/0  35 224 1*12 3
    string=valid_refused  mistral_v1/unfixed/words/a%20b/greedy
    replay=valid_refused  mistral_v1/unfixed/COLLECTION/SCHEMA/INSTANCE/canonical

`table` has the beginning of the hashes of the token table and of the vocabulary. `wrong` has the
wrong ids of one kind in a block of 4096 ids: the distance of each id to the one before, or to the
number of the block; `1*12` stands for twelve distances of 1. Strings and replays are listed if they
are not right. Names are percent-encoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from urllib.parse import quote, unquote_to_bytes

import polars as pl

from ...model.verdicts import InstanceVerdict, Status

_BLOCK = 4096
_HASH = 16
"""Hexadecimal digits of a hash that are kept."""
_T = pl.String()

SCHEMAS: dict[str, dict[str, pl.DataType]] = {
    "standing": dict.fromkeys(("tokenizer", "builder", "target", "axes", "word"), _T),
    "table": dict.fromkeys(("tokenizer", "builder", "word"), _T),
    "wrong": {"tokenizer": _T, "builder": _T, "token": pl.Int64(), "word": _T},
    "string": {
        **dict.fromkeys(("tokenizer", "builder", "grammar"), _T),
        "string": pl.Binary(),
        "split": _T,
        "word": _T,
    },
    "replay": dict.fromkeys(
        ("tokenizer", "builder", "collection", "schema", "instance", "split", "word"), _T
    ),
}
"""The columns of each kind of line; `word` is the value, the others are its key."""


@dataclass(frozen=True)
class Kept:
    """The kept rows of each kind."""

    rows: Mapping[str, pl.DataFrame]

    def only(self, part: Mapping[str, str]) -> Kept:
        """The rows of one builder or target."""
        found: dict[str, pl.DataFrame] = {}
        for kind, rows in self.rows.items():
            fits = {name: value for name, value in part.items() if name in rows.columns}
            found[kind] = rows.filter(**fits) if fits else rows
        return Kept(found)


def of(tables: Mapping[str, pl.DataFrame]) -> Kept:
    """The kept rows of a run, from its tables; a missing table counts as empty."""
    rows = {kind: pl.DataFrame(schema=columns) for kind, columns in SCHEMAS.items()}
    if (standings := tables.get("standings")) is not None:
        rows["standing"] = _select("standing", standings.rename({"standing": "word"}))
    if (tokenizers := tables.get("tokenizers")) is not None:
        made = tokenizers.filter(status=Status.OK)
        hashes = (pl.col(name).str.slice(0, _HASH) for name in ("table_hash", "vocab_hash"))
        rows["table"] = _select(
            "table", made.with_columns(word=pl.concat_str(hashes, separator="/"))
        )
    if (tokens := tables.get("tokens")) is not None:
        rows["wrong"] = _select("wrong", tokens.rename({"damage": "word"}))
    for kind, table in (("string", "strings"), ("replay", "replay")):
        if (found := tables.get(table)) is not None:
            bad = found.filter(pl.col("verdict") != InstanceVerdict.OK)
            rows[kind] = _select(kind, bad.rename({"verdict": "word"}))
    return Kept(rows)


def _select(kind: str, rows: pl.DataFrame) -> pl.DataFrame:
    columns = SCHEMAS[kind]
    chosen = rows.select(pl.col(name).cast(dtype) for name, dtype in columns.items())
    return chosen.drop_nulls("word").unique().sort(*columns, nulls_last=True)


def lines(kept: Kept) -> Iterator[tuple[str, str]]:
    """(word, key) of each line, in the order of the file; see the module."""
    for kind, rows in kept.rows.items():
        if kind == "wrong":
            yield from _wrong_lines(rows)
            continue
        for row in rows.iter_rows(named=True):
            *names, word = row.values()
            yield f"{kind}={word}", "/".join(map(_encoded, names))


def _wrong_lines(rows: pl.DataFrame) -> Iterator[tuple[str, str]]:
    block = (pl.col("token") // _BLOCK * _BLOCK).alias("block")
    order = ["tokenizer", "builder", "word", "block"]
    for names, group in rows.with_columns(block).group_by(order, maintain_order=True):
        tokenizer, builder, word, start = names
        ids = sorted(group["token"].to_list())
        key = "/".join(map(_encoded, (str(tokenizer), str(builder), str(start))))
        yield f"wrong={word}", f"{key}  {' '.join(_deltas(ids, int(str(start))))}"


def _deltas(ids: list[int], start: int) -> Iterator[str]:
    """The distances of ascending ids; equal ones that follow each other as `distance*count`."""
    steps = [after - before for before, after in pairwise([start, *ids])]
    for step, same in groupby(steps):
        n = len(list(same))
        yield f"{step}*{n}" if n > 1 else f"{step}"


def _ids(text: str, start: int) -> Iterator[int]:
    """The ids of `_deltas`. Raises ValueError for other text."""
    token = start
    for part in text.split():
        step, _, n = part.partition("*")
        for _ in range(int(n or 1)):
            token += int(step)
            yield token


@dataclass
class Reader:
    """Collects the lines of a file."""

    found: dict[str, list[tuple[object, ...]]] = field(
        default_factory=lambda: {kind: [] for kind in SCHEMAS}
    )

    def add(self, kind: str, word: str, key: str) -> None:
        """Add a line. Raises ValueError for one that `lines` does not write."""
        columns = SCHEMAS[kind]
        if kind == "wrong":
            head, _, ids = key.partition("  ")
            tokenizer, builder, start = map(_decoded, head.split("/"))
            if start is None:
                raise ValueError("no block")
            rows = [(tokenizer, builder, token, word) for token in _ids(ids, int(start))]
            self.found[kind].extend(rows)
            return
        names = key.split("/")
        if len(names) != len(columns) - 1:
            raise ValueError(f"{len(names)} names")
        values = [
            unquote_to_bytes(name) if dtype == pl.Binary() else _decoded(name)
            for name, dtype in zip(names, columns.values(), strict=False)
        ]
        self.found[kind].append((*values, word))

    def kept(self) -> Kept:
        """All lines."""
        return Kept(
            {
                kind: pl.DataFrame(self.found[kind], schema=columns, orient="row")
                for kind, columns in SCHEMAS.items()
            }
        )


_NULL = "~"
"""Stands for null; a `~` in a name is encoded."""


def _encoded(name: str | bytes | None) -> str:
    if name is None:
        return _NULL
    return quote(name, safe="").replace("~", "%7E")


def _decoded(name: str) -> str | None:
    return None if name == _NULL else unquote_to_bytes(name).decode("utf-8")
