"""`exact`: true bytes, and a tokenization that gives every byte string back, so that forcing works.

SentencePiece vocabularies are tokenized by our own encoder without a prefix (`SpmEncoder`),
byte-level BPE ones by `llama_tokenize` with specials left as text. UGM and WPM cannot be exact:
their tokenizers fold characters (NFKC, lower case, white space) before they look for tokens, so
there is no canonical split of the bytes themselves; they stay greedy, and the table says so.
"""

from __future__ import annotations

from ...vocab.sentencepiece.encoder import SpmEncoder
from ...vocab.spelling import Spelling
from ...vocab.token_types import VocabType
from ..table import Material, Tokenize, TokenTable
from . import bridge, register

_GREEDY = {
    VocabType.WPM: "WPM lower-cases and drops white space before it looks for tokens",
    VocabType.UGM: "UGM folds characters and white space before it looks for tokens",
}


@register
class Exact:
    """Bytes by `llama_token_to_piece`, tokens by a byte-exact encoder where there can be one."""

    name = "exact"
    version = 1

    def build(self, material: Material) -> TokenTable:
        """See the module."""
        tokenize, mode, note = _tokenization(material)
        return bridge.true_table(material, tokenize, mode, note=note, guarded=True)


def _tokenization(material: Material) -> tuple[Tokenize | None, str, str]:
    """(tokenization, its mode, what to say of it)."""
    kind = material.vocabulary.type
    if kind is VocabType.SPM:
        try:
            return SpmEncoder.lossless(material.vocabulary).encode, "spm_lossless", ""
        except ValueError as error:
            return None, "greedy", f"not byte-exact: {error}"
    if kind is VocabType.BPE and bridge.probed_tokenize(material) is not None:
        return _checked(material), "llama_tokenize_plain", ""
    why = _GREEDY.get(kind, f"{kind} has no byte-exact tokenization here")
    return None, "greedy", f"not byte-exact: {why}"


def _checked(material: Material) -> Tokenize:
    """`llama_tokenize` with specials as text; what it does not give back is spelt greedily."""
    vocabulary, spelling = material.vocabulary, Spelling(material.vocabulary)

    def tokenize(data: bytes) -> list[int]:
        if not vocabulary.may_throw(data):
            ids = material.vocab.tokenize(data, add_special=False, parse_special=False)
            if b"".join(vocabulary.rendered[token] for token in ids) == data:
                return ids
        return spelling.greedy(data)

    return tokenize
