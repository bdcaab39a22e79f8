"""`tokenize_fixed`: only defect B is fixed, so that the remaining failures come from defect A."""

from __future__ import annotations

from ...model.verdicts import TokenizeMode
from ..table import Material, TokenTable
from . import bridge, register


@register
class TokenizeFixed:
    """Bytes by `llama_detokenize`; `llama_tokenize` if it is exact on the probes, else greedy."""

    name = "tokenize_fixed"
    version = 1

    def build(self, material: Material) -> TokenTable:
        """See the module."""
        claimed, special = bridge.detokenized_entries(material.vocab)
        tokenize = bridge.probed_tokenize(material)
        return TokenTable(
            claimed=claimed,
            special=special,
            eos=bridge.end_token(material),
            tokenize=tokenize,
            tokenize_mode="llama_tokenize" if tokenize else TokenizeMode.GREEDY.value,
        )
