"""`grammars`: a folder of grammar files, Lark (`.lark`) or GBNF (`.gbnf`); no instances.

GBNF is turned into Lark by llguidance's own converter, so that it is judged as llguidance would
run it, and not by llama.cpp's GBNF sampler, which no token table stands in front of.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import SuiteError
from pipeline.importers import Entry, Item, register
from pipeline.suites import Grammar


@register
class Grammars:
    """See the module."""

    name = "grammars"
    suffixes: tuple[str, ...] = (".lark", ".gbnf")

    def items(self, file: Path, stem: str) -> Iterator[Item]:
        """One item a file, its suffix kept: one grammar may be there in both notations."""
        yield Item(f"{stem}{file.suffix}", file, size=file.stat().st_size)

    def entry(self, item: Item) -> Entry:
        """See `Layout.entry`."""
        try:
            text = item.file.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise SuiteError(f"{item.file}: cannot be read: {error}.") from None
        if item.file.suffix == ".gbnf":
            text = _lark(item.file, text)
        if "\0" in text:
            raise SuiteError(f"{item.file}: has a NUL character, which no grammar can hold.")
        return Entry(Grammar("lark", text))


def _lark(file: Path, gbnf: str) -> str:
    from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark  # loads the engine: not above

    try:
        return gbnf_to_lark(gbnf)
    except GbnfToLarkError as error:
        said = " ".join(str(error).split())
        raise SuiteError(f"{file}: is not GBNF that llguidance can convert: {said}.") from None
