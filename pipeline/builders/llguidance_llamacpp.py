"""`llguidance_llamacpp`: llguidance's own builder for llama.cpp, `llguidance.llamacpp`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline.builders import register
from pipeline.foreign import Claim, Foreign, Given, library


@register
class LlguidanceLlamacpp(Foreign):
    """`lltokenizer_from_vocab`: bytes by `llama_token_to_piece`, tokens by `llama_tokenize`."""

    name = "llguidance_llamacpp"
    package = "llguidance"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        from pipeline import llama

        wrapper = llama.high_level(given.file)
        tokenizer = library("llguidance.llamacpp").lltokenizer_from_vocab(llama.vocab_of(wrapper))
        return replace(read(tokenizer, len(given.texts)), owner=wrapper)


def read(tokenizer: Any, n_tokens: int) -> Claim:
    """What an `LLTokenizer` holds.

    `decode_bytes` takes the token that is the one byte 0xFF for a special one without a name, its
    marker being that byte; what the tokenizer makes of this byte says which token it is.
    """
    claimed = [tokenizer.decode_bytes([token]) for token in range(n_tokens)]
    special = [bool(tokenizer.is_special_token(token)) for token in range(n_tokens)]
    for token in tokenizer.tokenize_bytes(b"\xff"):
        if not claimed[token]:
            claimed[token], special[token] = b"\xff", False
    return Claim(claimed, special, tokenizer.eos_token, tokenizer.tokenize_bytes)
