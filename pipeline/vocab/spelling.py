"""Split a text into tokens: longest first, at random, or as the runtime splits it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..model.verdicts import Split
from .vocabulary import Vocabulary

_ANCHOR = b"\n"
"""Text put before a text to get the runtime's split in the middle of an output, where the tokenizer
adds no space."""
_LEAD = 4
"""Number of first token positions at which the text after an anchor may begin."""
_HEAD = 3
"""Longest prefix, in bytes, used to look up the greatest token length."""


class Spelling:
    """Token sequences whose rendered bytes equal a given text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids: dict[bytes, list[int]] = {}
        self._reach: dict[bytes, int] = {}
        """Prefix of at most `_HEAD` bytes → length of the longest token that begins with it."""
        for token, piece in enumerate(vocabulary.rendered):
            if piece and token not in vocabulary.end_ids:
                self._ids.setdefault(piece, []).append(token)
                for n in range(min(_HEAD, len(piece)) + 1):
                    head = piece[:n]
                    self._reach[head] = max(self._reach.get(head, 0), len(piece))

    def longest(self, text: bytes) -> list[bytes]:
        """Split into the longest token at each place; a byte without a token is its own piece."""
        out: list[bytes] = []
        place = 0
        while place < len(text):
            sizes = range(self._room(text, place), 0, -1)
            size = next((n for n in sizes if text[place : place + n] in self._ids), 1)
            out.append(text[place : place + size])
            place += size
        return out

    def can_spell(self, text: bytes) -> bool:
        """Whether some sequence of tokens renders exactly this text."""
        reached = {0}
        for place in range(len(text)):
            if place in reached:
                sizes = range(1, self._room(text, place) + 1)
                reached.update(place + n for n in sizes if text[place : place + n] in self._ids)
        return len(text) in reached

    def known(self, text: bytes) -> list[int]:
        """The ids of `longest`, without the bytes that have no token."""
        return [self._ids[piece][0] for piece in self.longest(text) if piece in self._ids]

    def spellings(self, text: bytes, rng: random.Random) -> Iterator[tuple[Split, list[int]]]:
        """(name, ids) of each possible split: the longest, and two random ones.

        If several ids have the same bytes, the longest split takes the lowest id, and a random
        split draws one.
        """
        wanted = [(Split.GREEDY, self.longest(text))]
        wanted += [(name, self.random_split(text, rng)) for name in (Split.RANDOM, Split.RANDOM_2)]
        for name, pieces in wanted:
            ids = self.ids(pieces, rng if name is not Split.GREEDY else None)
            if ids is not None:
                yield name, ids

    def ids(self, pieces: Sequence[bytes], rng: random.Random | None = None) -> list[int] | None:
        """An id for each piece: the lowest, or a random one with `rng`; None if one is no token."""
        pick = rng.choice if rng else min
        if not all(piece in self._ids for piece in pieces):
            return None
        return [pick(self._ids[piece]) for piece in pieces]

    def _room(self, text: bytes, place: int) -> int:
        """An upper bound for the length of the tokens that fit at a place, in bytes."""
        for n in range(min(_HEAD, len(text) - place), -1, -1):
            if (reach := self._reach.get(text[place : place + n])) is not None:
                return min(reach if n == _HEAD else n, len(text) - place)
        return 0

    def random_split(self, text: bytes, rng: random.Random) -> list[bytes]:
        """A random split by `rng`; the longest split if the random one gets stuck."""
        out: list[bytes] = []
        place = 0
        while place < len(text):
            sizes = range(1, self._room(text, place) + 1)
            fitting = [n for n in sizes if text[place : place + n] in self._ids]
            if not fitting:
                return self.longest(text)
            size = rng.choice(fitting)
            out.append(text[place : place + size])
            place += size
        return out


@dataclass(frozen=True)
class Splits:
    """The splits of texts under one vocabulary; each renders exactly the text."""

    vocabulary: Vocabulary
    spelling: Spelling
    tokenize: Callable[[bytes], list[int]]
    """The runtime's own tokenization."""

    def of(self, text: bytes, seed: str) -> Iterator[tuple[Split, list[int]]]:
        """(name, ids) of each possible split; `seed` determines the random one."""
        rng = random.Random(seed)
        for name, ids in (
            (Split.CANONICAL, self._canonical(text)),
            (Split.GREEDY, self.spelling.ids(self.spelling.longest(text))),
            (Split.RANDOM, self.spelling.ids(self.spelling.random_split(text, rng), rng)),
        ):
            if ids is not None:
                yield name, ids

    def _canonical(self, text: bytes) -> list[int] | None:
        """The runtime's split, after an anchor if that avoids an added space; else None."""
        if self.vocabulary.may_throw(text):
            return None
        for anchor in (b"", _ANCHOR):
            ids = self.tokenize(anchor + text)
            for place in range(min(len(ids), _LEAD) if anchor else 1):
                if self._writes(ids[place:], text):
                    return ids[place:]
        return None

    def _writes(self, ids: list[int], text: bytes) -> bool:
        return b"".join(self.vocabulary.rendered[token] for token in ids) == text
