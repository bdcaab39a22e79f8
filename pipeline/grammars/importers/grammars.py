"""`grammars`: a folder of grammar files, Lark (`.lark`) or GBNF (`.gbnf`); no instances.

llguidance's own converter turns GBNF into Lark, so that the grammar is judged as llguidance would
run it. llama.cpp's GBNF sampler is not used, because it reads no token table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ...model.errors import SuiteError
from ..case import Grammar
from . import Entry, Item, register

_IN_LARK = {"/": r"\/", "\n": r"\n", "\\\n": r"\n"}
"""Characters of a regex that must be escaped between Lark's slashes."""


@register
class Grammars:
    """See the module."""

    name = "grammars"
    suffixes: tuple[str, ...] = (".lark", ".gbnf")
    prompted = False

    def items(self, file: Path, stem: str) -> Iterator[Item]:
        """One item per file. Its id keeps the suffix: a grammar may exist in both notations."""
        yield Item(f"{stem}{file.suffix}", file, size=file.stat().st_size)

    def entry(self, item: Item) -> Entry:
        """See `Layout.entry`."""
        try:
            text = item.file.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise SuiteError(f"{item.file}: cannot be read: {error}.") from None
        try:
            return Entry(lark(text) if item.file.suffix == ".lark" else gbnf(text))
        except ValueError as error:
            raise SuiteError(f"{item.file}: {error}.") from None


def lark(text: str) -> Grammar:
    """Lark source as a grammar. Raises ValueError for text with a NUL character."""
    if "\0" in text:
        raise ValueError("has a NUL character, which is not allowed in a grammar")
    return Grammar("lark", text)


def gbnf(text: str) -> Grammar:
    """GBNF as a grammar. Raises ValueError with the reason if it cannot be converted."""
    from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark  # here: it loads the engine

    try:
        return lark(gbnf_to_lark(text))
    except GbnfToLarkError as error:
        said = " ".join(str(error).split())
        raise ValueError(f"llguidance cannot convert this GBNF: {said}") from None


def regex(text: str) -> Grammar:
    """A regular expression in llguidance's dialect as a grammar.

    Raises ValueError for an empty one or one with a NUL character.
    """
    if not text:
        raise ValueError("is an empty regex")

    written = re.sub(r"\\.|/|\n", lambda one: _IN_LARK.get(one[0], one[0]), text, flags=re.DOTALL)
    return lark(f"start: /{written}/")
