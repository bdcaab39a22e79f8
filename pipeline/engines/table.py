"""Token tables, the input of builders (`Material`), and the builder protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from ..system.provenance import framed
from .settings import BuilderSettings

if TYPE_CHECKING:  # a library's own environment also uses this file and may not have llama.cpp
    from ..native.llama import Vocab
    from ..vocab.vocabulary import Vocabulary

SPECIAL_MARKER = b"\xff"
"""The byte before a special token's text in llguidance's token table."""

Tokenize = Callable[[bytes], list[int]]


@dataclass(frozen=True)
class TokenTable:
    """The token table that a builder makes; every sequence has one entry per id."""

    claimed: list[bytes] = field(repr=False)
    """Bytes of each token, without the special marker."""
    special: list[bool] = field(repr=False)
    """Whether the engine gets the token with the special marker."""
    eos: int
    """The one id that the engine allows at the end of a text; -1 for none."""
    tokenize: Tokenize | None
    """Bytes → ids; with None the engine tokenizes greedily and never forces tokens."""
    tokenize_mode: str
    """Name of the tokenization."""
    made_by: str = ""
    """The released package and its version; empty for our own builders."""
    note: str = ""
    """A note for the user, such as why the table cannot be exact."""
    guarded: bool = False
    """Whether `tokenize` never passes bytes to `llama_tokenize` on which it may crash."""

    @property
    def calls_llama(self) -> bool:
        """Whether `tokenize` passes any bytes to `llama_tokenize`, which may crash on them."""
        return self.tokenize is not None and not self.guarded

    @cached_property
    def engine_bytes(self) -> list[bytes]:
        """The entries that the engine gets: special tokens begin with their marker."""
        return [
            SPECIAL_MARKER + claim if special else claim
            for claim, special in zip(self.claimed, self.special, strict=True)
        ]

    @property
    def identity(self) -> tuple[str, object]:
        """Equal only for tables that may share a native tokenizer.

        Their entries must be equal, and their tokenizations the same object, or objects that say
        that they are equal (`bridge.LlamaTokenize`). A name proves nothing.
        """
        known = isinstance(self.tokenize, Hashable)
        return self.hash, self.tokenize if known else id(self.tokenize)

    @cached_property
    def hash(self) -> str:
        """sha256 (hex) over the entries, `eos`, the mode, and whether there is a tokenization."""
        facts = self.eos, self.tokenize_mode, self.tokenize is not None
        digest = hashlib.sha256(repr(facts).encode())
        digest.update(framed(self.engine_bytes))
        return digest.hexdigest()


@dataclass(frozen=True)
class Material:
    """The input of a builder: the vocabulary as data, and the live llama.cpp vocabulary."""

    vocabulary: Vocabulary
    vocab: Vocab
    survives: Callable[[bytes], bool]
    """Whether `llama_tokenize` of these bytes returns without a crash; for doubtful vocabularies
    this is tested in a separate process."""
    outside: BuilderSettings = field(default_factory=BuilderSettings)


class Builder(Protocol):
    """Makes a token table from a vocabulary."""

    name: str
    version: int
    """Increase it whenever the builder's result may change; part of `cell_hash`."""

    def build(self, material: Material) -> TokenTable:
        """The table for the vocabulary. Raises `BuilderRefused` with a reason."""
        ...
