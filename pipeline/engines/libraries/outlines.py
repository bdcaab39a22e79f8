"""outlines: the vocabulary that it makes from a llama.cpp model, and its masks.

outlines decodes the piece of each token with replacement characters and uses it as the key of a
dict. So of several tokens with the same text all but the last are lost (field case U-05). The claim
is the vocabulary that its default engine for llama.cpp, outlines-core, gets.
"""

from __future__ import annotations

from typing import Any

from .. import builders
from ..probe import Compile
from . import engines
from .outlines_core import compiler
from .package import Claim, Foreign, Given, Library, library


@builders.register
class OutlinesTable(Foreign):
    """`outlines.from_llamacpp`, and the vocabulary that its outlines-core backend makes."""

    name = "outlines"
    package = "outlines"
    extra = "outlines"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        return _enter(given)[0]


def _enter(given: Given) -> tuple[Claim, Any]:
    """(the claim, the `outlines_core.Vocabulary` from which it was read)."""
    from ...native import llama  # loads llama.cpp

    model = library("outlines").from_llamacpp(llama.high_level(given.file))
    reached = library("outlines.backends.outlines_core").OutlinesCoreBackend(model).vocabulary
    claimed = [b""] * len(given.texts)
    special = [False] * len(given.texts)
    for text in model.tokenizer.vocabulary:
        for token in reached.get(text) or ():
            claimed[token] = text.encode()
    eos = model.tokenizer.eos_token_id
    claimed[eos], special[eos] = model.tokenizer.eos_token.encode(), True
    return Claim(claimed, special, eos), reached


@engines.register
class OutlinesMasks(Library):
    """outlines' default engine for llama.cpp."""

    name = "outlines"
    package = "outlines"
    extra = "outlines"

    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """See the module."""
        claim, vocabulary = _enter(given)
        return claim, compiler(vocabulary, len(given.texts))
