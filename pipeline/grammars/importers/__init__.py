"""Importers: suites of others, read where they lie. One short file per layout, registered by name.

A folder of ten thousand schemas is not read to be listed: an `Item` is a stable id and a place,
and only its `Entry` is read, by whoever works on it, one at a time. Which items are wanted is
decided here, alike on every machine: in the order of their ids.

To add a layout: a file here with a `Layout` decorated by `@register`, its
`conf/grammar/<name>.yaml`, and a test. No other file changes.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from ...model.errors import SuiteError
from ...model.registry import Registry
from ..case import DEFAULT_MAX_TOKENS, Grammar

__all__ = [
    "Entry",
    "Instance",
    "Item",
    "Layout",
    "cases",
    "choose",
    "content_hash",
    "find",
    "get",
    "read",
    "read_json",
    "register",
]

_MAX_FILE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Item:
    """One grammar of a collection: where it is, not yet what it says."""

    id: str
    """The file's path below the collection, without its suffix; `#n` for one of several in it."""
    file: Path
    number: int = 0
    """Which of several in the file."""
    size: int = 0
    """Bytes of it, as a measure of the work it makes."""
    offset: int = 0
    """The byte of the file at which it begins, where that is needed to find it."""


@dataclass(frozen=True)
class Instance:
    """A whole text that a grammar must accept or must refuse."""

    id: str
    text: bytes
    valid: bool


@dataclass(frozen=True)
class Entry:
    """What an item says. Without instances only compiling and the first mask can be replayed."""

    grammar: Grammar | None
    """None if the item has no grammar; `read` then substitutes `grammar.constraint`."""
    instances: tuple[Instance, ...] = ()
    prompt: str | None = None
    """None if the item has no prompt; the run then uses `grammar.prompt`."""
    max_tokens: int = DEFAULT_MAX_TOKENS


class Layout(Protocol):
    """How a kind of collection lies on the disk."""

    name: str
    suffixes: tuple[str, ...]
    prompted: bool
    """Whether its items bring prompts, so that runs generate from them without being told to."""

    def items(self, file: Path, stem: str) -> Iterator[Item]:
        """What a file holds, in its order; a file that holds nothing of the kind gives nothing."""
        ...

    def entry(self, item: Item) -> Entry:
        """Read an item; raises SuiteError."""
        ...


_layouts: Registry[Layout] = Registry("layout", __name__)
register, get = _layouts.register, _layouts.get


@cache
def find(layout: str, root: Path) -> tuple[Item, ...]:
    """Every item below a folder (or in one file), in the order of ids; raises SuiteError.

    Remembered, so that the jobs of a command list a folder once.
    """
    if not root.exists():
        raise SuiteError(f"{root}: does not exist; give the collection's folder as grammar.path.")
    how = get(layout)
    files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file())
    items: list[Item] = []
    for file in files:
        if file.suffix in how.suffixes:
            name = file.name if root.is_file() else file.relative_to(root).as_posix()
            items += how.items(file, name.removesuffix(file.suffix))
    if not items:
        raise SuiteError(
            f"{root}: holds nothing of the layout {layout} (files {', '.join(how.suffixes)})."
        )
    twice = next((name for name, n in Counter(item.id for item in items).items() if n > 1), None)
    if twice is not None:
        raise SuiteError(f"{root}: two of its items have the id {twice!r}; rename a file.")
    return tuple(sorted(items, key=_place))


def _place(item: Item) -> tuple[str, int, str]:
    """By file, and within a file as they stand."""
    return item.id.partition("#")[0], item.number, item.id


def read(layout: str, item: Item, constraint: str | None) -> Entry:
    """What an item says, with the grammar of the file `constraint` if it has none.

    Raises SuiteError, also where there is no grammar at all.
    """
    entry = get(layout).entry(item)
    if entry.grammar is None:
        if constraint is None:
            raise SuiteError(
                f"{item.file}: {item.id} has no grammar. Give it one, or one to all that have none "
                "with grammar.constraint=FILE."
            )
        return replace(entry, grammar=_constraint(Path(constraint)))
    return entry


@cache
def _constraint(file: Path) -> Grammar:
    """The one grammar in a file: a JSON Schema, Lark or GBNF, by its suffix."""
    layout = "json_schemas" if file.suffix == ".json" else "grammars"
    (item,) = find(layout, file)
    grammar = get(layout).entry(item).grammar
    assert grammar is not None
    return grammar


def choose(ids: Sequence[str], limit: int | None, sample: int | None, seed: int) -> list[str]:
    """The first `limit` of `sample` ids drawn by `seed`, in the order they have."""
    places = range(len(ids))
    if sample is not None and sample < len(ids):
        places = sorted(random.Random(seed).sample(places, sample))
    return [ids[place] for place in places][:limit]


def content_hash(items: Sequence[Item]) -> str:
    """sha256 (hex) of the ids of these items and of the files they stand in."""
    digest = hashlib.sha256()
    for file in dict.fromkeys(item.file for item in items):
        try:
            with file.open("rb") as data:
                digest.update(hashlib.file_digest(data, "sha256").digest())
        except OSError as error:
            raise SuiteError(f"{file}: cannot be read: {error}.") from None
    for item in items:
        digest.update(f"{item.id}\0".encode())
    return digest.hexdigest()


def read_json(file: Path) -> Any:
    """A JSON file of somebody else's, taken as Python's json takes it; raises SuiteError."""
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise SuiteError(f"{file}: is larger than {_MAX_FILE_BYTES >> 20} MiB.")
        return json.loads(file.read_bytes())
    except OSError as error:
        raise SuiteError(f"{file}: cannot be read: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{file}: is not JSON that can be read: {error}.") from None
