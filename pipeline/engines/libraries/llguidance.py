"""llguidance's own builders: for a llama.cpp vocabulary, and for a `tokenizer.json`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..builders import register
from .package import Claim, Foreign, Given, library


@register
class LlguidanceLlamacpp(Foreign):
    """`lltokenizer_from_vocab`: bytes by `llama_token_to_piece`, tokens by `llama_tokenize`."""

    name = "llguidance_llamacpp"
    package = "llguidance"

    def claim(self, given: Given) -> Claim:
        """`llguidance.llamacpp` on the file as llama-cpp-python loads it."""
        from ...native import llama  # loads llama.cpp, which `llguidance_hf` does not need

        wrapper = llama.high_level(given.file)
        tokenizer = library("llguidance.llamacpp").lltokenizer_from_vocab(llama.vocab_of(wrapper))
        return replace(_read(tokenizer, len(given.texts)), owner=wrapper)


@register
class LlguidanceHf(Foreign):
    """`LLTokenizer(json)`, as `llguidance.hf.from_tokenizer` calls it."""

    name = "llguidance_hf"
    package = "llguidance"

    def claim(self, given: Given) -> Claim:
        """Uses the model's own file if `builder.tokenizer_json` is set, else one derived from the
        GGUF."""
        n_tokens = len(given.texts)
        tokenizer = library("llguidance").LLTokenizer(
            given.document(), n_vocab=n_tokens, eos_token=given.eos
        )
        return _read(tokenizer, n_tokens)


def _read(tokenizer: Any, n_tokens: int) -> Claim:
    """The claim of an `LLTokenizer`.

    The marker of special tokens is the byte 0xFF. So `decode_bytes` reads the token of the single
    byte 0xFF as a special token without a name, and returns nothing. Tokenizing that byte gives
    the token's id.
    """
    claimed = [tokenizer.decode_bytes([token]) for token in range(n_tokens)]
    special = [bool(tokenizer.is_special_token(token)) for token in range(n_tokens)]
    for token in tokenizer.tokenize_bytes(b"\xff"):
        if not claimed[token]:
            claimed[token], special[token] = b"\xff", False
    return Claim(claimed, special, tokenizer.eos_token, tokenizer.tokenize_bytes)
