"""`outlines`: what outlines tells its engine of a llama.cpp model.

A token's piece is decoded with replacements and becomes the key of a dict, so that of several
tokens with one text all but the last are lost (field case U-05). What is read here is the
vocabulary that its default engine for llama.cpp gets.
"""

from __future__ import annotations

from typing import Any

from pipeline.builders import register
from pipeline.foreign import Claim, Foreign, Given, library


@register
class Outlines(Foreign):
    """`outlines.from_llamacpp`, and the vocabulary its outlines-core backend makes of it."""

    name = "outlines"
    package = "outlines"
    extra = "outlines"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        return enter(given)[0]


def enter(given: Given) -> tuple[Claim, Any]:
    """The claim, and the `outlines_core.Vocabulary` it was read from."""
    from pipeline import llama

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
