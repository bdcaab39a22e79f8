"""`fixed`: llama.cpp's bridge with both defects fixed."""

from __future__ import annotations

from ...model.verdicts import TokenizeMode
from ...system.text import quoted
from ..table import Material, TokenTable
from . import bridge, register


@register
class Fixed:
    """Bytes by `llama_token_to_piece`; `llama_tokenize` if exact on the probes, else greedy."""

    name = "fixed"
    version = 1

    def build(self, material: Material) -> TokenTable:
        """See the module."""
        tokenize = bridge.probed_tokenize(material)
        mode = "llama_tokenize" if tokenize else TokenizeMode.GREEDY.value
        return bridge.true_table(material, tokenize, mode, note=_note(material))


def _note(material: Material) -> str:
    thrown = bridge.throwing_probe(material)
    if thrown is None:
        return ""
    return (
        f"llama_tokenize throws on the probe {quoted(thrown)} of the fix; a bridge that does not "
        "catch it dies"
    )
