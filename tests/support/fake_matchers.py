"""Matchers that follow a script, over a vocabulary of 40 tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pipeline.engines.protocol import Mask
from pipeline.generation.cell import Cell

N = 40
"""Size of the fake vocabulary: not a multiple of 32, so that masks have padding bits."""
STOP = 7
WORDS = -(-N // 32)


def mask_of(*ids: int) -> Mask:
    bits = np.zeros(WORDS * 32, np.uint8)
    bits[list(ids)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


EVERY_BIT = np.full(WORDS, 0xFFFFFFFF, np.uint32)


def logits(*best: int) -> np.ndarray:
    """Logits with `best` in descending order on top; the others fall with their id."""
    row = -np.arange(N, dtype=np.float32)
    for rank, token in enumerate(best):
        row[token] = 100 - rank
    return row


@dataclass
class Fake:
    """A matcher that follows a script: one mask per step, and the tokens that it refuses."""

    masks: Sequence[Mask | None]
    refuses: frozenset[int] = frozenset()
    forces: tuple[int, ...] = ()
    error: str | None = None
    raised: str | None = None
    consumed: list[int] = field(default_factory=list[int])
    masked: int = 0
    closed: bool = False

    def mask(self) -> Mask | None:
        assert self.error is None, "a failed matcher was called again"
        self.masked += 1
        found = self.masks[min(len(self.consumed), len(self.masks) - 1)]
        if found is None:
            self.error = "the mask failed"
        return found

    def consume(self, token: int) -> bool:
        assert self.error is None, "a failed matcher was called again"
        if token in self.refuses:
            self.error = f"token {token} refused"
            return False
        self.consumed.append(token)
        return True

    def accepting(self) -> bool:
        return False

    def stopped(self) -> bool:
        return False

    def forced(self) -> list[int]:
        return [*self.forces]

    def clone(self) -> Fake:
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True


def refuses_on_consume(*tokens: int) -> Fake:
    return Fake([mask_of(1, 2, 3, STOP)], refuses=frozenset(tokens))


def crashes_on_mask(at: int) -> Fake:
    return Fake([*[mask_of(1, 2, 3)] * at, None])


def empty_mask(at: int = 0) -> Fake:
    return Fake([*[mask_of(1, 2, 3)] * at, mask_of()])


def never_compiles() -> Fake:
    return Fake([], error="no such rule")


def only_stop() -> Fake:
    return Fake([mask_of(STOP)])


def cell(matcher: Fake, *, drop: bool = True, max_tokens: int = 6, key: str = "a") -> Cell:
    return Cell(key, (1,), lambda: matcher, max_tokens, frozenset({STOP, 9}), drop, N)
