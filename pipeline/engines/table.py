"""What a builder makes and what it is given: token tables, materials, the protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from ..system.provenance import framed
from .settings import BuilderSettings

if TYPE_CHECKING:  # a library's own environment builds tables too, and need not have llama.cpp
    from ..native.llama import Vocab
    from ..vocab.vocabulary import Vocabulary

SPECIAL_MARKER = b"\xff"
"""The byte that stands before a special token's text in llguidance's token table."""

Tokenize = Callable[[bytes], list[int]]


@dataclass(frozen=True)
class TokenTable:
    """What a builder claims of a vocabulary; every sequence has one entry per id."""

    claimed: list[bytes] = field(repr=False)
    """Bytes of each token, without the special marker."""
    special: list[bool] = field(repr=False)
    """Whether the token is entered behind the special marker."""
    eos: int
    """The one id the engine may end a text with; -1 for none."""
    tokenize: Tokenize | None
    """Bytes to ids; None lets the engine tokenize greedily and never force."""
    tokenize_mode: str
    """Tables of equal bytes and equal mode make the same native tokenizer."""
    made_by: str = ""
    """The released package and its version; empty for builders of our own."""
    note: str = ""
    """What a user should know of the table, such as why it cannot be exact."""
    guarded: bool = False
    """Whether the tokenization never hands `llama_tokenize` bytes that it may die of."""

    @property
    def calls_llama(self) -> bool:
        """Whether tokenizing calls `llama_tokenize` on whatever it gets, and so may die of it."""
        return self.tokenize is not None and not self.guarded

    @cached_property
    def engine_bytes(self) -> list[bytes]:
        """The entries as the engine gets them, special ones behind their marker."""
        return [
            SPECIAL_MARKER + claim if special else claim
            for claim, special in zip(self.claimed, self.special, strict=True)
        ]

    @cached_property
    def hash(self) -> str:
        """sha256 over the table, the tokenize mode, and whether there is a tokenization at all."""
        facts = self.eos, self.tokenize_mode, self.tokenize is not None
        digest = hashlib.sha256(repr(facts).encode())
        digest.update(framed(self.engine_bytes))
        return digest.hexdigest()


@dataclass(frozen=True)
class Material:
    """What a builder may look at: the vocabulary as read, and the live llama.cpp vocabulary."""

    vocabulary: Vocabulary
    vocab: Vocab
    survives: Callable[[bytes], bool]
    """Whether `llama_tokenize` of these bytes returns at all; tried in a process of its own
    where the vocabulary makes it doubtful."""
    outside: BuilderSettings = field(default_factory=BuilderSettings)


class Builder(Protocol):
    """Vocabulary → TokenTable. Raises `BuilderRefused` with a reason."""

    name: str
    version: int
    """Counted up whenever the builder's outcome can change; part of `cell_hash`."""

    def build(self, material: Material) -> TokenTable:
        """The table this builder makes of the vocabulary."""
        ...
