"""`no_special_prefix`: `is_prev_special = add_special`, a remedy the founding document rejects.

It is llama.cpp with that one line changed: it adds no space at the beginning of a text unless it
adds special tokens. Plain text keeps its bytes. But after a special token the space is still added,
and every other caller with `add_special=false` gets different ids than before. Our encoder
simulates it: apart from that line it equals `llama_tokenize`. Other vocabulary types do not change.
"""

from __future__ import annotations

from ...model.errors import BuilderRefused
from ...vocab.prefix_schemes import AUTO, declared
from ...vocab.sentencepiece.encoder import SpmEncoder
from ...vocab.token_types import VocabType
from ..table import Material, TokenTable
from . import bridge, register


@register
class NoSpecialPrefix:
    """True bytes; tokens by `llama_tokenize` as it would be with that line changed."""

    name = "no_special_prefix"
    version = 1

    def build(self, material: Material) -> TokenTable:
        """See the module."""
        tokenize, mode = bridge.raw_tokenize(material.vocab), "llama_tokenize"
        if material.vocabulary.type is VocabType.SPM:
            tokenize, mode = _without_first_prefix(material).encode, "llama_tokenize_unprefixed"
        return bridge.true_table(material, tokenize, mode)


def _without_first_prefix(material: Material) -> SpmEncoder:
    """`llama_tokenize(add_special=false, parse_special=true)` with that line changed."""
    vocabulary = material.vocabulary
    if vocabulary.tokenize_can_throw:
        raise BuilderRefused("some bytes have no token: llama_tokenize crashes on them")
    scheme = declared(AUTO, adds_prefix=vocabulary.add_space_prefix, is_gguf=True)
    return SpmEncoder(vocabulary, scheme, at_start=False)
