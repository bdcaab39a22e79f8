"""Prompts as ids, under the prefix scheme that the tokenizer declares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..model.errors import PipelineError
from ..native.llama import Vocab
from ..vocab.prefix_schemes import AUTO, SpmPrefixScheme, declared
from ..vocab.sentencepiece.encoder import SpmEncoder
from ..vocab.token_types import VocabType
from ..vocab.vocabulary import Vocabulary
from .request import prompt_ids


@dataclass(frozen=True)
class Prompts:
    """Encodes the prompts of one tokenizer as ids."""

    vocab: Vocab
    vocabulary: Vocabulary
    tokenizer: str
    """Its name, for error messages."""
    wanted: str = AUTO
    """The setting `tokenizer.prefix_scheme`."""
    is_gguf: bool = True
    sha256: str | None = None
    """sha256 of the tokenizer's file."""

    def ids(self, prompt: str) -> tuple[int, ...]:
        """The ids of a prompt; see `request.prompt_ids`."""
        return prompt_ids(self.vocab, self.vocabulary, self.encoder, prompt)

    @cached_property
    def scheme(self) -> SpmPrefixScheme | None:
        """The prefix scheme of a SentencePiece vocabulary; None for any other.

        Raises `PipelineError` if one is declared for a vocabulary without such a prefix.
        """
        if self.vocabulary.type is not VocabType.SPM:
            if self.wanted not in (AUTO, SpmPrefixScheme.NONE):
                raise PipelineError(
                    f"tokenizer.prefix_scheme={self.wanted} applies to SentencePiece vocabularies "
                    f"only, and the vocabulary of {self.tokenizer} is of type "
                    f"{self.vocabulary.type}. Remove the setting."
                )
            return None
        return declared(
            self.wanted,
            adds_prefix=self.vocabulary.add_space_prefix,
            is_gguf=self.is_gguf,
            sha256=self.sha256,
        )

    @cached_property
    def encoder(self) -> SpmEncoder | None:
        """The encoder of prompts; None if llama.cpp encodes them.

        Raises `PipelineError` for a damaged vocabulary that has no such encoder.
        """
        if self.scheme is None or self.scheme is self._native_scheme:
            return None
        try:
            return SpmEncoder(self.vocabulary, self.scheme)
        except ValueError as error:
            raise PipelineError(
                f"tokenizer.prefix_scheme={self.scheme}: {self.tokenizer} cannot be encoded "
                f"under it: {error}. Leave it to llama.cpp with tokenizer.prefix_scheme=auto, or "
                "repair the file."
            ) from None

    @property
    def _native_scheme(self) -> SpmPrefixScheme:
        """The scheme that llama.cpp itself follows."""
        return declared(AUTO, adds_prefix=self.vocabulary.add_space_prefix, is_gguf=True)
