"""`prefix_strip`: put a newline before the text and drop its tokens; a rejected remedy.

The founding document rejects it. The builder drops as many tokens as the newline alone has. That is
right only if no token spans both the newline and the text: a vocabulary with tokens of several
newlines loses one newline. Specials and U+2581 in the text are as wrong as before.
"""

from __future__ import annotations

from ..table import Material, TokenTable
from . import bridge, register

_SENTINEL = b"\n"


@register
class PrefixStrip:
    """True bytes; tokens by `llama_tokenize` after a newline, without the newline's tokens."""

    name = "prefix_strip"
    version = 1

    def build(self, material: Material) -> TokenTable:
        """See the module."""
        raw = bridge.raw_tokenize(material.vocab)
        n_own = len(raw(_SENTINEL)) if material.survives(_SENTINEL) else 0
        return bridge.true_table(
            material, lambda data: raw(_SENTINEL + data)[n_own:], "llama_tokenize_after_newline"
        )
