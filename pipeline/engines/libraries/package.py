"""Builders and engines from released packages: their input (`Given`) and output (`Claim`).

A library runs in its own process (`client`), with this environment or another. So its output, its
crashes and its imports do not affect the worker. `Given` and `Claim` are sent as JSON.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...model.errors import BuilderRefused, ConfigError
from ...model.verdicts import TokenizeMode
from ...vocab import tokenizer_json
from ..probe import Compile
from ..table import Material, Tokenize, TokenTable
from .client import Session


@dataclass(frozen=True)
class Given:
    """The input of a library; every list has one entry per id."""

    file: str
    """The GGUF, for libraries that load it with llama-cpp-python."""
    tokenizer_json: str
    """The model's own `tokenizer.json`; empty to derive one."""
    texts: list[bytes]
    """Each token's text as in the file."""
    true_bytes: list[bytes]
    attrs: list[int]
    """`llama_token_attr` bits."""
    hidden: list[bool]
    """True for tokens that a runtime leaves out of the text."""
    eos: int
    """-1 for none."""
    end_ids: list[int]
    """Every id at which the runtime stops, sorted."""

    @staticmethod
    def of(material: Material) -> Given:
        """The input for the vocabulary of a `Material`."""
        vocabulary = material.vocabulary
        return Given(
            file=str(material.vocab.file.absolute()),
            tokenizer_json=material.outside.tokenizer_json or "",
            texts=vocabulary.texts,
            true_bytes=vocabulary.true_bytes,
            attrs=vocabulary.attrs.tolist(),
            hidden=vocabulary.hidden,
            eos=vocabulary.eos,
            end_ids=sorted(vocabulary.end_ids),
        )

    def document(self) -> str:
        """The text of a `tokenizer.json`: the model's own, or one derived from the GGUF."""
        if self.tokenizer_json:
            return Path(self.tokenizer_json).read_text("utf-8")
        return tokenizer_json.derive(Path(self.file), self.texts, self.attrs)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Given:
        """The inverse of `to_json`."""
        texts: dict[str, Any] = {name: _bytes(data[name]) for name in _TEXTS}
        return Given(**data | texts)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values; bytes become Latin-1 text, one character per byte."""
        return vars(self) | {name: _plain(vars(self)[name]) for name in _TEXTS}


_TEXTS = ("texts", "true_bytes")


@dataclass(frozen=True)
class Claim:
    """The token table of a library; every list has one entry per id."""

    claimed: list[bytes]
    """Bytes of each token; empty if no bytes reach the token in the library."""
    special: list[bool]
    """Whether the library treats the token as special, not as text."""
    eos: int
    tokenize: Tokenize | None = None
    """The library's own tokenization, if it has one."""
    owner: object = None
    """An object that must live as long as the tokenization."""

    def to_json(self) -> dict[str, Any]:
        """The claim as JSON values, without the tokenization, which stays in this process."""
        return {
            "claimed": _plain(self.claimed),
            "special": [token for token, mark in enumerate(self.special) if mark],
            "eos": self.eos,
            "tokenizes": self.tokenize is not None,
        }


class Package(ABC):
    """A builder or engine from a released package."""

    name: str
    package: str
    """The distribution under test."""
    extra: str = ""
    """The extra of `byte-exact` that installs it; empty if every installation has it."""

    def made_by(self) -> str:
        """The package and its installed version. Raises `PackageNotFoundError`."""
        return f"{self.package} {importlib.metadata.version(self.package)}"


class Foreign(Package):
    """A builder from a released package."""

    version: int = 1

    @abstractmethod
    def claim(self, given: Given) -> Claim:
        """The library's token table. Any exception becomes the reason of a refusal."""

    def build(self, material: Material) -> TokenTable:
        """See `Builder.build`."""
        session = Session("builder", self.name, Given.of(material).to_json(), material.outside)
        return table_of(session, self.name, material.vocabulary.n_tokens)


class Library(Package):
    """An engine from a released package."""

    @abstractmethod
    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """(the library's token table, its compiler for that table)."""


def table_of(session: Session, name: str, n_tokens: int) -> TokenTable:
    """The table of a session's claim. Raises `BuilderRefused` unless it has `n_tokens` entries."""
    said = session.claim
    claimed = _bytes(said["claimed"])
    if len(claimed) != n_tokens:
        raise BuilderRefused(f"{said['made_by']} made {len(claimed)} entries for {n_tokens} tokens")
    special = [False] * n_tokens
    for token in said["special"]:
        special[token] = True
    return TokenTable(
        claimed=claimed,
        special=special,
        eos=said["eos"],
        tokenize=session.tokenize if said["tokenizes"] else None,
        tokenize_mode=f"{name}, {said['made_by']}"
        if said["tokenizes"]
        else TokenizeMode.GREEDY.value,
        made_by=said["made_by"],
    )


def library(module: str) -> Any:
    """Import a module of a package under test; untyped, because it may not be installed."""
    return importlib.import_module(module)


def require(makers: Iterable[object]) -> None:
    """Raise `ConfigError` with the install command of the first package that is not installed."""
    for maker in makers:
        if isinstance(maker, Package):
            try:
                maker.made_by()
            except importlib.metadata.PackageNotFoundError:
                raise ConfigError(
                    f"{maker.name} needs the package {maker.package}, which is not installed. "
                    f"Install it with: pip install 'byte-exact[{maker.extra}]' (in a clone: pip "
                    f"install -e '.[{maker.extra}]'), or use an environment that has it: "
                    "builder.python=/path/to/venv/bin/python."
                ) from None


def _plain(entries: list[bytes]) -> list[str]:
    return [entry.decode("latin-1") for entry in entries]


def _bytes(entries: list[str]) -> list[bytes]:
    return [entry.encode("latin-1") for entry in entries]
