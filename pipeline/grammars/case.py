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
    """The grammar of a case, as the suite file gives it."""

    kind: OneOf["lark", "json"]
    text: str
    """Lark source, or a JSON Schema as compact JSON with its key order kept."""

    def engine_text(self) -> tuple[str, str]:
        """(kind, data) for `llg_new_matcher`: exactly the bytes that llama.cpp's bridge sends.

        The bridge only knows `lark` (common/sampling.cpp) and passes the whole grammar string with
        its `%llguidance` header. A schema is wrapped as in common/json-schema-to-grammar.cpp. Lark
        text that already has a header, with engine options, is sent unchanged.
        """
        if self.kind == "json":
            return "lark", f"{_HEADER} {{}}\nstart: %json {self.text}"
        if self.text.startswith(_HEADER):
            return "lark", self.text
        return "lark", f"{_HEADER} {{}}\n{self.text}"


@dataclass(frozen=True)
class Case:
    """A prompt, a grammar, and the checker that judges the output without the engine."""

    suite: str
    id: str
    prompt: str
    grammar: Grammar
    check: Check
    max_tokens: int
    invalid_grammar: bool = False
    """The grammar must not compile; the case tests what the runtime does then."""
    stress: bool = False
    """May exceed the engine's limits, also while compiling; the outcome is then the result."""
    tokens: tuple[int, ...] = ()
    """Ids to sample first, instead of the model's choice, as long as the mask allows them."""
    imported: bool = False
    """Comes from an imported collection (`importers`); a compile error is the engine's fault."""
    refused: str = ""
    """Why an imported case cannot be run; empty if it can."""

    @property
    def hash(self) -> str:
        """sha256 (hex) of everything that defines the case, including its checker.

        Fields at their default are left out, so that a new field changes no existing hash.
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
    """sha256 (hex) of the cases as canonical JSON, without the file's comments and layout."""


@dataclass(frozen=True)
class StringGrammar:
    """A grammar with texts that it must accept, and similar texts that it must reject."""

    suite: str
    id: str
    grammar: Grammar
    accept: tuple[bytes, ...]
    reject: tuple[bytes, ...]
    regex: str | None
    """A `Pattern` source equivalent to the grammar, to judge any text without an engine."""


@dataclass(frozen=True)
class StringSuite:
    """A named set of grammars with strings, in the order of its file."""

    name: str
    about: str
    grammars: tuple[StringGrammar, ...]
    hash: str
    """sha256 (hex) of the grammars as canonical JSON, like a Suite's."""


def definition_hash(parts: list[dict[str, Any]]) -> str:
    """sha256 (hex) of these values as canonical JSON."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=_bytes_as_text)
    return hashlib.sha256(text.encode()).hexdigest()


def _bytes_as_text(data: bytes) -> str:
    """A distinct text for each byte string; valid UTF-8 becomes the text it encodes."""
    return data.decode(errors="surrogateescape")
