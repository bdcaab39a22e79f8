"""Cases and suites as data: prompt, grammar, independent checker."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Any
from typing import Literal as OneOf

from .checkers import Check

DEFAULT_MAX_TOKENS = 64
_HEADER = "%llguidance"


@dataclass(frozen=True)
class Grammar:
    """What the output must obey, in the suite file's own words."""

    kind: OneOf["lark", "json"]
    text: str
    """Lark source, or a JSON Schema as compact JSON with its key order kept."""

    def engine_text(self) -> tuple[str, str]:
        """(kind, data) for `llg_new_matcher`, to the byte what llama.cpp's bridge sends.

        The bridge only knows `lark` (common/sampling.cpp) and takes the whole grammar string, with
        its `%llguidance` head; a schema is wrapped as in common/json-schema-to-grammar.cpp. Lark
        text that brings its own head, with engine options, is sent as it is.
        """
        if self.kind == "json":
            return "lark", f"{_HEADER} {{}}\nstart: %json {self.text}"
        if self.text.startswith(_HEADER):
            return "lark", self.text
        return "lark", f"{_HEADER} {{}}\n{self.text}"


@dataclass(frozen=True)
class Case:
    """One prompt, one grammar and the checker that judges the output without the engine."""

    suite: str
    id: str
    prompt: str
    grammar: Grammar
    check: Check
    max_tokens: int
    invalid_grammar: bool = False
    """Meant not to compile: the question is what the runtime then does."""
    stress: bool = False
    """May exceed the limits of the engine, at compiling too: what then happens is the result."""
    tokens: tuple[int, ...] = ()
    """Ids to take first, whatever the model likes, as far as the mask allows them."""
    imported: bool = False
    """Of a collection of others (`importers`): that it does not compile is the engine's fault."""
    refused: str = ""
    """Why an imported one cannot be tried; empty where it can."""

    @property
    def hash(self) -> str:
        """sha256 (hex) of everything that defines the case, its checker included.

        A field left at its default does not count, so that one added later changes no hash.
        """
        given = {f.name for f in fields(self) if getattr(self, f.name) != f.default}
        parts = {name: value for name, value in asdict(self).items() if name in given}
        parts["checker"] = type(self.check).__name__
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=bytes.decode)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Suite:
    """A named set of cases, in the order of its file."""

    name: str
    about: str
    cases: tuple[Case, ...]
    hash: str
    """sha256 (hex) of the cases as canonical JSON: comments and layout of the file do not count."""


@dataclass(frozen=True)
class StringGrammar:
    """A grammar with whole texts of its language, and near misses that are none."""

    suite: str
    id: str
    grammar: Grammar
    accept: tuple[bytes, ...]
    reject: tuple[bytes, ...]
    regex: str | None
    """Equivalent to the grammar, as a `Pattern` source: judges any other text without an engine."""


@dataclass(frozen=True)
class StringSuite:
    """A named set of grammars with strings, in the order of its file."""

    name: str
    about: str
    grammars: tuple[StringGrammar, ...]
    hash: str
    """sha256 (hex) of the grammars as canonical JSON, like a Suite's."""


def definition_hash(parts: list[dict[str, Any]]) -> str:
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=_bytes_as_text)
    return hashlib.sha256(text.encode()).hexdigest()


def _bytes_as_text(data: bytes) -> str:
    """One text for each byte string, and UTF-8 as it is read."""
    return data.decode(errors="surrogateescape")
