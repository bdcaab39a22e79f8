"""Languages over bytes: what may truly come next, with no token table at all.

Two languages over bytes answer the same questions. `ByteGrammar` is llguidance itself over its
byte tokenizer (one token a byte), so no builder's claim can reach it; being the engine under
test, it shares that engine's faults. `byte_regex.ByteRegex` knows no engine: it judges every case
whose independent checker is a literal or a pattern, so that the engine's own faults show too.

What a byte matcher cannot express is said and never guessed (`ByteGrammar.no_oracle`): a token
reference (`<[5]>`, `<|name|>`) would mean the *byte* tokenizer's ids, and `max_tokens` would
count bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import llguidance

from .byte_regex import ByteRegex, Unsupported
from .case import Case
from .checkers import Check, Literal, Pattern

_BYTES = llguidance.LLTokenizer("byte")


@dataclass(frozen=True)
class ByteMatch:
    """How far a text follows a language."""

    n_legal: int
    """Bytes from the start that some legal text begins with."""
    complete: bool
    """Whether the whole text is a legal text; `n_legal` is its length then."""


class State(Protocol):
    """A language after a legal beginning."""

    def fits(self, piece: list[int], /) -> int:
        """How many of these bytes may come next."""
        ...

    def complete(self) -> bool:
        """Whether the text may end here."""
        ...


class Language(Protocol):
    """A set of texts, asked byte by byte."""

    def after(self, prefix: bytes) -> State | None:
        """The state after `prefix`; None where it is no legal beginning."""
        ...


class ByteGrammar:
    """A grammar over single bytes, or the reason why there is none."""

    def __init__(self, grammar: str) -> None:
        self._start = llguidance.LLMatcher(_BYTES, grammar, log_level=0)
        inexpressible = _inexpressible(grammar)
        refused = self._start.get_error() or None
        self.error: str | None = None if inexpressible else refused
        """Why the grammar does not compile. One that means something else over bytes may compile
        where it counts: of that one nothing is said."""
        self.no_oracle: str | None = inexpressible or refused
        """Why this grammar cannot be judged over bytes; None where it can."""

    def after(self, prefix: bytes) -> State | None:
        """See `Language.after`."""
        matcher = self._start.deep_copy()
        if self.no_oracle is not None or matcher.validate_tokens(list(prefix)) < len(prefix):
            return None
        if prefix and not matcher.consume_tokens(list(prefix)):
            return None
        return _GrammarState(matcher)

    def match(self, data: bytes) -> ByteMatch:
        """How far `data` follows the grammar from its start."""
        n_legal = self._start.deep_copy().validate_tokens(list(data))
        state = self.after(data) if n_legal == len(data) else None
        return ByteMatch(n_legal, complete=state is not None and state.complete())


@cache
def kept(grammar: str) -> ByteGrammar:
    """The byte-level grammar of a fixed text, one object: judges know a language by identity."""
    return ByteGrammar(grammar)


class _GrammarState:
    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher
        self.fits = matcher.validate_tokens

    def complete(self) -> bool:
        return self._matcher.is_accepting()


@dataclass(frozen=True)
class Languages:
    """A case's grammar over bytes, with the engine and, where there is one, without it."""

    grammar: ByteGrammar
    control: ByteRegex | None

    @staticmethod
    def of(case: Case) -> Languages:
        """The languages of a case."""
        return Languages(ByteGrammar(case.grammar.engine_text()[1]), engine_free(case.check))


def engine_free(check: Check) -> ByteRegex | None:
    """The language of a case by its independent checker; None where that is no pattern."""
    try:
        match check:
            case Literal(text):
                return ByteRegex(re.escape(text))
            case Pattern(source):
                return ByteRegex(source.encode())
            case _:
                return None
    except Unsupported:
        return None


_QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*"i?|//[^\n]*|#[^\n]*|/(?:\\.|[^/\\\n])+/[a-z]*')
_UNSAYABLE = (
    (re.compile(r"<[^<>\s][^<>]*>"), "it refers to tokens by id or name"),
    (re.compile(r"\bmax_tokens\s*="), "it counts tokens (max_tokens)"),
)


def _inexpressible(grammar: str) -> str | None:
    """Why a Lark grammar means something else over bytes; literals and comments do not count."""
    bare = _QUOTED.sub(" ", grammar)
    return next((reason for found, reason in _UNSAYABLE if found.search(bare)), None)
