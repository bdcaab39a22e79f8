"""Byte oracles: what may truly come next, from bytes alone and with no token table at all.

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
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Protocol

import llguidance
import numpy as np
import numpy.typing as npt

_BYTES = llguidance.LLTokenizer("byte")

Legal = npt.NDArray[np.bool_]
"""Which ids may come next, shape (n_tokens,)."""


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


class TokenOracle:
    """The true next tokens of one vocabulary, whatever a builder claims.

    `pieces` are the bytes a runtime renders for each id; a token that renders nothing is never
    a legal continuation.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        order = sorted((piece, i) for i, piece in enumerate(pieces) if piece)
        self._pieces = [piece for piece, _ in order]
        self._octets = [list(piece) for piece in self._pieces]
        self._shared = [_n_shared(a, b) for a, b in pairwise(self._pieces)] + [0]
        self._ids = np.array([i for _, i in order], np.int64)
        self._n_tokens = len(pieces)

    def legal(self, language: Language, prefix: bytes) -> Legal | None:
        """Which ids may follow `prefix`; None where `prefix` is illegal.

        Tokens are tried in byte order. All that share a refused beginning stand together and are
        jumped over, so a state costs about as many trials as it has legal tokens.
        """
        state = language.after(prefix)
        return None if state is None else self.legal_in(state)

    def legal_in(self, state: State) -> Legal:
        """Which ids may come next in a state."""
        octets, shared, fits, n = self._octets, self._shared, state.fits, len(self._pieces)
        good: list[int] = []
        i = 0
        while i < n:
            piece = octets[i]
            reach = fits(piece)
            if reach == len(piece):
                good.append(i)
                i += 1
            elif shared[i] <= reach:  # the next token differs before the refused byte
                i += 1
            else:
                i = bisect_left(self._pieces, _successor(self._pieces[i][: reach + 1]), i + 2)
        legal = np.zeros(self._n_tokens, np.bool_)
        legal[self._ids[good]] = True
        return legal


def _n_shared(a: bytes, b: bytes) -> int:
    """How many bytes two texts begin with alike."""
    return next(
        (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def _successor(prefix: bytes) -> bytes:
    """The least bytes above everything that begins with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return prefix + b"\xff" * 1024
    return stripped[:-1] + bytes([stripped[-1] + 1])


_QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*"i?|//[^\n]*|#[^\n]*|/(?:\\.|[^/\\\n])+/[a-z]*')
_UNSAYABLE = (
    (re.compile(r"<[^<>\s][^<>]*>"), "it refers to tokens by id or name"),
    (re.compile(r"\bmax_tokens\s*="), "it counts tokens (max_tokens)"),
)


def _inexpressible(grammar: str) -> str | None:
    """Why a Lark grammar means something else over bytes; literals and comments do not count."""
    bare = _QUOTED.sub(" ", grammar)
    return next((reason for found, reason in _UNSAYABLE if found.search(bare)), None)
