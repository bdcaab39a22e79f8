"""The split into tokens that a model was trained on, where it can be made byte-exact."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property

from ..engines.builders import bridge
from ..engines.table import Material, Tokenize
from ..vocab.sentencepiece.encoder import SpmEncoder
from ..vocab.spelling import Spelling
from ..vocab.token_types import VocabType


class Canonical:
    """The canonical split of one vocabulary."""

    def __init__(self, material: Material, spelling: Spelling) -> None:
        self._material = material
        self._vocabulary = material.vocabulary
        self._spelling = spelling

    @cached_property
    def exact_runtime(self) -> bool:
        """Whether `llama_tokenize` returns exactly the bytes of every founding probe."""
        return bridge.probed_tokenize(self._material) is not None

    @cached_property
    def tokenize(self) -> Tokenize | None:
        """The byte-exact split; None if there is none.

        For SPM vocabularies this is SentencePiece without its prefix; else it is `llama_tokenize`
        if that is exact (`exact_runtime`).
        """
        vocabulary = self._vocabulary
        if vocabulary.type is VocabType.SPM and not vocabulary.tokenize_can_throw:
            with suppress(ValueError):  # a damaged file: a byte without a token, a score of NaN
                return SpmEncoder.lossless(vocabulary).encode
        return bridge.raw_tokenize(self._material.vocab) if self.exact_runtime else None

    def pieces(self, text: bytes) -> list[bytes]:
        """The bytes of each token of the canonical split; without one, of the longest tokens."""
        vocabulary = self._vocabulary
        if self.tokenize is not None and (
            vocabulary.type is VocabType.SPM or not vocabulary.may_throw(text)
        ):
            pieces = [vocabulary.true_bytes[token] for token in self.tokenize(text)]
            if b"".join(pieces) == text:
                return pieces
        return self._spelling.longest(text)
