"""Cut a text into parts that can be merged independently, with n-gram lookups in numpy.

A merge never crosses a boundary that no token occurrence spans. Hash tables of the vocabulary's
n-grams say which boundaries are spanned; a hash collision can only miss a possible cut. A pair of
characters is *sure* if its score is higher than that of every token occurrence that spans either
end of it. A sure pair is merged before anything else touches it. So short tokens that partly
overlap it are never formed, and they span nothing. This cuts random letters into parts of two or
three.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

_NEVER = -np.inf
_MIX, _SPREAD = np.uint32(0x9E3779B1), np.uint32(0x85EBCA6B)
_LONGEST = 4
"""Tokens longer than this are stored as 4-grams; every boundary in a token is in one of them."""

_Grams = npt.NDArray[np.uint32]
_Floats = npt.NDArray[np.float32]


class Cuts:
    """Finds the cuts of texts under one vocabulary."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        by_size: dict[int, list[str]] = {size: [] for size in range(2, _LONGEST + 1)}
        for token in scores:
            if len(token) > 1:
                by_size[min(len(token), _LONGEST)].append(token)
        n_grams = sum(len(token) for tokens in by_size.values() for token in tokens)
        self._shift = np.uint32(32 - min(max((4 * n_grams).bit_length(), 16), 24))
        self._tables = [
            self._table(tokens, size, [scores[token] for token in tokens])
            for size, tokens in by_size.items()
        ]
        # Sure pairs need exact scores, so this table has no collisions; it has ASCII pairs only.
        self._pairs = np.full(1 << 14, _NEVER, np.float32)
        for token in by_size[2]:
            if token.isascii():
                self._pairs[ord(token[0]) << 7 | ord(token[1])] = scores[token]

    def cuts(self, text: str) -> list[int]:
        """The boundaries to cut at, ascending, including 0 and the text's length."""
        n = len(text)
        if n < _LONGEST:
            return [0, n]
        chars = _code_points(text)
        two, three, four = (
            table[self._slot(grams)]
            for table, grams in zip(self._tables, _grams(chars), strict=True)
        )
        over_four = _over(n, four, 4)
        sure = np.zeros(n + 3, np.bool_)  # index: 2 + the start of the pair
        best = np.maximum(np.maximum(over_four, _over(n, three, 3)), _over(n, two, 2))
        pairs = self._exact_pairs(chars)
        sure[2 : n + 1] = (pairs > best[: n - 1]) & (pairs > best[2:])
        two[sure[1:n] | sure[3 : n + 2]] = _NEVER
        three[sure[1 : n - 1] | sure[4 : n + 2]] = _NEVER
        spanned = np.maximum(np.maximum(over_four, _over(n, three, 3)), _over(n, two, 2))
        return np.flatnonzero(spanned == _NEVER).tolist()

    def _table(self, tokens: list[str], size: int, scores: list[float]) -> _Floats:
        """The best score of a token that contains each n-gram, by slot."""
        table = np.full(1 << (32 - int(self._shift)), _NEVER, np.float32)
        if tokens:
            grams = _grams(_code_points("".join(tokens)))[size - 2]
            owner = np.repeat(np.arange(len(tokens)), [len(token) for token in tokens])
            first, last = owner[: 1 - size], owner[size - 1 :]
            inside = first == last
            best = np.array(scores, np.float32)[first[inside]]
            np.maximum.at(table, self._slot(grams[inside]), best)
        return table

    def _slot(self, grams: _Grams) -> _Grams:
        return (grams * _SPREAD) >> self._shift

    def _exact_pairs(self, chars: _Grams) -> _Floats:
        one, two = chars[:-1], chars[1:]
        found = self._pairs[((one & 127) << 7) | (two & 127)]
        found[(one | two) > 127] = _NEVER
        return found


def _code_points(text: str) -> _Grams:
    if text.isascii():
        return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _grams(chars: _Grams) -> list[_Grams]:
    """Hashes of the 2-, 3- and 4-grams, indexed by their first character."""
    out: list[_Grams] = []
    grams = chars
    for size in range(2, _LONGEST + 1):
        grams = grams[:-1] * _MIX + chars[size - 1 :]
        out.append(grams)
    return out


def _over(n: int, found: _Floats, size: int) -> _Floats:
    """The best score that spans each of the n + 1 boundaries, for n-grams of one size.

    `found` is indexed by the first character of the n-gram.
    """
    over = np.full(n + 1, _NEVER, np.float32)
    for inside in range(1, size):
        part = over[inside : inside + len(found)]
        np.maximum(part, found, out=part)
    return over
