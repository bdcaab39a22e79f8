"""Builders and engines from released packages: what a library is given, and what it claims.

A library runs in a process of its own (`client`), of this environment or of another: what it
prints, how it dies and what it drags in stays there. Given and claim travel as plain data.
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
from ...vocab import tokenizer_json
from ..probe import Compile
from ..table import Material, Tokenize, TokenTable
from .client import Session


@dataclass(frozen=True)
class Given:
    """What a library may look at; every list has one entry per id."""

    file: str
    """The GGUF, for libraries that load it with llama-cpp-python."""
    tokenizer_json: str
    """The model's own `tokenizer.json`; empty to derive one."""
    texts: list[bytes]
    """Each token as the file spells it."""
    true_bytes: list[bytes]
    attrs: list[int]
    """`llama_token_attr` bits."""
    hidden: list[bool]
    """Tokens that a runtime leaves out of the text."""
    eos: int
    """-1 for none."""
    end_ids: list[int]
    """Every id on which the runtime stops."""

    @staticmethod
    def of(material: Material) -> Given:
        """The same as data."""
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
        """A `tokenizer.json`: the model's own, or one that says what the GGUF says."""
        if self.tokenizer_json:
            return Path(self.tokenizer_json).read_text("utf-8")
        return tokenizer_json.derive(Path(self.file), self.texts, self.attrs)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Given:
        """What `to_json` made."""
        texts: dict[str, Any] = {name: _bytes(data[name]) for name in _TEXTS}
        return Given(**data | texts)

    def to_json(self) -> dict[str, Any]:
        """Bytes as Latin-1 text, one character a byte."""
        return vars(self) | {name: _plain(vars(self)[name]) for name in _TEXTS}


_TEXTS = ("texts", "true_bytes")


@dataclass(frozen=True)
class Claim:
    """What a library makes of a vocabulary; every list has one entry per id."""

    claimed: list[bytes]
    """Bytes of each token; empty where the library cannot reach the token by any."""
    special: list[bool]
    """Whether the library keeps the token out of text."""
    eos: int
    tokenize: Tokenize | None = None
    """The library's own tokenization, if it brings one."""
    owner: object = None
    """What must live as long as the tokenization."""

    def to_json(self) -> dict[str, Any]:
        """The claim as data; a tokenization stays where it is."""
        return {
            "claimed": _plain(self.claimed),
            "special": [token for token, mark in enumerate(self.special) if mark],
            "eos": self.eos,
            "tokenizes": self.tokenize is not None,
        }


class Package(ABC):
    """Something of a released package."""

    name: str
    package: str
    """The distribution whose release is under test."""
    extra: str = ""
    """The extra of ours that installs it; empty where every installation has it."""

    def made_by(self) -> str:
        """The package and its version here. Raises `PackageNotFoundError`."""
        return f"{self.package} {importlib.metadata.version(self.package)}"


class Foreign(Package):
    """A builder from a released package."""

    version: int = 1

    @abstractmethod
    def claim(self, given: Given) -> Claim:
        """Ask the library; whatever it raises becomes the reason of a refusal."""

    def build(self, material: Material) -> TokenTable:
        """See `Builder.build`."""
        session = Session("builder", self.name, Given.of(material).to_json(), material.outside)
        return table_of(session, self.name, material.vocabulary.n_tokens)


class Library(Package):
    """An engine from a released package."""

    @abstractmethod
    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """What the library makes of a vocabulary, and its compiler over that."""


def table_of(session: Session, name: str, n_tokens: int) -> TokenTable:
    """The table of a claim. Raises `BuilderRefused` for one that is not of this vocabulary."""
    said = session.claim
    claimed = _bytes(said["claimed"])
    if len(claimed) != n_tokens:
        raise BuilderRefused(f"{said['made_by']} made {len(claimed)} entries of {n_tokens} tokens")
    special = [False] * n_tokens
    for token in said["special"]:
        special[token] = True
    return TokenTable(
        claimed=claimed,
        special=special,
        eos=said["eos"],
        tokenize=session.tokenize if said["tokenizes"] else None,
        tokenize_mode=f"{name}, {said['made_by']}" if said["tokenizes"] else "greedy",
        made_by=said["made_by"],
    )


def library(module: str) -> Any:
    """Import a module of a package under test; without types, for it need not be installed."""
    return importlib.import_module(module)


def require(makers: Iterable[object]) -> None:
    """Raise `ConfigError` with the install line of the first package that is missing here."""
    for maker in makers:
        if isinstance(maker, Package):
            try:
                maker.made_by()
            except importlib.metadata.PackageNotFoundError:
                raise ConfigError(
                    f"{maker.name} is {maker.package}'s, which is not installed. Install "
                    f"it with: pip install 'byte-exact[{maker.extra}]' (in a clone: pip install "
                    f"-e '.[{maker.extra}]'), or name an environment that has it: "
                    "builder.python=/path/to/venv/bin/python."
                ) from None


def _plain(entries: list[bytes]) -> list[str]:
    return [entry.decode("latin-1") for entry in entries]


def _bytes(entries: list[str]) -> list[bytes]:
    return [entry.encode("latin-1") for entry in entries]
