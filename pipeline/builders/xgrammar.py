"""`xgrammar`: XGrammar's tokenizer info of raw bytes, given the true ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.builders import register
from pipeline.foreign import Claim, Foreign, Given, library


@register
class Xgrammar(Foreign):
    """`TokenizerInfo(true bytes, VocabType.RAW)`."""

    name = "xgrammar"
    package = "xgrammar"
    extra = "xgrammar"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        return read(info(given, given.true_bytes, "RAW"), given)


def info(given: Given, vocabulary: Sequence[bytes], kind: str) -> Any:
    """A `TokenizerInfo`, told every id on which the runtime stops."""
    module = library("xgrammar")
    return module.TokenizerInfo(
        list(vocabulary),
        module.VocabType[kind],
        vocab_size=len(vocabulary),
        stop_token_ids=given.end_ids,
    )


def read(made: Any, given: Given) -> Claim:
    """What a `TokenizerInfo` holds."""
    claimed: list[bytes] = list(made.decoded_vocab)
    ends: list[int] = made.stop_token_ids
    apart = {*ends, *made.special_token_ids}
    special = [token in apart and bool(claim) for token, claim in enumerate(claimed)]
    eos = given.eos if given.eos in ends else next(iter(ends), -1)
    return Claim(claimed, special, eos)
