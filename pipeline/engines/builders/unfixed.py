"""`unfixed`: llama.cpp's bridge as released, with both defects."""

from __future__ import annotations

from ..table import Material, TokenTable
from . import bridge, register


@register
class Unfixed:
    """Bytes by `llama_detokenize`, tokens by `llama_tokenize`."""

    name = "unfixed"
    version = 1

    def build(self, material: Material) -> TokenTable:
        """See the module."""
        claimed, special = bridge.detokenized_entries(material.vocab)
        return TokenTable(
            claimed=claimed,
            special=special,
            eos=bridge.end_token(material),
            tokenize=bridge.raw_tokenize(material.vocab),
            tokenize_mode="llama_tokenize",
        )
