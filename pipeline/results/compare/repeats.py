"""Sampled repeats of one cell: rates with confidence intervals, and McNemar's exact test on pairs.

Greedy cells have no repeats; for them nothing here is computed or shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from ...model.verdicts import Change, Verdict

_Z = 1.959963984540054
"""The 97.5th percentile of the normal distribution: intervals of 95 %."""


@dataclass(frozen=True)
class Rate:
    """How often a group of repeated cells was `ok` on each side."""

    scope: str
    pairs: int
    ok_before: int
    ok_after: int
    regressed: int
    fixed: int

    @property
    def before(self) -> tuple[float, float, float]:
        """(rate, low, high) before, as fractions of 1."""
        return (self.ok_before / self.pairs, *wilson(self.ok_before, self.pairs))

    @property
    def after(self) -> tuple[float, float, float]:
        """(rate, low, high) after, as fractions of 1."""
        return (self.ok_after / self.pairs, *wilson(self.ok_after, self.pairs))

    @property
    def p(self) -> float:
        """McNemar's exact p: the probability of at least this imbalance of flips by chance."""
        return mcnemar(self.regressed, self.fixed)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """(low, high) of Wilson's 95 % score interval of the rate `hits / n`; (0, 1) if n is 0."""
    if n == 0:
        return 0.0, 1.0
    rate, z2 = hits / n, _Z * _Z
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def mcnemar(worse: int, better: int) -> float:
    """The exact two-sided p of McNemar's test, from the numbers of pairs that flipped."""
    n, ways, tail = worse + better, 1, 0
    for k in range(min(worse, better) + 1):
        tail += ways
        ways = ways * (n - k) // (k + 1)
    return min(1.0, 2 * tail / 2**n)


def rates(cells: pl.DataFrame) -> tuple[Rate, ...]:
    """Rates of all repeated pairs, then of each tokenizer and suite; empty without repeats."""
    if "repeat" not in cells.columns:
        return ()
    pairs = cells.filter(
        pl.col("repeat").is_not_null()
        & pl.col("verdict_before").is_not_null()
        & pl.col("verdict_after").is_not_null()
    )
    one = ["target", "model", "tokenizer", "builder", "suite", "case"]
    pairs = pairs.filter(pl.len().over(one) > 1)
    return tuple(_rates(pairs)) if pairs.height else ()


def _rates(pairs: pl.DataFrame) -> Iterator[Rate]:
    yield _rate("all repeated cells", pairs)
    for (tokenizer, suite), group in pairs.sort("tokenizer", "suite").group_by(
        ["tokenizer", "suite"], maintain_order=True
    ):
        yield _rate(f"{tokenizer} {suite}", group)


def _rate(scope: str, pairs: pl.DataFrame) -> Rate:
    return Rate(
        scope=scope,
        pairs=pairs.height,
        ok_before=pairs.filter(verdict_before=Verdict.OK).height,
        ok_after=pairs.filter(verdict_after=Verdict.OK).height,
        regressed=pairs.filter(change=Change.REGRESSED).height,
        fixed=pairs.filter(change=Change.FIXED).height,
    )
