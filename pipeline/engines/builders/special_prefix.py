"""`special_prefix`: put `<s>` before the text and drop its id; the founding document rejects it.

It does not help on SentencePiece: after a special token the tokenizer adds the space again.
"""

from __future__ import annotations

from ...model.errors import BuilderRefused
from ..table import Material, TokenTable
from . import bridge, register


@register
class SpecialPrefix:
    """True bytes; tokens by `llama_tokenize` after the vocabulary's BOS token."""

    name = "special_prefix"
    version = 1

    def build(self, material: Material) -> TokenTable:
        """See the module."""
        vocabulary, raw = material.vocabulary, bridge.raw_tokenize(material.vocab)
        if vocabulary.bos == -1:
            raise BuilderRefused("the vocabulary has no BOS token to put before the text")
        front = vocabulary.texts[vocabulary.bos]
        return bridge.true_table(
            material, lambda data: raw(front + data)[1:], "llama_tokenize_after_bos"
        )
