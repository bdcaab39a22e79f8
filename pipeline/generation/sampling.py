"""Choose tokens from logits: the most probable, or one drawn by seed. Knows no grammar.

A draw depends only on the seed, the cell and the step. So the same seed gives the same text in any
batch, and builders are compared on equal draws.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .cell import Allowed
from .settings import Sampling

Logits = npt.NDArray[np.float32]

_BLOCK = 4 * 2**20
"""Bytes of logits that are processed together, so that they stay in the processor's cache."""


@dataclass(frozen=True)
class Choice:
    """One token to choose."""

    row: int
    """Index of its row in the logits."""
    allowed: Allowed | None
    """None if every token is allowed; else at least one is."""
    draw: str
    """Name of the draw: the cell and its step."""


def choose(logits: Logits, choices: Sequence[Choice], sampling: Sampling) -> list[int]:
    """The chosen token id for each choice, in order.

    `logits` has the shape (n_rows, n_vocab); several choices may share a row. A temperature above 0
    draws each token; else the most probable one is taken.
    """
    if sampling.temperature > 0:
        return [_drawn(logits[choice.row], choice, sampling) for choice in choices]
    n_rows = max(1, _BLOCK // (logits.shape[1] * logits.itemsize))
    out: list[int] = []
    for begin in range(0, len(choices), n_rows):
        out += _likeliest(logits, choices[begin : begin + n_rows])
    return out


def _likeliest(logits: Logits, choices: Sequence[Choice]) -> list[int]:
    """The most probable allowed token for each choice; the lowest id in a tie."""
    allowed = np.ones((len(choices), logits.shape[1]), np.bool_)
    for place, choice in enumerate(choices):
        if choice.allowed is not None:
            allowed[place] = choice.allowed
    best = np.where(allowed, logits[[choice.row for choice in choices]], -np.inf).argmax(axis=1)
    legal = np.take_along_axis(allowed, best[:, None], axis=1)[:, 0]
    # If every allowed logit is -inf, argmax finds the first token, allowed or not.
    return np.where(legal, best, allowed.argmax(axis=1)).tolist()


def _drawn(logits: Logits, choice: Choice, sampling: Sampling) -> int:
    """Draw one allowed token by its probability at the temperature; sums run in id order."""
    allowed = choice.allowed
    ids = np.arange(len(logits)) if allowed is None else np.flatnonzero(allowed)
    heat = logits[ids].astype(np.float64) / sampling.temperature
    top = heat.max()
    if not np.isfinite(top):
        return int(ids[0])
    weights = np.exp(heat - top)
    if sampling.top_p < 1:
        order = np.argsort(-weights, kind="stable")
        reached = np.cumsum(weights[order])
        kept = np.sort(order[: _place(reached, sampling.top_p) + 1])
        ids, weights = ids[kept], weights[kept]
    reached = np.cumsum(weights)
    return int(ids[_place(reached, _uniform(choice.draw, sampling.seed))])


def _place(reached: npt.NDArray[np.float64], share: float) -> int:
    """First index at which the cumulated weights exceed a share of their sum."""
    wanted = share * float(reached[-1])
    return min(int(np.count_nonzero(reached <= wanted)), len(reached) - 1)


def _uniform(draw: str, seed: int) -> float:
    """A number in [0, 1), determined by the seed and the name of the draw."""
    digest = hashlib.blake2b(f"{seed}/{draw}".encode(), digest_size=7).digest()
    return (int.from_bytes(digest, "big") >> 3) / 2**53
