"""Walk a given text through a builder's matcher as tokens, and find the cause of a failure.

Each token must be allowed by the mask and consumed. At the end the text must be complete, and the
mask must allow an id on which the runtime stops. Forced tokens are allowed by design: a mask with
one forced token whose true bytes continue the text does not count as refusing another spelling.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from ..engines.protocol import Matcher, allowed_ids
from ..model.verdicts import Cause, InstanceEnd, InstanceVerdict
from ..vocab.vocabulary import Vocabulary


@dataclass(frozen=True)
class WalkResult:
    """How far a walk went."""

    end: InstanceEnd
    step: int | None = None
    """Index of the step that failed; the number of tokens if only the end failed; None if
    nothing failed.
    """

    @property
    def accepted(self) -> bool:
        """Whether every token was consumed and the text is complete. A stop id is not needed."""
        return self.end in {InstanceEnd.ACCEPTED, InstanceEnd.NO_STOP}


@dataclass
class Meter:
    """Processor time that one thread spends in the engine, in nanoseconds.

    Wall time would include waiting for other threads after a return from the engine.
    """

    masks: list[int] = field(default_factory=list[int])
    """Time of each mask."""
    first: int = 0
    """Time from the start of compiling to the first mask."""
    engine: int = 0
    """Total time in the engine."""

    @contextmanager
    def engine_time(self) -> Generator[None]:
        """Add the time of this block to `engine`."""
        begun = time.thread_time_ns()
        try:
            yield
        finally:
            self.engine += time.thread_time_ns() - begun

    def mask_allows(self, matcher: SingleTokenMatcher, token: int) -> bool | None:
        """Call `matcher.allows` and add its time to `masks`."""
        begun = time.thread_time_ns()
        allowed = matcher.allows(token)
        self.masks.append(time.thread_time_ns() - begun)
        return allowed

    def percentile(self, share: float) -> int | None:
        """The mask time (ns) that a share (0 to 1) of masks does not exceed; None without masks."""
        ordered = sorted(self.masks)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None


class SingleTokenMatcher(Matcher, Protocol):
    """A matcher that can test one token without copying its mask."""

    def allows(self, token: int) -> bool | None:
        """Whether the mask has a token; None when it cannot be computed, as for `mask`."""
        ...


def walk(
    matcher: SingleTokenMatcher,
    ids: Sequence[int],
    text: bytes,
    vocabulary: Vocabulary,
    meter: Meter | None = None,
    deadline: float = math.inf,
) -> WalkResult:
    """Walk the tokens `ids` to the end; their bytes are `text`.

    `deadline` is a time of `time.monotonic()`, in seconds. With a meter, each token must be in the
    mask before it is consumed, and the masks are timed. Without a meter, tokens are only consumed.
    """
    timer, place = meter or Meter(), 0
    for step, token in enumerate(ids):
        if time.monotonic() > deadline:
            return WalkResult(InstanceEnd.LATE, step)
        if meter is not None:
            with meter.engine_time():
                allowed = meter.mask_allows(matcher, token)
            if allowed is None:
                return WalkResult(InstanceEnd.NO_MASK, step)
            if not allowed and not _forced(matcher, text[place:], vocabulary):
                return WalkResult(InstanceEnd.MASKED, step)
        with timer.engine_time():
            taken = matcher.consume(token)
        if not taken:
            return WalkResult(InstanceEnd.CONSUME, step)
        place += len(vocabulary.rendered[token])
    with timer.engine_time():
        accepting = matcher.accepting()
        mask = matcher.mask() if accepting else None
    if not accepting:
        return WalkResult(InstanceEnd.NOT_ACCEPTING, len(ids))
    if mask is None and meter is not None:
        return WalkResult(InstanceEnd.NO_MASK, len(ids))
    ends, n_tokens = vocabulary.end_ids, vocabulary.n_tokens
    stops = set[int]() if mask is None else ends.intersection(allowed_ids(mask, n_tokens).tolist())
    return (
        WalkResult(InstanceEnd.NO_STOP, len(ids))
        if ends and not stops
        else WalkResult(InstanceEnd.ACCEPTED)
    )


def _forced(matcher: Matcher, rest: bytes, vocabulary: Vocabulary) -> bool:
    """Whether the mask is one forced token whose bytes continue the text."""
    mask = matcher.mask()
    if mask is None:
        return False
    allowed = allowed_ids(mask, vocabulary.n_tokens)
    if allowed.size != 1 or matcher.forced()[:1] != [int(allowed[0])]:
        return False
    piece = vocabulary.rendered[int(allowed[0])]
    return bool(piece) and rest.startswith(piece)


def judge(
    valid: bool,
    result: WalkResult,
    by_bytes: bool,
    by_truth: bool,
    by_validator: bool | None = None,
) -> tuple[InstanceVerdict, Cause]:
    """The verdict of a walk, and its cause.

    `by_bytes`: whether the grammar over single bytes accepts the text. `by_truth`: whether a table
    of true bytes, tokenized greedily, gets past the step where this walk ended. `by_validator`:
    whether an independent validator accepts the text; None if there is none.

    If the grammar over single bytes and the validator both disagree with the label `valid`, the
    label is wrong: the cause is the checker.

    A refused valid text is the builder's fault if both accept it, and else the engine's. An
    accepted invalid text is the engine's fault if `by_bytes` is true, and else the builder's. A
    missing stop id is the builder's fault. A limit or a timeout is always the engine's.
    """
    if result.end is InstanceEnd.LATE:
        return InstanceVerdict.TIMEOUT, Cause.ENGINE
    if result.end is InstanceEnd.NO_MASK:
        return InstanceVerdict.LIMIT, Cause.ENGINE
    accepted = result.accepted
    if valid and result.end is InstanceEnd.NO_STOP:
        return InstanceVerdict.NO_STOP, Cause.BUILDER
    if valid == accepted:
        return InstanceVerdict.OK, Cause.NONE
    wrong = InstanceVerdict.INVALID_ACCEPTED if accepted else InstanceVerdict.VALID_REFUSED
    if by_validator is not None and by_validator == by_bytes == accepted:
        return wrong, Cause.CHECKER
    if accepted:
        return wrong, Cause.ENGINE if by_bytes else Cause.BUILDER
    return wrong, Cause.BUILDER if by_bytes and by_truth else Cause.ENGINE
