"""The scheduler with a fake model: batches, positions, prompts, forced tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from threading import Event, current_thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.generation.cell import Cell
from pipeline.generation.scheduler import Scheduler
from pipeline.generation.timings import Part, Stopwatch
from pipeline.model.verdicts import End, Origin
from pipeline.native.context import Entry
from support.fake_matchers import (
    EVERY_BIT,
    STOP,
    Fake,
    N,
    cell,
    mask_of,
    never_compiles,
    only_stop,
)
from support.fake_model import SHARED, FakeContext, fake_cells, steady, told_by


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("min_two_rows", [False, True])
@pytest.mark.parametrize("n_seq", [1, 2, 3, 7, 32])
def test_any_number_of_sequences_gives_the_same_text(
    n_seq: int, min_two_rows: bool, keeps: bool, fast: bool
) -> None:
    context = FakeContext(keeps=keeps)
    told = told_by(fake_cells(), context, n_seq, fast=fast, threads=2, min_two_rows=min_two_rows)
    assert told == told_by(fake_cells(), FakeContext(), 1)
    assert not any(context.held.values()), "every sequence was given back"
    assert max(context.held) < max(n_seq, 1 + min_two_rows)
    if min_two_rows:
        assert all(len(call) > 1 for call in context.calls)
        assert 1 not in {sum(entry[3] for entry in call) for call in context.calls}
    assert {one.end for one in told.values()} >= {End.EMPTY_MASK, End.LOST, End.STOP_ID}


def test_cell_that_stops_at_once_is_not_decoded() -> None:
    context = FakeContext()
    one = cell(never_compiles(), drop=False)
    assert told_by([one], context, 4, fast=True)["a"].steps == ()
    assert context.calls == []


def test_long_prompt_is_decoded_in_batches_with_logits_of_its_last_token_only() -> None:
    context = FakeContext(4)
    prompt = tuple(range(9))
    told_by([Cell("a", prompt, only_stop, 5, frozenset({STOP}), True, N)], context, 1)
    assert [len(call) for call in context.calls] == [4, 3, 2]
    assert [entry[3] for call in context.calls for entry in call] == [False] * 8 + [True]


def test_equal_prompts_are_decoded_once_and_copied() -> None:
    context = FakeContext(64)
    cells = [
        Cell(f"c{i}", (4, 5, 6), partial(Fake, [EVERY_BIT]), 3, frozenset(), True, N)
        for i in range(5)
    ]
    told = told_by(cells, context, 8)
    assert len({one.steps for one in told.values()}) == 1
    assert [len(call) for call in context.calls] == [3, 5, 5]


def long_beginnings() -> list[Cell]:
    return [
        Cell(f"c{i}", (*SHARED, i, 36), partial(Fake, [EVERY_BIT]), 2 + i % 3, frozenset(), True, N)
        for i in range(7)
    ]


@pytest.mark.parametrize("n_seq", [1, 2, 4, 8])
def test_long_shared_prefix_is_decoded_once_in_any_order(n_seq: int) -> None:
    """One cell waits for it, others copy it from a running cell, later ones find it decoded."""
    context = FakeContext(64)
    told = told_by(long_beginnings(), context, n_seq)
    assert told == told_by(long_beginnings(), FakeContext(), 1)
    beginnings = [e for call in context.calls for e in call if e[1] < len(SHARED)]
    assert len(beginnings) == len(SHARED)


def test_model_that_cannot_remove_only_the_end_decodes_every_prompt() -> None:
    context = FakeContext(64, keeps=False)
    told = told_by(long_beginnings(), context, 1)
    assert told == told_by(long_beginnings(), FakeContext(), 1)
    beginnings = [e for call in context.calls for e in call if e[1] < len(SHARED)]
    assert len(beginnings) == 7 * len(SHARED)


def test_forced_text_is_never_decoded() -> None:
    forced = [mask_of(5)] * 9
    for masks, n_decoded in (
        ([*forced, mask_of(STOP)], 0),  # no choice: not even the prompt is decoded
        ([EVERY_BIT, *forced, mask_of(STOP)], 1),  # a choice, then none
        ([*forced, EVERY_BIT, mask_of(STOP)], 10),  # before the one choice
    ):
        slow, fast = FakeContext(64), FakeContext(64)

        def one(masks: Sequence[np.ndarray] = masks) -> Cell:
            matcher = Fake(masks, forces=(5,))
            return Cell("a", (1,), lambda: matcher, 20, frozenset({STOP}), True, N)

        told = told_by([one()], fast, 1, fast=True)
        assert told == told_by([one()], slow, 1)
        assert fast.n_decoded == n_decoded
        assert sum(entry[3] for call in fast.calls for entry in call) == min(n_decoded, 1)
        assert slow.n_decoded == len(told["a"].steps)
        assert [step.origin for step in told["a"].steps].count(Origin.FORCED) == 9


@steady
@given(
    plan=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=9),
    n_seq=st.integers(1, 5),
    fast=st.booleans(),
)
def test_refilled_slots_never_change_a_text(
    plan: list[tuple[int, int]], n_seq: int, fast: bool
) -> None:
    def cells() -> list[Cell]:
        masks = [EVERY_BIT, mask_of(5), mask_of(5), EVERY_BIT]
        return [
            Cell(
                f"c{i}",
                (prompt, 1),
                partial(Fake, masks[i % 3 :], forces=(5,)),
                limit,
                frozenset({STOP}),
                True,
                N,
            )
            for i, (prompt, limit) in enumerate(plan)
        ]

    assert told_by(cells(), FakeContext(), n_seq, fast=fast) == told_by(cells(), FakeContext(), 1)


def test_cells_are_created_when_a_sequence_is_free() -> None:
    made: list[int] = []

    def cells() -> Iterator[Cell]:
        for i in range(9):
            made.append(i)
            yield Cell(f"c{i}", (i,), partial(Fake, [EVERY_BIT]), 3, frozenset(), True, N)

    context = FakeContext(64)
    ended = 0
    for _ in Scheduler(context, n_seq=2).run(cells()):  # type: ignore[arg-type]
        ended += 1
        assert len(made) <= ended + 2 + 2, "two run, two are made ready"
    assert ended == len(made) == 9


def test_grammars_of_cells_to_come_are_compiled_while_others_are_decoded() -> None:
    compiled = [Event() for _ in range(3)]
    threads: list[str] = []

    def made(i: int) -> Fake:
        threads.append(current_thread().name)
        compiled[i].set()
        return Fake([EVERY_BIT])

    class Patient(FakeContext):
        def decode(self, entries: Sequence[Entry]) -> np.ndarray:
            token, place, *_ = entries[0]
            if place == 0:
                assert compiled[min(token + 1, 2)].wait(60), "the next one is not compiled"
            return super().decode(entries)

    cells = [Cell(f"{i}", (i,), partial(made, i), 3, frozenset(), True, N) for i in range(3)]
    told_by(cells, Patient(), 1, fast=True)
    assert len(threads) == 3, "each grammar is compiled once"
    assert all(name.startswith("mask") for name in threads[1:])


def test_cells_that_are_never_yielded_are_closed() -> None:
    made: list[Fake] = []

    def another() -> Fake:
        made.append(Fake([EVERY_BIT]))
        return made[-1]

    cells = [Cell(f"{i}", (i,), another, 3 + i, frozenset(), True, N) for i in range(6)]
    running = Scheduler(FakeContext(), n_seq=2).run(cells)  # type: ignore[arg-type]
    given_out = next(running)
    running.close()  # type: ignore[attr-defined]
    assert len(made) >= 3
    assert [one.closed for one in made] == [one is not given_out.matcher for one in made]


def test_exception_of_a_mask_thread_is_raised() -> None:
    class Broken(Fake):
        def mask(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        told_by([cell(Broken([]))], FakeContext(), 1)


def test_all_time_is_accounted_for() -> None:
    stopwatch = Stopwatch()
    scheduler = Scheduler(FakeContext(), n_seq=3, stopwatch=stopwatch)  # type: ignore[arg-type]
    assert len(list(scheduler.run(fake_cells()))) == 10
    assert set(stopwatch.seconds) == set(Part)
    assert all(spent > 0 for spent in stopwatch.seconds.values())
