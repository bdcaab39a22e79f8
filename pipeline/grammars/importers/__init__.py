"""Importers: read other projects' collections in place. One file per layout, registered by name.

Listing a folder of ten thousand schemas does not read them. An `Item` is a stable id and a place;
its `Entry` is read later, one at a time, by the worker that needs it. Items are sorted by id, so
that every machine chooses the same ones.

To add a layout, add a file here with a `Layout` decorated by `@register`, its
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
    """The place of one grammar in a collection; its content is not read yet."""

    id: str
    """The file's path in the collection without its suffix, plus `#n` if the file has several."""
    file: Path
    number: int = 0
    """The item's number in the file."""
    size: int = 0
    """Size in bytes, as an estimate of the work."""
    offset: int = 0
    """The byte of the file where the item begins, for layouts that need it; else 0."""


@dataclass(frozen=True)
class Instance:
    """A complete text that a grammar must accept (`valid`) or reject."""

    id: str
    text: bytes
    valid: bool


@dataclass(frozen=True)
class Entry:
    """The content of an item. Without instances, replay only tests compiling and the first mask."""

    grammar: Grammar | None
    """None if the item has no grammar; `read` then substitutes `grammar.constraint`."""
    instances: tuple[Instance, ...] = ()
    prompt: str | None = None
    """None if the item has no prompt; the run then uses `grammar.prompt`."""
    max_tokens: int = DEFAULT_MAX_TOKENS


class Layout(Protocol):
    """The file format of a kind of collection."""

    name: str
    suffixes: tuple[str, ...]
    prompted: bool
    """Whether its items have prompts, so that runs generate from them by default."""

    def items(self, file: Path, stem: str) -> Iterator[Item]:
        """The items of a file, in file order; none if the file has another content."""
        ...

    def entry(self, item: Item) -> Entry:
        """Read an item. Raises SuiteError."""
        ...


_layouts: Registry[Layout] = Registry("layout", __name__)
register, get = _layouts.register, _layouts.get


@cache
def find(layout: str, root: Path) -> tuple[Item, ...]:
    """Every item in a folder and its subfolders, or in one file, sorted by id. Raises SuiteError.

    Cached, so that the jobs of a command list a folder once.
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
            f"{root}: has no items of the layout {layout} (files {', '.join(how.suffixes)})."
        )
    twice = next((name for name, n in Counter(item.id for item in items).items() if n > 1), None)
    if twice is not None:
        raise SuiteError(f"{root}: two items have the id {twice!r}; rename a file.")
    return tuple(sorted(items, key=_place))


def _place(item: Item) -> tuple[str, int, str]:
    """The sort key: by file, then by the order in the file."""
    return item.id.partition("#")[0], item.number, item.id


def read(layout: str, item: Item, constraint: str | None) -> Entry:
    """The content of an item; without a grammar it gets the one of the file `constraint`.

    Raises SuiteError, also if neither has a grammar.
    """
    entry = get(layout).entry(item)
    if entry.grammar is None:
        if constraint is None:
            raise SuiteError(
                f"{item.file}: {item.id} has no grammar. Add one to the item, or set "
                "grammar.constraint=FILE for all items without a grammar."
            )
        return replace(entry, grammar=_constraint(Path(constraint)))
    return entry


@cache
def _constraint(file: Path) -> Grammar:
    """The grammar in a file: a JSON Schema, Lark or GBNF, by its suffix."""
    layout = "json_schemas" if file.suffix == ".json" else "grammars"
    (item,) = find(layout, file)
    grammar = get(layout).entry(item).grammar
    assert grammar is not None
    return grammar


def choose(ids: Sequence[str], limit: int | None, sample: int | None, seed: int) -> list[str]:
    """Draw `sample` ids at random by `seed`, keep their order, and take the first `limit`."""
    places = range(len(ids))
    if sample is not None and sample < len(ids):
        places = sorted(random.Random(seed).sample(places, sample))
    return [ids[place] for place in places][:limit]


def content_hash(items: Sequence[Item]) -> str:
    """sha256 (hex) of the ids of these items and of their files. Raises SuiteError."""
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
    """The value of an imported JSON file, as Python's json reads it. Raises SuiteError."""
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise SuiteError(f"{file}: is larger than {_MAX_FILE_BYTES >> 20} MiB.")
        return json.loads(file.read_bytes())
    except OSError as error:
        raise SuiteError(f"{file}: cannot be read: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{file}: is not valid JSON: {error}.") from None
