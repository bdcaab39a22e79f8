"""Token-table builders: the things under test. One short file each, registered by name.

A builder turns a vocabulary into a `TokenTable`: what it *claims* the bytes of each token are,
which tokens are special, which id ends a text, and how bytes become tokens. `unfixed` and `fixed`
follow llama.cpp's `common/llguidance.cpp` before and after the fix; `bytes_fixed` and
`tokenize_fixed` are the two halves of it, so that a failure can be laid at one defect's door.
`exact` is the better fix; `special_prefix`, `prefix_strip` and `no_special_prefix` are those that
were thought of and rejected.
Builders from released packages (`foreign.Foreign`) run in a process of their own.

To add one: a file here with a `Builder` decorated by `@register`, its `conf/builder/<name>.yaml`,
and a test. No other file changes.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from pipeline.errors import ConfigError
from pipeline.provenance import framed

if TYPE_CHECKING:  # a library's own environment builds tables too, and need not have llama.cpp
    from pipeline.llama import Vocab
    from pipeline.vocabulary import Vocabulary

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
class Outside:
    """Where and within which limits builders from released packages run."""

    python: str = ""
    """The interpreter of an environment that has the package; empty for this one."""
    tokenizer_json: str = ""
    """The model's own file, for builders that read one; empty to derive it from the GGUF."""
    time_limit: float = 300.0
    """Seconds for one table."""
    memory_limit: float = 8.0
    """GiB for one table."""


@dataclass(frozen=True)
class Material:
    """What a builder may look at: the vocabulary as read, and the live llama.cpp vocabulary."""

    vocabulary: Vocabulary
    vocab: Vocab
    survives: Callable[[bytes], bool]
    """Whether `llama_tokenize` of these bytes returns at all; tried in a process of its own
    where the vocabulary makes it doubtful."""
    outside: Outside = Outside()


class Builder(Protocol):
    """Vocabulary → TokenTable. Raises `BuilderRefused` with a reason."""

    name: str
    version: int
    """Counted up whenever the builder's outcome can change; part of `cell_hash`."""

    def build(self, material: Material) -> TokenTable:
        """The table this builder makes of the vocabulary."""
        ...


_registry: dict[str, Builder] = {}


def register(builder: type[Builder]) -> type[Builder]:
    """Class decorator: make a builder known under its name."""
    made = builder()
    _registry[made.name] = made
    return builder


def get(name: str) -> Builder:
    """The builder of that name; its file is imported on first use, and no other."""
    if name not in _registry and name in _files():
        importlib.import_module(f"{__name__}.{name}")
    if name not in _registry:
        known = sorted(file for file in _files() if file in _registry or _registers(file))
        raise ConfigError(f"There is no builder {name!r}; there are {', '.join(known)}.")
    return _registry[name]


def _files() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__)]


def _registers(file: str) -> bool:
    importlib.import_module(f"{__name__}.{file}")
    return file in _registry
