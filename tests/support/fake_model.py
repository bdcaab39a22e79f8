"""A fake model: logits computed from the tokens, with the interface of a context."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial

import numpy as np
from hypothesis import settings

from pipeline.generation.cell import Cell, Transcript
from pipeline.generation.scheduler import Scheduler
from pipeline.native.context import Entry
from support.fake_matchers import (
    EVERY_BIT,
    STOP,
    Fake,
    N,
    crashes_on_mask,
    empty_mask,
    logits,
    mask_of,
    never_compiles,
    only_stop,
    refuses_on_consume,
)

steady = settings(derandomize=True, deadline=None, max_examples=100)

SHARED = tuple(range(20, 35))
"""A prefix that is long enough to be shared."""


class FakeContext:
    """A context whose logits depend only on the tokens of a sequence and their number."""

    def __init__(self, n_batch: int = 32, *, keeps: bool = True) -> None:
        """`keeps`: whether the end of a sequence can be removed; recurrent models cannot."""
        self.n_batch = n_batch
        self.keeps = keeps
        self.held: dict[int, list[int]] = {}
        self.calls: list[list[Entry]] = []
        self._rows = np.zeros((64, N), np.float32)

    def decode(self, entries: Sequence[Entry]) -> np.ndarray:
        assert 0 < len(entries) <= self.n_batch
        sequences = sorted({sequence for _, _, sequence, _ in entries})
        if all(position > 0 for _, position, _, _ in entries):
            assert sequences == [*range(sequences[0], sequences[-1] + 1)], "neighbours only"
        self.calls.append([*entries])
        self._rows[:] = np.nan  # earlier logits are invalid now
        n_wanted = 0
        for token, position, sequence, wanted in entries:
            text = self.held.setdefault(sequence, [])
            assert position == len(text), "a gap or an overlap in the sequence"
            text.append(token)
            if wanted:
                self._rows[n_wanted] = logits((sum(text) * 7 + len(text)) % N)
                n_wanted += 1
        return self._rows[:n_wanted]

    def copy(self, source: int, target: int) -> None:
        assert source != target
        assert not self.held.get(target)
        self.held[target] = [*self.held[source]]

    def keep(self, sequence: int, n: int) -> bool:
        assert 0 < n < len(self.held[sequence])
        if self.keeps:
            del self.held[sequence][n:]
        return self.keeps

    def clear(self, sequence: int) -> None:
        self.held[sequence] = []

    @property
    def n_decoded(self) -> int:
        return sum(map(len, self.calls))


def fake_cells() -> list[Cell]:
    prompts = [(1, 2), (1, 2), (3,), (*SHARED, 1), (5, 6, 7, 8, 9, 10), (*SHARED, 2), (1, 2)]
    scripts = [
        Fake([EVERY_BIT]),
        refuses_on_consume(3),
        empty_mask(2),
        never_compiles(),
        Fake([EVERY_BIT], refuses=frozenset(range(0, N, 3))),
        crashes_on_mask(1),
        only_stop(),
        Fake([mask_of(5), mask_of(6), EVERY_BIT, mask_of(5), EVERY_BIT], forces=(5,)),
        Fake([mask_of(5), mask_of(5), mask_of(STOP)], forces=(5,)),
        Fake([EVERY_BIT, mask_of(4), mask_of(4), mask_of()], forces=(4,)),
    ]
    return [
        Cell(
            f"c{i}",
            prompts[i % len(prompts)],
            partial(copy, script),
            3 + i,
            frozenset({STOP}),
            i % 2 == 0,
            N,
        )
        for i, script in enumerate(scripts)
    ]


def told_by(
    cells: Sequence[Cell],
    context: object,
    n_seq: int,
    *,
    fast: bool = False,
    threads: int = 1,
    min_two_rows: bool = False,
) -> dict[str, Transcript]:
    scheduler = Scheduler(
        context,  # type: ignore[arg-type]
        n_seq=n_seq,
        n_mask_threads=threads,
        fast_forward=fast,
        min_two_rows=min_two_rows,
    )
    out = [(one.key, one.transcript()) for one in scheduler.run(cells)]
    assert len({key for key, _ in out}) == len(out) == len(cells), "each cell comes out once"
    return dict(out)
