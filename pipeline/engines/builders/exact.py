"""`exact`: true bytes and a lossless tokenization, so that the engine can force tokens.

SentencePiece vocabularies are tokenized by our own encoder without a prefix (`SpmEncoder`).
Byte-level BPE vocabularies are tokenized by `llama_tokenize` with specials left as text. UGM and
WPM cannot be exact: their tokenizers normalize the text (NFKC, lower case, white space) before they
search tokens, so the bytes have no canonical split. They stay greedy, and the table's note says
why.
"""

from __future__ import annotations

from ...model.verdicts import TokenizeMode
from ...vocab.sentencepiece.encoder import SpmEncoder
from ...vocab.spelling import Spelling
from ...vocab.token_types import VocabType
from ..table import Material, Tokenize, TokenTable
from . import bridge, register

_GREEDY = {
    VocabType.WPM: "WPM lower-cases and drops white space before it searches tokens",
    VocabType.UGM: "UGM normalizes characters and white space before it searches tokens",
}


@register
class Exact:
    """Bytes by `llama_token_to_piece`, tokens by a byte-exact encoder if there is one."""

    name = "exact"
    version = 2

    def build(self, material: Material) -> TokenTable:
        """See the module."""
        tokenize, mode, note = _tokenization(material)
        return bridge.true_table(material, tokenize, mode, note=note, guarded=True)


def _tokenization(material: Material) -> tuple[Tokenize | None, str, str]:
    """(tokenization, its mode, note for the user)."""
    kind = material.vocabulary.type
    if kind is VocabType.SPM:
        try:
            return SpmEncoder.lossless(material.vocabulary).encode, "spm_lossless", ""
        except ValueError as error:
            return None, TokenizeMode.GREEDY.value, f"not byte-exact: {error}"
    if kind is VocabType.BPE and bridge.probed_tokenize(material) is not None:
        return _checked(material), "llama_tokenize_plain", ""
    why = _GREEDY.get(kind, f"{kind} has no byte-exact tokenization here")
    return None, TokenizeMode.GREEDY.value, f"not byte-exact: {why}"


def _checked(material: Material) -> Tokenize:
    """`llama_tokenize` with specials as text; greedy for text that it does not reproduce.

    Bytes that no token spells are left out: no sequence of ids could render them.
    """
    vocabulary, spelling = material.vocabulary, Spelling(material.vocabulary)

    def tokenize(data: bytes) -> list[int]:
        if not vocabulary.may_throw(data):
            ids = material.vocab.tokenize(data, add_special=False, parse_special=False)
            if b"".join(vocabulary.rendered[token] for token in ids) == data:
                return ids
        return spelling.known(data)

    return tokenize
