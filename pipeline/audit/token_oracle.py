"""The tokens that are truly legal in any state of a language over bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..grammars.languages import Language, State

Legal = npt.NDArray[np.bool_]
"""Which ids may come next, shape (n_tokens,)."""


class TokenOracle:
    """Finds the legal next tokens of one vocabulary; the claims of builders have no influence.

    `pieces` are the bytes that a runtime renders for each id. A token that renders nothing is never
    legal.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        order = sorted((piece, i) for i, piece in enumerate(pieces) if piece)
        self._pieces = [piece for piece, _ in order]
        self._octets = [list(piece) for piece in self._pieces]
        self._shared = [_n_shared(a, b) for a, b in pairwise(self._pieces)] + [0]
        self._ids = np.array([i for _, i in order], np.int64)
        self._n_tokens = len(pieces)

    def legal(self, language: Language, prefix: bytes) -> Legal | None:
        """The ids that may follow `prefix`; None if `prefix` is illegal.

        Tokens are tried in byte order. Tokens with the same refused beginning are adjacent and are
        skipped, so a state costs about as many trials as it has legal tokens.
        """
        state = language.after(prefix)
        return None if state is None else self.legal_in(state)

    def legal_in(self, state: State) -> Legal:
        """The ids that may come next in a state."""
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
    """Length of the common prefix of two texts, in bytes."""
    return next(
        (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def _successor(prefix: bytes) -> bytes:
    """The smallest bytes that sort after everything that begins with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return prefix + b"\xff" * 1024
    return stripped[:-1] + bytes([stripped[-1] + 1])
