"""The tables of a run: their columns as data, and the one path by which rows become Parquet.

Workers know neither polars nor these schemas; they send rows as JSON,
bytes as Latin-1 text (`worker.Channel.rows`).
The parts of a run, whoever wrote them, are merged here, once, atomically.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.errors import TablesError

SCHEMA_VERSION = 1
"""Counted up whenever a column changes its name, type or meaning.

A column that is only added needs no new version: where an older file lacks it, it is read as null.
"""

MIGRATIONS: dict[int, Callable[[str, pl.LazyFrame], pl.LazyFrame]] = {}
"""For each older version what turns a table of it, by name, into one of the next version.

A version whose chain to `SCHEMA_VERSION` has a gap cannot be read any more. `tests/fixtures/`
holds a small run of every version.
"""

_S, _I, _B, _Y = pl.String(), pl.Int64(), pl.Boolean(), pl.Binary()
_IDS = pl.List(pl.Int32())
_TEXTS = pl.List(pl.String())

SCHEMAS: dict[str, dict[str, pl.DataType]] = {
    "cells": {
        "target": _S,
        "model": _S,
        "tokenizer": _S,
        "vocab_type": _S,
        "builder": _S,
        "suite": _S,
        "case": _S,
        "repeat": _I,
        "cell_key": _S,
        "cell_hash": _S,
        "verdict": _S,
        "cause": _S,
        "text_valid": _B,
        "output": _Y,
        "n_tokens": _I,
        "n_forced": _I,
        "n_non_canonical": _I,
        "ended": _S,
        "lost_at_step": _I,
        "culprit_step": _I,
        "n_legal_bytes": _I,
        "engine_error": _S,
        "n_engine_errors": _I,
        "http_status": _I,
        "reason": _S,
        "tokenize": _S,
        "prefix_scheme": _S,
        "prompt_ids": _IDS,
        "model_sha256": _S,
        "vocab_hash": _S,
        "table_hash": _S,
        "grammar_hash": _S,
        "case_hash": _S,
        "engine": _S,
        "llama_cpp": _S,
        "llama_lib_sha256": _S,
        "llguidance_lib_sha256": _S,
        "server": _S,
        "seed": _I,
        "device": _S,
    },
    "steps": {
        "model": _S,
        "tokenizer": _S,
        "builder": _S,
        "suite": _S,
        "case": _S,
        "repeat": _I,
        "cell_key": _S,
        "step": _I,
        "token": _I,
        "attribute": _S,
        "claimed": _Y,
        "true": _Y,
        "rendered": _Y,
        "n_allowed": _I,
        "origin": _S,
    },
    "tokenizers": {
        "tokenizer": _S,
        "vocab_type": _S,
        "builder": _S,
        "status": _S,
        "reason": _S,
        "n_tokens": _I,
        "n_wrong": _I,
        "n_lost_leading_space": _I,
        "n_inner_space_lost": _I,
        "n_emptied": _I,
        "n_run_shortened": _I,
        "n_other": _I,
        "n_normal": _I,
        "n_normal_wrong": _I,
        "n_special": _I,
        "n_mark_wrong": _I,
        "claimed_end": _I,
        "end_is_wrong": _B,
        "tokenize": _S,
        "tokenize_hash": _S,
        "n_disagreements": _I,
        "add_space_prefix": _B,
        "prefix_scheme": _S,
        "clean_spaces": _B,
        "eos": _I,
        "eot": _I,
        "end_ids": _IDS,
        "vocab_hash": _S,
        "table_hash": _S,
        "made_by": _S,
    },
    "tokens": {
        "tokenizer": _S,
        "builder": _S,
        "token": _I,
        "attribute": _S,
        "true": _Y,
        "claimed": _Y,
        "damage": _S,
        "marked_special": _B,
    },
    "masks": {
        "tokenizer": _S,
        "builder": _S,
        "probe": _S,
        "grammar": _S,
        "n_allowed": _I,
        "n_bad": _I,
        "n_missing": _I,
        "allowed_ids": _IDS,
        "bad_ids": _IDS,
        "engine_error": _S,
    },
    "exactness": {
        "tokenizer": _S,
        "builder": _S,
        "probe": _Y,
        "ids": _IDS,
        "got": _Y,
        "verdict": _S,
        "class": _S,
    },
    "specials": {
        "tokenizer": _S,
        "builder": _S,
        "token": _I,
        "attribute": _S,
        "true": _Y,
        "marked_special": _B,
        "is_end": _B,
        "in_json_string": _B,
        "in_free_text": _B,
        "verdict": _S,
    },
    "states": {
        "tokenizer": _S,
        "builder": _S,
        "grammar": _S,
        "walk": _S,
        "step": _I,
        "verdict": _S,
        "n_allowed": _I,
        "n_unsound": _I,
        "n_incomplete": _I,
        "n_incomplete_forced": _I,
        "ids": _IDS,
        "engine_free": _S,
        "reason": _S,
    },
    "walks": {
        "tokenizer": _S,
        "builder": _S,
        "grammar": _S,
        "walk": _S,
        "strategy": _S,
        "n_steps": _I,
        "n_non_canonical": _I,
        "ended": _S,
        "accepting": _B,
        "text": _Y,
        "objection": _S,
        "verdict": _S,
    },
    "reproducers": {
        "tokenizer": _S,
        "builder": _S,
        "name": _S,
        "verdict": _S,
        "kind": _S,
        "grammar": _S,
        "tokens": _IDS,
        "ids": _IDS,
        "suite_file": _S,
        "report": _S,
    },
    "engines": {
        "tokenizer": _S,
        "engine": _S,
        "made_by": _S,
        "grammar": _S,
        "walk": _S,
        "step": _I,
        "verdict": _S,
        "n_allowed": _I,
        "n_unsound": _I,
        "n_incomplete": _I,
        "engine_free": _S,
        "reason": _S,
    },
    "engine_findings": {
        "tokenizer": _S,
        "engine": _S,
        "made_by": _S,
        "verdict": _S,
        "kind": _S,
        "n_states": _I,
        "n_ids": _I,
        "grammar": _S,
        "tokens": _IDS,
        "ids": _IDS,
        "report": _S,
    },
    "prefix": {
        "tokenizer": _S,
        "text": _S,
        "implementation": _S,
        "scheme": _S,
        "ids": _IDS,
        "pieces": _TEXTS,
        "discriminating": _B,
    },
    "flags": {
        "tokenizer": _S,
        "text": _S,
        "add_special": _B,
        "parse_special": _B,
        "ids": _IDS,
        "pieces": _TEXTS,
        "space_added": _B,
    },
    "templates": {
        "tokenizer": _S,
        "conversation": _S,
        "text": _S,
        "reference": _S,
        "declared": _B,
        "llama_ids": _IDS,
        "ids": _IDS,
        "first_difference": _I,
        "llama_pieces": _TEXTS,
        "pieces": _TEXTS,
        "reason": _S,
    },
    "strings": {
        "tokenizer": _S,
        "builder": _S,
        "grammar": _S,
        "string": _Y,
        "split": _S,
        "wanted": _B,
        "accepted": _B,
        "failed_at": _I,
        "verdict": _S,
        "cause": _S,
    },
    "replay": {
        "tokenizer": _S,
        "builder": _S,
        "collection": _S,
        "schema": _S,
        "instance": _S,
        "split": _S,
        "valid": _B,
        "verdict": _S,
        "cause": _S,
        "n_tokens": _I,
        "failed_at": _I,
        "culprit_step": _I,
        "culprit": _I,
        "claimed": _Y,
        "true": _Y,
        "reason": _S,
        "grammar_hash": _S,
        "table_hash": _S,
    },
    "replay_times": {
        "tokenizer": _S,
        "builder": _S,
        "collection": _S,
        "schema": _S,
        "n_bytes": _I,
        "n_masks": _I,
        "first_mask_us": _I,
        "mask_p50_us": _I,
        "mask_p90_us": _I,
        "mask_p99_us": _I,
        "mask_max_us": _I,
        "engine_us": _I,
    },
}

SORT_KEYS: dict[str, list[str]] = {
    "cells": ["cell_key", "repeat"],
    "steps": ["cell_key", "repeat", "step"],
    "tokenizers": ["tokenizer", "builder"],
    "tokens": ["tokenizer", "builder", "token"],
    "masks": ["tokenizer", "builder", "probe"],
    "exactness": ["tokenizer", "builder", "probe"],
    "specials": ["tokenizer", "builder", "token"],
    "states": ["tokenizer", "builder", "grammar", "walk", "step"],
    "walks": ["tokenizer", "builder", "walk"],
    "reproducers": ["tokenizer", "builder", "name"],
    "engines": ["tokenizer", "engine", "grammar", "walk", "step"],
    "engine_findings": ["tokenizer", "engine", "verdict", "kind"],
    "strings": ["tokenizer", "builder", "grammar", "string", "split"],
    "replay": ["tokenizer", "builder", "collection", "schema", "instance", "split"],
    "replay_times": ["tokenizer", "builder", "collection", "schema"],
    "prefix": ["tokenizer", "implementation", "text"],
    "flags": ["tokenizer", "text", "add_special", "parse_special"],
    "templates": ["tokenizer", "conversation", "reference"],
}
"""The order of rows, so that the same run gives the same file."""

REPEATABLE = tuple(table for table in SCHEMAS if table not in {"cells", "steps"})
"""Tables whose rows several jobs of one run may give alike (two models around one tokenizer)."""


def frame(table: str, rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Rows of JSON values as a table; every row must have exactly the table's columns."""
    schema = SCHEMAS[table]
    columns: dict[str, list[Any]] = {name: [] for name in schema}
    for row in rows:
        if row.keys() != schema.keys():
            odd = sorted(row.keys() ^ schema.keys())
            raise ValueError(f"a row of {table!r} does not have its columns: {', '.join(odd)}")
        for name, value in row.items():
            columns[name].append(value)
    for name, kind in schema.items():
        if kind == pl.Binary():
            columns[name] = [v if v is None else v.encode("latin-1") for v in columns[name]]
    return pl.DataFrame(columns, schema=schema)


_AT_ONCE = 50_000
"""Rows that are turned into columns together."""


def merge(parts: Iterable[Path], out: Path) -> dict[str, int]:
    """Merge part files into the run's Parquet tables; the number of rows of each.

    Every table is written, be it empty, and replaced atomically.
    """
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in SCHEMAS}
    frames: dict[str, list[pl.DataFrame]] = {table: [] for table in SCHEMAS}
    for part in sorted(parts):
        for message in settled(part):
            held = rows[table := message["table"]]
            held.extend(message["rows"])
            if len(held) >= _AT_ONCE:  # as columns they take a fraction of the memory
                frames[table].append(frame(table, held))
                held.clear()
    counts: dict[str, int] = {}
    for table in SCHEMAS:
        data = pl.concat([*frames.pop(table), frame(table, rows.pop(table))])
        if table in REPEATABLE:
            data = data.unique(SORT_KEYS[table], keep="first", maintain_order=True)
        data = data.sort(SORT_KEYS[table], maintain_order=True)
        write(data, out / f"{table}.parquet")
        counts[table] = data.height
    return counts


def message(line: str) -> dict[str, Any] | None:
    """A worker's line as a message; None for anything else that a process may print."""
    try:
        found: Any = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "type" in found else None  # pyright: ignore[reportUnknownVariableType]


def messages(part: Path) -> Iterator[dict[str, Any]]:
    """The messages of a part file; a torn last line, left by a kill, is not a message."""
    with part.open(encoding="utf-8") as lines:
        for line in lines:
            found = message(line) if line.endswith("\n") else None
            if found is not None:
                yield found


def settled(part: Path) -> Iterator[dict[str, Any]]:
    """The `rows` of units that are done, each unit's once; the rest is of no account."""
    held: list[dict[str, Any]] = []
    seen: set[tuple[str, ...]] = set()
    for found in messages(part):
        if found["type"] == "rows":
            held.append(found)
            continue
        if found["type"] == "done" and (unit := tuple(found["unit"])) not in seen:
            seen.add(unit)
            yield from held
        held = []


def write(data: pl.DataFrame, path: Path) -> None:
    """Write a table under a temporary name, then put it in place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        data.write_parquet(temporary, compression="zstd", metadata={"schema": str(SCHEMA_VERSION)})
        temporary.replace(path)
    except pl.exceptions.ComputeError as error:  # as polars tells of a full disk
        raise OSError(errno.EIO, str(error)) from None
    finally:
        temporary.unlink(missing_ok=True)


def readable(version: object) -> bool:
    """Whether tables of this schema version can be read: today's, or with a way to today's."""
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        return False
    return all(step in MIGRATIONS for step in range(version, SCHEMA_VERSION))


def scan(run: Path, table: str) -> pl.LazyFrame:
    """One table of a run in today's columns, whichever version wrote it, not yet read."""
    path = run / f"{table}.parquet"
    if not path.is_file():
        raise TablesError(f"{run} holds no {table}.parquet; it is not a whole run.")
    try:
        said = pl.read_parquet_metadata(path).get("schema", "")
        data = pl.scan_parquet(path, glob=False)
        there = data.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise damaged(path, error) from None
    version = int(said) if said.isdecimal() else None
    if version is None or not readable(version):
        raise TablesError(
            f"{path} has schema version {said or 'none'}; this byte-exact reads version "
            f"{SCHEMA_VERSION} and what it can convert to it. Make the run anew, or use the "
            "byte-exact that wrote it."
        )
    for step in range(version, SCHEMA_VERSION):
        data = MIGRATIONS[step](table, data)
        there = data.collect_schema().names()
    later = {name: kind for name, kind in SCHEMAS[table].items() if name not in there}
    return data.with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in later.items())


def read(run: Path, table: str, columns: Iterable[str] | None = None) -> pl.DataFrame:
    """One table of a run; only these columns, if they are given."""
    data = scan(run, table)
    return collect(data if columns is None else data.select(columns), run, table)


def collect(data: pl.LazyFrame, run: Path, table: str) -> pl.DataFrame:
    """Read what was made of a `scan`."""
    try:
        return data.collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise damaged(run / f"{table}.parquet", error) from None


def damaged(path: Path, error: BaseException) -> TablesError:
    """What is said of a Parquet file that cannot be read."""
    reason = " ".join(str(error).split())[:200]
    return TablesError(f"{path} is damaged or cut short ({reason}). Make the run anew.")
