"""`special_prefix`: a remedy the founding document rejects, `<s>` put in front and its id dropped.

It does not help on SentencePiece: a special token re-arms the space for what follows it.
"""

from __future__ import annotations

from ...model.errors import BuilderRefused
from ..table import Material, TokenTable
from . import bridge, register


@register
class SpecialPrefix:
    """True bytes; tokens by `llama_tokenize` behind the vocabulary's own first token."""

    name = "special_prefix"
    version = 1

    def build(self, material: Material) -> TokenTable:
        """See the module."""
        vocabulary, raw = material.vocabulary, bridge.raw_tokenize(material.vocab)
        if vocabulary.bos == -1:
            raise BuilderRefused("the vocabulary has no first token to put in front")
        front = vocabulary.texts[vocabulary.bos]
        return bridge.true_table(
            material, lambda data: raw(front + data)[1:], "llama_tokenize_after_bos"
        )
