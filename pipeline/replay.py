"""Given texts walked through a builder's matcher as tokens: accepted, or refused where.

A text is spelt by byte-exact token sequences: the longest token at each place, and seeded
spellings that no tokenizer would choose. Accepting includes the end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from pipeline.constraint import Matcher
from pipeline.oracle import ByteGrammar
from pipeline.vocabulary import Vocabulary


class Spelling:
    """Token sequences whose rendered bytes are exactly a text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids: dict[bytes, int] = {}
        for token, piece in enumerate(vocabulary.rendered):
            if piece and token not in vocabulary.end_ids:
                self._ids.setdefault(piece, token)
        self._longest = max(map(len, self._ids), default=0)

    def longest(self, text: bytes) -> list[bytes]:
        """The longest token at each place; a byte that no token begins with stands alone."""
        out: list[bytes] = []
        place = 0
        while place < len(text):
            sizes = range(min(self._longest, len(text) - place), 0, -1)
            size = next((n for n in sizes if text[place : place + n] in self._ids), 1)
            out.append(text[place : place + size])
            place += size
        return out

    def greedy(self, text: bytes) -> list[int]:
        """The ids of `longest`; KeyError where a byte has no token."""
        return [self._ids[piece] for piece in self.longest(text)]

    def spellings(self, text: bytes, rng: random.Random) -> Iterator[tuple[str, list[int]]]:
        """(name, ids) of each spelling the vocabulary can write: longest, and two by chance."""
        wanted = [("longest", self.longest(text))]
        wanted += [(f"random{i}", self._by_chance(text, rng)) for i in (1, 2)]
        for name, pieces in wanted:
            if all(piece in self._ids for piece in pieces):
                yield name, [self._ids[piece] for piece in pieces]

    def _by_chance(self, text: bytes, rng: random.Random) -> list[bytes]:
        """A seeded spelling; falls back to the longest where chance leads nowhere."""
        out: list[bytes] = []
        place = 0
        while place < len(text):
            sizes = range(1, min(self._longest, len(text) - place) + 1)
            fitting = [n for n in sizes if text[place : place + n] in self._ids]
            if not fitting:
                return self.longest(text)
            size = rng.choice(fitting)
            out.append(text[place : place + size])
            place += size
        return out


def accepts(matcher: Matcher, ids: Sequence[int]) -> tuple[bool, int | None]:
    """(whether the matcher takes all tokens and calls the text complete, the step it failed at)."""
    if matcher.error is not None:
        return False, 0
    for step, token in enumerate(ids):
        if not matcher.consume(token):
            return False, step
    if not matcher.accepting():
        return False, len(ids)
    return True, None


def outcome(wanted: bool, got: bool, text: bytes, language: ByteGrammar) -> dict[str, object]:
    """`verdict` (`ok`, `valid_refused`, `invalid_accepted`) and whose fault it is.

    The byte-level grammar decides between them: where it sides with the file, the builder is to
    blame; where it sides with the matcher, the engine.
    """
    if wanted == got:
        return {"verdict": "ok", "cause": "none"}
    by_bytes = language.match(text).complete
    return {
        "verdict": "valid_refused" if wanted else "invalid_accepted",
        "cause": "builder" if by_bytes == wanted else "engine",
    }
