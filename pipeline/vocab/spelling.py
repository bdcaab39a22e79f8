"""How a text is cut into tokens: longest first, by chance, as the runtime cuts it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .vocabulary import Vocabulary

NAMES = ("canonical", "greedy", "random")

_ANCHOR = b"\n"
"""Stands before a text to see how the runtime cuts it in the middle of an output, where no
tokenizer puts a space of its own."""
_LEAD = 4
"""Tokens among which an anchor and a space before it end."""
_HEAD = 3
"""Bytes by which it is looked up how long a token can be."""


class Spelling:
    """Token sequences whose rendered bytes are exactly a text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids: dict[bytes, list[int]] = {}
        self._reach: dict[bytes, int] = {}
        """The longest token that begins with these bytes, of which there are at most `_HEAD`."""
        for token, piece in enumerate(vocabulary.rendered):
            if piece and token not in vocabulary.end_ids:
                self._ids.setdefault(piece, []).append(token)
                for n in range(min(_HEAD, len(piece)) + 1):
                    head = piece[:n]
                    self._reach[head] = max(self._reach.get(head, 0), len(piece))

    def longest(self, text: bytes) -> list[bytes]:
        """The longest token at each place; a byte that no token begins with stands alone."""
        out: list[bytes] = []
        place = 0
        while place < len(text):
            sizes = range(self._room(text, place), 0, -1)
            size = next((n for n in sizes if text[place : place + n] in self._ids), 1)
            out.append(text[place : place + size])
            place += size
        return out

    def greedy(self, text: bytes) -> list[int]:
        """The ids of `longest`; KeyError where a byte has no token."""
        return [self._ids[piece][0] for piece in self.longest(text)]

    def spellings(self, text: bytes, rng: random.Random) -> Iterator[tuple[str, list[int]]]:
        """(name, ids) of each spelling the vocabulary can write: longest, and two by chance.

        Of several ids of the same bytes the first is the longest spelling's; chance draws any.
        """
        wanted = [("longest", self.longest(text))]
        wanted += [(f"random{i}", self.by_chance(text, rng)) for i in (1, 2)]
        for name, pieces in wanted:
            ids = self.ids(pieces, rng if name != "longest" else None)
            if ids is not None:
                yield name, ids

    def ids(self, pieces: Sequence[bytes], rng: random.Random | None = None) -> list[int] | None:
        """An id for each piece, the first or any; None where some piece is no token."""
        pick = rng.choice if rng else min
        if not all(piece in self._ids for piece in pieces):
            return None
        return [pick(self._ids[piece]) for piece in pieces]

    def _room(self, text: bytes, place: int) -> int:
        """No token that fits at a place is longer than this."""
        for n in range(min(_HEAD, len(text) - place), -1, -1):
            if (reach := self._reach.get(text[place : place + n])) is not None:
                return min(reach if n == _HEAD else n, len(text) - place)
        return 0

    def by_chance(self, text: bytes, rng: random.Random) -> list[bytes]:
        """A seeded spelling; falls back to the longest where chance leads nowhere."""
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
    """The splits of one vocabulary; each writes exactly the text."""

    vocabulary: Vocabulary
    spelling: Spelling
    tokenize: Callable[[bytes], list[int]]
    """The runtime's own tokenization."""

    def of(self, text: bytes, seed: str) -> Iterator[tuple[str, list[int]]]:
        """(name, ids) of each split that the vocabulary can write."""
        rng = random.Random(seed)
        for name, ids in (
            ("canonical", self._canonical(text)),
            ("greedy", self.spelling.ids(self.spelling.longest(text))),
            ("random", self.spelling.ids(self.spelling.by_chance(text, rng), rng)),
        ):
            if ids is not None:
                yield name, ids

    def _canonical(self, text: bytes) -> list[int] | None:
        """The runtime's split; behind an anchor where it would begin with a space of its own."""
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
