"""`prefix_strip`: a remedy the founding document rejects, a sentinel in front and then cut off.

As many tokens are dropped as the sentinel makes alone. That is right only while no piece spans
the sentinel and the text: a vocabulary with pieces of several newlines loses one, and specials and
U+2581 in the text are as wrong as before.
"""

from __future__ import annotations

from ..table import Material, TokenTable
from . import bridge, register

_SENTINEL = b"\n"


@register
class PrefixStrip:
    """True bytes; tokens by `llama_tokenize` behind a newline, without the newline's own."""

    name = "prefix_strip"
    version = 1

    def build(self, material: Material) -> TokenTable:
        """See the module."""
        raw = bridge.raw_tokenize(material.vocab)
        n_own = len(raw(_SENTINEL)) if material.survives(_SENTINEL) else 0
        return bridge.true_table(
            material, lambda data: raw(_SENTINEL + data)[n_own:], "llama_tokenize_after_newline"
        )
