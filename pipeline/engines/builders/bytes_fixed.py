"""`bytes_fixed`: only defect A is fixed, so that the remaining failures come from defect B."""

from __future__ import annotations

from ..table import Material, TokenTable
from . import bridge, register


@register
class BytesFixed:
    """Bytes by `llama_token_to_piece`, tokens by `llama_tokenize`."""

    name = "bytes_fixed"
    version = 1

    def build(self, material: Material) -> TokenTable:
        """See the module."""
        return bridge.true_table(material, bridge.raw_tokenize(material.vocab), "llama_tokenize")
