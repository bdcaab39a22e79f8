"""The split that a model was trained on, as far as it is byte-exact."""

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
        """Whether `llama_tokenize` itself gives the founding probes back to the byte."""
        return bridge.probed_tokenize(self._material) is not None

    @cached_property
    def tokenize(self) -> Tokenize | None:
        """The split, byte-exact; None if there is none.

        SentencePiece without its prefix, or `llama_tokenize` if it gives the probes back.
        """
        vocabulary = self._vocabulary
        if vocabulary.type is VocabType.SPM and not vocabulary.tokenize_can_throw:
            with suppress(ValueError):  # a damaged file: a byte without a token, a score of NaN
                return SpmEncoder.lossless(vocabulary).encode
        return bridge.raw_tokenize(self._material.vocab) if self.exact_runtime else None

    def pieces(self, text: bytes) -> list[bytes]:
        """The canonical split of a text, else the longest token at each place."""
        vocabulary = self._vocabulary
        if self.tokenize is not None and (
            vocabulary.type is VocabType.SPM or not vocabulary.may_throw(text)
        ):
            pieces = [vocabulary.true_bytes[token] for token in self.tokenize(text)]
            if b"".join(pieces) == text:
                return pieces
        return self._spelling.longest(text)
