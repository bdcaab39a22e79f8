"""How a text is cut into tokens: as the runtime cuts it, greedily, and as nobody would."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeline.replay import Spelling
from pipeline.vocabulary import Vocabulary

NAMES = ("canonical", "greedy", "random")

_ANCHOR = b"\n"
"""Stands before a text to see how the runtime cuts it in the middle of an output, where no
tokenizer puts a space of its own."""
_LEAD = 4
"""Tokens among which an anchor and a space before it end."""


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
