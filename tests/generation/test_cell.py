"""Constrained decoding: the state machine of a cell, tested with tiny fakes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.engines.protocol import Mask
from pipeline.generation.cell import Cell, Loss, Step, Transcript
from pipeline.model.verdicts import End, Lost, Origin
from support.fake_matchers import (
    EVERY_BIT,
    STOP,
    Fake,
    N,
    cell,
    crashes_on_mask,
    empty_mask,
    logits,
    mask_of,
    never_compiles,
    only_stop,
    refuses_on_consume,
)
from support.toy import advance

steady = settings(derandomize=True, deadline=None, max_examples=100)


def drive(one: Cell, rows: Iterator[np.ndarray] | None = None) -> Transcript:
    """Run a cell to its end; the logits always prefer the same token unless `rows` is given."""
    while one.end is None:
        row = logits(2) if rows is None else next(rows)
        taken = advance(one, row)
        assert taken is None or one.steps[-1].token == taken
    return one.transcript()


# --- how a constraint is lost ---------------------------------------------------------------------


def test_refused_token_is_noticed_one_step_later_and_generation_continues() -> None:
    """The bridge ignores the result of consume; its next mask fails, and the matcher is freed."""
    matcher = refuses_on_consume(2)
    told = drive(cell(matcher, drop=True, max_tokens=4))
    assert told.loss == Loss(Lost.CONSUME, 1, "token 2 refused")
    assert [step.token for step in told.steps] == [2, 2, 2, 2]
    assert [step.origin for step in told.steps] == [Origin.CHOSEN] + [Origin.UNCONSTRAINED] * 3
    assert [step.n_allowed for step in told.steps] == [4, None, None, None]
    assert (told.end, told.stop_allowed) == (End.TOKEN_LIMIT, False)
    assert matcher.masked == 1, "a dropped matcher is not asked again"


def test_refused_token_ends_a_cell_that_stops() -> None:
    told = drive(cell(refuses_on_consume(2), drop=False))
    assert told.loss == Loss(Lost.CONSUME, 1, "token 2 refused")
    assert [step.token for step in told.steps] == [2]
    assert (told.end, told.stop_allowed) == (End.LOST, False)


@pytest.mark.parametrize("drop", [True, False])
def test_refused_token_at_the_limit_is_still_a_loss(drop: bool) -> None:
    told = drive(cell(refuses_on_consume(2), drop=drop, max_tokens=1))
    assert told.loss is not None
    assert told.loss.step == 1 == len(told.steps)
    assert told.end is (End.TOKEN_LIMIT if drop else End.LOST)


@pytest.mark.parametrize("drop", [True, False])
def test_refused_stop_id_ends_the_cell_without_a_loss(drop: bool) -> None:
    """After completion, consuming the end id can return -1; the runtime has already stopped."""
    matcher = refuses_on_consume(STOP)
    told = drive(cell(matcher, drop=drop), iter([logits(STOP)]))
    assert (told.end, told.loss) == (End.STOP_ID, None)
    assert told.stop_allowed


@pytest.mark.parametrize("at", [0, 1, 3])
def test_failed_mask_is_a_loss_at_its_own_step(at: int) -> None:
    told = drive(cell(crashes_on_mask(at), drop=True, max_tokens=5))
    assert told.loss == Loss(Lost.MASK, at, "the mask failed")
    origins = [step.origin for step in told.steps]
    assert origins == [Origin.CHOSEN] * at + [Origin.UNCONSTRAINED] * (5 - at)
    assert told.end is End.TOKEN_LIMIT
    stopped = drive(cell(crashes_on_mask(at), drop=False, max_tokens=5))
    assert stopped.loss == told.loss
    assert (len(stopped.steps), stopped.end) == (at, End.LOST)


def test_failed_mask_without_an_error_text_has_a_reason() -> None:
    class Mute(Fake):
        def mask(self) -> None:
            return None

    told = drive(cell(Mute([]), drop=False))
    assert told.loss is not None
    assert told.loss.message == "the mask cannot be computed"


def test_grammar_that_does_not_compile_is_lost_before_the_first_token() -> None:
    told = drive(cell(never_compiles(), drop=True, max_tokens=3))
    assert told.loss == Loss(Lost.COMPILE, 0, "no such rule")
    assert [step.origin for step in told.steps] == [Origin.UNCONSTRAINED] * 3
    stopped = drive(cell(never_compiles(), drop=False))
    assert stopped.loss == told.loss
    assert (stopped.steps, stopped.end) == ((), End.LOST)


def test_unconstrained_cell_stops_on_any_stop_id() -> None:
    told = drive(cell(never_compiles()), iter([logits(2), logits(9)]))
    assert [step.token for step in told.steps] == [2, 9]
    assert told.end is End.STOP_ID
    assert told.loss is not None
    assert not told.stop_allowed


def test_after_a_dropped_constraint_the_most_probable_token_is_taken() -> None:
    told = drive(cell(crashes_on_mask(0), max_tokens=2), iter([logits(N - 1), logits(0)]))
    assert [step.token for step in told.steps] == [N - 1, 0]


# --- what a mask allows ---------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("drop", [True, False])
def test_empty_mask_accepts_no_token_not_even_token_0(at: int, drop: bool) -> None:
    """A naive argmax over no tokens returns id 0, which on bert-bge looks like a normal end."""
    told = drive(cell(empty_mask(at), drop=drop))
    assert told.end is End.EMPTY_MASK
    assert [step.token for step in told.steps] == [2] * at
    assert (told.loss, told.stop_allowed) == (None, False)


def test_padding_bits_are_not_tokens() -> None:
    told = drive(cell(Fake([EVERY_BIT]), max_tokens=1), iter([logits(N - 1)]))
    assert told.steps == (Step(N - 1, N, Origin.CHOSEN),)
    only_padding = np.array([0, 0xFFFFFFFF << (N - 32) & 0xFFFFFFFF], np.uint32)
    assert drive(cell(Fake([only_padding]))).end is End.EMPTY_MASK


@steady
@given(
    allowed=st.sets(st.integers(0, N - 1), min_size=1),
    choices=st.lists(st.floats(-1024, 1024, width=32), min_size=N, max_size=N),
)
def test_the_most_probable_allowed_token_is_taken(allowed: set[int], choices: list[float]) -> None:
    one = cell(Fake([mask_of(*allowed) | np.array([0, 0xFFFFFF00], np.uint32)]), max_tokens=1)
    told = drive(one, iter([np.array(choices, np.float32)]))
    best = max(np.float32(choices[token]) for token in allowed)
    [step] = told.steps
    assert step.token == min(t for t in allowed if np.float32(choices[t]) == best)
    assert step.n_allowed == len(allowed)


def test_infinitely_improbable_logits_never_leave_the_mask() -> None:
    row = logits(2)
    row[[5, 6]] = -np.inf
    assert drive(cell(Fake([mask_of(5, 6)]), max_tokens=1), iter([row])).steps[0].token == 5


def test_origin_is_forced_only_if_the_engine_forces_the_token() -> None:
    for matcher, origin in (
        (Fake([mask_of(3)], forces=(3, 4)), Origin.FORCED),
        (Fake([mask_of(3)], forces=(4,)), Origin.CHOSEN),
        (Fake([mask_of(3)]), Origin.CHOSEN),
        (Fake([mask_of(3, 4)], forces=(3,)), Origin.CHOSEN),
    ):
        assert drive(cell(matcher, max_tokens=1)).steps[0].origin is origin


def test_observer_sees_each_mask_before_its_token() -> None:
    seen: list[tuple[int, list[int]]] = []

    def observe(one: Cell, mask: Mask) -> None:
        seen.append((len(one.steps), mask.tolist()))

    one = cell(Fake([mask_of(1, 2), mask_of(2), mask_of()]))
    one.observe = observe
    drive(one)
    assert seen[:2] == [(0, mask_of(1, 2).tolist()), (1, mask_of(2).tolist())]
    assert len(seen) <= 3, "at most the empty mask, once"


# --- how a cell ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [STOP, 9])
def test_every_stop_id_ends_the_cell(stop: int) -> None:
    told = drive(cell(Fake([mask_of(2, stop)])), iter([logits(2), logits(stop)]))
    assert [step.token for step in told.steps] == [2, stop]
    assert (told.end, told.stop_allowed) == (End.STOP_ID, True)


def test_only_a_stop_id_left() -> None:
    told = drive(cell(only_stop()))
    assert told.steps == (Step(STOP, 1, Origin.CHOSEN),)
    assert (told.end, told.stop_allowed) == (End.STOP_ID, True)


@pytest.mark.parametrize(
    ("beyond", "stop_allowed"),
    [
        (mask_of(1, STOP), True),
        (mask_of(9), True),
        (mask_of(1, 2), False),
        (mask_of(), False),
        (None, False),
    ],
)
def test_at_the_limit_the_next_mask_says_whether_it_could_have_ended(
    beyond: Mask | None, stop_allowed: bool
) -> None:
    told = drive(cell(Fake([mask_of(2), mask_of(2), beyond]), max_tokens=2))
    assert (len(told.steps), told.end) == (2, End.TOKEN_LIMIT)
    assert told.stop_allowed is stop_allowed
    assert told.loss is None, "nothing was lost within the limit"


def test_stop_id_as_the_last_token_is_a_stop_not_a_limit() -> None:
    told = drive(cell(Fake([mask_of(STOP)]), max_tokens=1))
    assert told.end is End.STOP_ID


def test_end_id_in_the_second_word_of_the_mask() -> None:
    masks = Fake([mask_of(2), mask_of(N - 1)])
    one = Cell("a", (1,), lambda: masks, 1, frozenset({N - 1}), True, N)
    assert drive(one).stop_allowed
