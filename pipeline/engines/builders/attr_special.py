"""`attr_special`: special tokens by their attribute, bytes still by `llama_detokenize`.

Follows llama.cpp pull request 15837, which proposes to recognize special tokens by
`llama_token_attr` instead of by an empty piece. It fixes neither defect: bytes and tokenization are
as in `unfixed`.
"""

from __future__ import annotations

from ...vocab.token_types import UNRENDERED, Attr
from ..table import SPECIAL_MARKER, Material, TokenTable
from . import bridge, register

_SPECIAL = UNRENDERED | int(Attr.USER_DEFINED)


@register
class AttrSpecial:
    """`unfixed`, with control, unknown and user-defined tokens marked special."""

    name = "attr_special"
    version = 1

    def build(self, material: Material) -> TokenTable:
        """See the module."""
        shown = material.vocab.detokenize_each(special=True)
        marked = (material.vocabulary.attrs & _SPECIAL) != 0
        special = [bool(mark and text) for mark, text in zip(marked, shown, strict=True)]
        for text, mark in zip(shown, special, strict=True):
            bridge.refuse_long(SPECIAL_MARKER + text if mark else text)
        return TokenTable(
            claimed=shown,
            special=special,
            eos=bridge.end_token(material),
            tokenize=bridge.raw_tokenize(material.vocab),
            tokenize_mode="llama_tokenize",
        )
