"""The byte oracle: the same grammar over single bytes, with no token table at all.

It answers two questions from bytes alone: how far a text follows a grammar, and which tokens of
a vocabulary could truly come next. llguidance's byte tokenizer (`LLTokenizer("byte")`) has one
token per byte, so no builder's claim can reach it.

The engine is the one under test, so it shares that engine's faults; what it does not share is
the token table. It does not know token references (`<[5]>`, `<|name|>`), and counts
`max_tokens` in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import llguidance
import numpy as np
import numpy.typing as npt

_BYTES = llguidance.LLTokenizer("byte")


@dataclass(frozen=True)
class ByteMatch:
    """How far a text follows a grammar."""

    n_legal: int
    """Bytes from the start that some legal text begins with."""
    complete: bool
    """Whether the whole text is a legal text; `n_legal` is its length then."""


class ByteGrammar:
    """A grammar over single bytes; `error` is set where it does not compile."""

    def __init__(self, grammar: str) -> None:
        self._start = llguidance.LLMatcher(_BYTES, grammar, log_level=0)
        message = self._start.get_error()
        self.error: str | None = message or None

    def match(self, data: bytes) -> ByteMatch:
        """How far `data` follows the grammar from its start."""
        matcher = self._start.deep_copy()
        n_legal = matcher.validate_tokens(list(data))
        if n_legal < len(data):
            return ByteMatch(n_legal, complete=False)
        complete = matcher.consume_tokens(list(data)) and matcher.is_accepting()
        return ByteMatch(n_legal, complete=complete)

    def after(self, data: bytes) -> llguidance.LLMatcher | None:
        """A matcher that has read `data`; None where it is no legal beginning."""
        matcher = self._start.deep_copy()
        if matcher.validate_tokens(list(data)) < len(data):
            return None
        matcher.consume_tokens(list(data))
        return matcher


class TokenOracle:
    """The true next tokens of one vocabulary, whatever the builder claims.

    `pieces` are the bytes a runtime renders for each id; a token that renders nothing is never
    a legal continuation.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        order = sorted((piece, i) for i, piece in enumerate(pieces) if piece)
        self._pieces = [piece for piece, _ in order]
        self._ids = [i for _, i in order]
        self._n_tokens = len(pieces)

    def legal(self, grammar: ByteGrammar, prefix: bytes) -> npt.NDArray[np.bool_] | None:
        """Which ids may follow `prefix`, shape (n_tokens,); None where `prefix` is illegal.

        Tokens are tried in byte order, and all that share a refused beginning are skipped, so a
        state costs far fewer trials than the vocabulary has tokens.
        """
        matcher = grammar.after(prefix)
        if matcher is None:
            return None
        legal = np.zeros(self._n_tokens, np.bool_)
        refused: bytes | None = None
        for piece, token in zip(self._pieces, self._ids, strict=True):
            if refused is not None and piece.startswith(refused):
                continue
            fits = matcher.validate_tokens(list(piece))
            if fits == len(piece):
                legal[token] = True
            else:
                refused = piece[: fits + 1]
        return legal
