"""Given texts walked through a builder's matcher as tokens: accepted, or refused where.

A text is spelt by byte-exact token sequences: the longest token at each place, and seeded
spellings that no tokenizer would choose. Accepting includes the end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.constraint import Matcher, allowed_ids
from pipeline.oracle import ByteGrammar
from pipeline.vocabulary import Vocabulary


class Spelling:
    """Token sequences whose rendered bytes are exactly a text."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids: dict[bytes, list[int]] = {}
        for token, piece in enumerate(vocabulary.rendered):
            if piece and token not in vocabulary.end_ids:
                self._ids.setdefault(piece, []).append(token)
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
        return [self._ids[piece][0] for piece in self.longest(text)]

    def spellings(self, text: bytes, rng: random.Random) -> Iterator[tuple[str, list[int]]]:
        """(name, ids) of each spelling the vocabulary can write: longest, and two by chance.

        Of several ids of the same bytes the first is the longest spelling's; chance draws any.
        """
        wanted = [("longest", self.longest(text))]
        wanted += [(f"random{i}", self._by_chance(text, rng)) for i in (1, 2)]
        for name, pieces in wanted:
            if all(piece in self._ids for piece in pieces):
                pick = rng.choice if name != "longest" else min
                yield name, [pick(self._ids[piece]) for piece in pieces]

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


@dataclass(frozen=True)
class Replayed:
    """How far a matcher went along a spelling."""

    accepted: bool
    """Whether it took all tokens and calls the text complete."""
    failed_at: int | None
    """The step it failed at, the number of tokens where only the end is missing; None for none."""
    may_stop: bool = False
    """Whether the mask of the complete text allows an id on which the runtime stops."""


def accepts(matcher: Matcher, ids: Sequence[int], vocabulary: Vocabulary) -> Replayed:
    """Walk a spelling to its end, the end itself included."""
    if matcher.error is not None:
        return Replayed(False, 0)
    for step, token in enumerate(ids):
        if not matcher.consume(token):
            return Replayed(False, step)
    if not matcher.accepting():
        return Replayed(False, len(ids))
    mask = matcher.mask()
    allowed = set[int]() if mask is None else {*allowed_ids(mask, vocabulary.n_tokens)}
    may_stop = not vocabulary.end_ids or bool(vocabulary.end_ids & allowed)
    return Replayed(True, None if may_stop else len(ids), may_stop)


def outcome(wanted: bool, got: Replayed, text: bytes, language: ByteGrammar) -> dict[str, object]:
    """`verdict` (`ok`, `valid_refused`, `invalid_accepted`, `no_stop`) and whose fault it is.

    The byte-level grammar decides between them: where it sides with the file, the builder is to
    blame; where it sides with the matcher, the engine. `no_stop` is a text that is accepted, and
    after which no id is allowed on which the runtime stops: the builder named the wrong end.
    """
    if wanted == got.accepted:
        if wanted and not got.may_stop:
            return {"verdict": "no_stop", "cause": "builder"}
        return {"verdict": "ok", "cause": "none"}
    by_bytes = language.match(text).complete
    return {
        "verdict": "valid_refused" if wanted else "invalid_accepted",
        "cause": "builder" if by_bytes == wanted else "engine",
    }
