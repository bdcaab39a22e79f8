"""Libraries that are engines themselves: their own masks, beside llguidance's.

One short file each. They run where builders from released packages run (`foreign_serve`), over
the table that the library itself makes, and are reached through `foreign_engine.ForeignEngine`.
A grammar is a regular expression or a JSON Schema, which all of them know.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Protocol

from pipeline.foreign import Claim, Given, Package

NAMES = ("xgrammar", "outlines_core", "outlines", "lmfe", "gbnf")


class Probe(Protocol):
    """One grammar in one state."""

    def mask(self) -> bytes:
        """The allowed tokens, one bit an id, least significant first, in whole 32-bit words."""
        ...

    def consume(self, token: int) -> bool:
        """Advance by one token; False when it is refused."""
        ...

    def accepting(self) -> bool:
        """Whether the text so far is complete."""
        ...

    def clone(self) -> Probe:
        """The same state, to go on by itself."""
        ...


Compile = Callable[[str, str], Probe]
"""(`regex` or `json`, text) → the grammar's first state; raises what the library raises."""


class Library(Package):
    """A released engine."""

    @abstractmethod
    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """What the library makes of a vocabulary, and its compiler over that."""


_registry: dict[str, Library] = {}


def register(engine: type[Library]) -> type[Library]:
    """Class decorator: make an engine known under its name."""
    made = engine()
    _registry[made.name] = made
    return engine


def get(name: str) -> Library:
    """The engine of that name, one of `NAMES`; its file is imported on first use."""
    if name not in _registry:
        importlib.import_module(f"{__name__}.{name}")
    return _registry[name]


def bits(ids: Iterable[int], n_tokens: int) -> bytes:
    """A mask of these ids."""
    mask = bytearray((n_tokens + 31) // 32 * 4)
    for token in ids:
        mask[token >> 3] |= 1 << (token & 7)
    return bytes(mask)
