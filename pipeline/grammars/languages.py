"""Languages over bytes: which bytes may come next, without any token table.

There are two implementations. `ByteGrammar` is llguidance over its byte tokenizer (one token per
byte). No builder's table affects it, but it shares the faults of the engine under test.
`byte_regex.ByteRegex` uses no engine. It judges every case whose independent checker is a literal
or a pattern, so that it also shows the engine's own faults.

Some grammars mean something else over bytes: a token reference (`<[5]>`, `<|name|>`) would mean ids
of the *byte* tokenizer, and `max_tokens` would count bytes. `ByteGrammar.no_oracle` then holds the
reason, and the grammar is not judged.
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
    """How much of a text a language accepts."""

    n_legal: int
    """Length in bytes of the longest prefix of the text with which some legal text begins."""
    complete: bool
    """Whether the whole text is legal; `n_legal` is then its length."""


class State(Protocol):
    """A language after a legal prefix."""

    def fits(self, piece: list[int], /) -> int:
        """The number of leading bytes of `piece` that the language allows next."""
        ...

    def complete(self) -> bool:
        """Whether the text may end here."""
        ...


class Language(Protocol):
    """A set of texts, matched byte by byte."""

    def after(self, prefix: bytes) -> State | None:
        """The state after `prefix`; None if no text of the language begins with it."""
        ...


class ByteGrammar:
    """A grammar over single bytes, or the reason why it cannot be judged over bytes."""

    def __init__(self, grammar: str) -> None:
        self._start = llguidance.LLMatcher(_BYTES, grammar, log_level=0)
        inexpressible = _inexpressible(grammar)
        refused = self._start.get_error() or None
        self.error: str | None = None if inexpressible else refused
        """Why the grammar does not compile. None also for a grammar that means something else over
        bytes: it may compile over the real tokenizer."""
        self.no_oracle: str | None = inexpressible or refused
        """Why this grammar cannot be judged over bytes; None if it can."""

    def after(self, prefix: bytes) -> State | None:
        """See `Language.after`."""
        matcher = self._start.deep_copy()
        if self.no_oracle is not None or matcher.validate_tokens(list(prefix)) < len(prefix):
            return None
        if prefix and not matcher.consume_tokens(list(prefix)):
            return None
        return _GrammarState(matcher)

    def match(self, data: bytes) -> ByteMatch:
        """How much of `data` the grammar accepts."""
        n_legal = self._start.deep_copy().validate_tokens(list(data))
        state = self.after(data) if n_legal == len(data) else None
        return ByteMatch(n_legal, complete=state is not None and state.complete())


@cache
def cached_grammar(grammar: str) -> ByteGrammar:
    """The byte-level grammar of a text, cached: judges need the same object for the same text."""
    return ByteGrammar(grammar)


class _GrammarState:
    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher
        self.fits = matcher.validate_tokens

    def complete(self) -> bool:
        return self._matcher.is_accepting()


@dataclass(frozen=True)
class Languages:
    """A case's language over bytes: by the engine, and without it if possible."""

    grammar: ByteGrammar
    control: ByteRegex | None

    @staticmethod
    def of(case: Case) -> Languages:
        """The languages of a case."""
        return Languages(ByteGrammar(case.grammar.engine_text()[1]), engine_free(case.check))


def engine_free(check: Check) -> ByteRegex | None:
    """The language of a literal or pattern checker; None for other checkers."""
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
    """Why a Lark grammar means something else over bytes, or None; skips literals and comments."""
    bare = _QUOTED.sub(" ", grammar)
    return next((reason for found, reason in _UNSAYABLE if found.search(bare)), None)
