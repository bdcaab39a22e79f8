"""The tables of a run: the only code that writes rows as Parquet, and the only code that reads
them.

Their columns are in `schemas`. Workers use neither polars nor these columns; they send rows as
JSON, bytes as Latin-1 text (`Channel.rows`). All parts of a run are merged here, once and
atomically.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from ...model.errors import TablesError
from ...system import files
from . import released, schemas


def frame(table: str, rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Convert rows of JSON values to a table. Raises ValueError for a row with other columns."""
    schema = schemas.SCHEMAS[table]
    columns: dict[str, list[Any]] = {name: [] for name in schema}
    for row in rows:
        if row.keys() != schema.keys():
            odd = sorted(row.keys() ^ schema.keys())
            raise ValueError(f"a row of {table!r} has missing or unknown columns: {', '.join(odd)}")
        for name, value in row.items():
            columns[name].append(value)
    for name, kind in schema.items():
        if kind == pl.Binary():
            columns[name] = [v if v is None else v.encode("latin-1") for v in columns[name]]
    return pl.DataFrame(columns, schema=schema)


_AT_ONCE = 50_000
"""Number of rows that are converted to columns together."""


def merge(parts: Iterable[Path], out: Path) -> dict[str, int]:
    """Merge part files into the run's Parquet tables; returns the number of rows of each.

    Every table that workers send is written, even an empty one, and replaced atomically, and then
    the table `field`. Raises TablesError for parts
    of another schema version, and OSError if a table cannot be written.
    """
    sent = [table for table in schemas.SCHEMAS if table not in schemas.DERIVED]
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in sent}
    frames: dict[str, list[pl.DataFrame]] = {table: [] for table in sent}
    for part in sorted(parts):
        for message in settled(part):
            held = rows[table := message["table"]]
            held.extend(message["rows"])
            if len(held) >= _AT_ONCE:  # as columns they need a fraction of the memory
                frames[table].append(frame(table, held))
                held.clear()
    counts: dict[str, int] = {}
    for table in sent:
        data = pl.concat([*frames.pop(table), frame(table, rows.pop(table))])
        if table in schemas.REPEATABLE:
            data = data.unique(schemas.SORT_KEYS[table], keep="first", maintain_order=True)
        data = data.sort(schemas.SORT_KEYS[table], maintain_order=True)
        write(data, out / f"{table}.parquet")
        counts[table] = data.height
    counts["field"] = derive_field(out)
    return counts


def derive_field(run: Path) -> int:
    """Derive the table `field` from other tables of the run; returns the number of its rows."""
    data = released.of(read(run, "tokenizers"), read(run, "reproducers"))
    data = data.sort(schemas.SORT_KEYS["field"], maintain_order=True)
    write(data, run / "field.parquet")
    return data.height


def message(line: str) -> dict[str, Any] | None:
    """A worker's line as a message; None for anything else that a process may print."""
    try:
        found: Any = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "type" in found else None  # pyright: ignore[reportUnknownVariableType]


def _messages(part: Path) -> Iterator[dict[str, Any]]:
    """The messages of a part file; a torn last line, left by a kill, is not a message."""
    with part.open(encoding="utf-8") as lines:
        for line in lines:
            found = message(line) if line.endswith("\n") else None
            if found is not None:
                yield found


def of_another_schema(part: Path, job: dict[str, Any]) -> str | None:
    """The reason why the rows of a part file cannot be used; `job` is its first message.

    None if they have the current schema version. A part file of version 1 does not record it.
    """
    version = job.get("schema", 1)
    if version == schemas.SCHEMA_VERSION:
        return None
    return (
        f"{part} has rows of schema version {version}, and this byte-exact writes version "
        f"{schemas.SCHEMA_VERSION}. Finish the run with the byte-exact that started it, or start "
        "a new run with another run.name."
    )


def settled(part: Path) -> Iterator[dict[str, Any]]:
    """Yield the `rows` messages of finished units, each unit once; other messages are ignored.

    Raises TablesError for rows of another schema version: only merged tables are converted.
    """
    held: list[dict[str, Any]] = []
    seen: set[tuple[str, ...]] = set()
    for found in _messages(part):
        if found["type"] == "job" and (objection := of_another_schema(part, found)):
            raise TablesError(objection)
        if found["type"] == "rows":
            held.append(found)
            continue
        if found["type"] == "done" and (unit := tuple(found["unit"])) not in seen:
            seen.add(unit)
            yield from held
        held = []


def write(data: pl.DataFrame, path: Path) -> None:
    """Write a table atomically. Raises OSError if it cannot be written."""
    metadata = {"schema": str(schemas.SCHEMA_VERSION)}
    try:
        with files.replacing(path) as temporary:
            data.write_parquet(temporary, compression="zstd", metadata=metadata)
    except pl.exceptions.ComputeError as error:  # polars reports a full disk in this way
        raise OSError(errno.EIO, str(error)) from None


def readable(version: object) -> bool:
    """Whether tables of this schema version can be read: the current one or one with migrations."""
    if not isinstance(version, int) or version > schemas.SCHEMA_VERSION:
        return False
    return all(step in schemas.MIGRATIONS for step in range(version, schemas.SCHEMA_VERSION))


def scan(run: Path, table: str) -> pl.LazyFrame:
    """One table of a run, lazily, converted to the current columns.

    A column that the file does not have is null; columns unknown to the schema come last. Raises
    TablesError if the file is missing or damaged, or if its schema version cannot be read.
    """
    path = run / f"{table}.parquet"
    if not path.is_file():
        raise TablesError(f"{run} has no {table}.parquet: the run is incomplete.")
    try:
        said = pl.read_parquet_metadata(path).get("schema", "")
        data = pl.scan_parquet(path, glob=False)
        there = data.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _damaged(path, error) from None
    version = int(said) if said.isdecimal() else None
    if version is None or not readable(version):
        raise TablesError(
            f"{path} has schema version {said or 'none'}; this byte-exact reads version "
            f"{schemas.SCHEMA_VERSION} and older versions that it can convert. Run it again, or "
            "use the byte-exact that wrote it."
        )
    for step in range(version, schemas.SCHEMA_VERSION):
        data = schemas.MIGRATIONS[step](table, data)
        there = data.collect_schema().names()
    later = {name: kind for name, kind in schemas.SCHEMAS[table].items() if name not in there}
    data = data.with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in later.items())
    own = schemas.SCHEMAS[table]
    return data.select(*own, *(name for name in there if name not in own))


def read(run: Path, table: str, columns: Iterable[str] | None = None) -> pl.DataFrame:
    """One table of a run, or only these columns of it. Raises TablesError, as `scan` does."""
    data = scan(run, table)
    return collect(data if columns is None else data.select(columns), run, table)


def collect(data: pl.LazyFrame, run: Path, table: str) -> pl.DataFrame:
    """Collect a query over a `scan`. Raises TablesError for a damaged file."""
    try:
        return data.collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise _damaged(run / f"{table}.parquet", error) from None


def _damaged(path: Path, error: BaseException) -> TablesError:
    """The error for a Parquet file that cannot be read."""
    reason = " ".join(str(error).split())[:200]
    return TablesError(f"{path} is damaged or truncated ({reason}). Run it again.")
