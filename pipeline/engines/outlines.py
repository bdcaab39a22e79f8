"""The masks that outlines gives a llama.cpp model: outlines-core over outlines' vocabulary."""

from __future__ import annotations

from pipeline.builders.outlines import enter
from pipeline.engines import Compile, Library, register
from pipeline.engines.outlines_core import compiler
from pipeline.foreign import Claim, Given


@register
class Outlines(Library):
    """outlines' default engine for llama.cpp."""

    name = "outlines"
    package = "outlines"
    extra = "outlines"

    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """See the module."""
        claim, vocabulary = enter(given)
        return claim, compiler(vocabulary, len(given.texts))
