"""One instance of a schema walked through a builder's masks, and whose fault a failure is.

Each token must be allowed by the mask and taken; at the end the text must be complete, with an id
allowed on which the runtime stops. What a canonical tokenization forces is allowed by design: a
mask with one forced token whose true bytes the text goes on with refuses no other spelling of it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from ..engines.protocol import Matcher, allowed_ids
from ..vocab.vocabulary import Vocabulary


class Verdict(StrEnum):
    """What became of an instance in one split, or of a whole schema."""

    OK = "ok"
    VALID_REFUSED = "valid_refused"
    INVALID_ACCEPTED = "invalid_accepted"
    NO_STOP = "no_stop"
    """Accepted, and no id is allowed on which the runtime stops."""
    COMPILE_REFUSED = "compile_refused"
    LIMIT = "limit"
    """A mask could not be computed: the engine came to a limit of its own."""
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    BUILDER_REFUSED = "builder_refused"
    LOAD_REFUSED = "load_refused"
    UNREADABLE = "unreadable"
    """The collection's file holds no such schema."""


class Cause(StrEnum):
    """Whose fault it is."""

    BUILDER = "builder"
    ENGINE = "engine"
    NONE = "none"


class End(StrEnum):
    """How a walk came to its end."""

    ACCEPTED = "accepted"
    NO_STOP = "no_stop"
    MASKED = "masked"
    """The mask does not allow the token."""
    CONSUME = "consume"
    """The mask allows the token, and it is refused."""
    INCOMPLETE = "incomplete"
    """Every token was taken, and the text is not complete."""
    NO_MASK = "no_mask"
    LATE = "late"


@dataclass(frozen=True)
class Walked:
    """How far a walk went."""

    end: End
    step: int | None = None
    """The step it ended at, the number of tokens for the end itself; None where all went well."""


@dataclass
class Meter:
    """Processor time that one thread spends in the engine, nanoseconds.

    Not wall time: a thread that comes back from the engine may have to wait for the others.
    """

    masks: list[int] = field(default_factory=list[int])
    """Of each mask."""
    first: int = 0
    """From the start of compiling to the first mask."""
    engine: int = 0
    """Of everything."""

    @contextmanager
    def on(self) -> Generator[None]:
        """Count this block, which is all the engine's."""
        begun = time.thread_time_ns()
        try:
            yield
        finally:
            self.engine += time.thread_time_ns() - begun

    def percentile(self, share: float) -> int | None:
        """The mask time that this share of the masks does not exceed."""
        ordered = sorted(self.masks)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None


class Peeking(Matcher, Protocol):
    """A matcher whose masks need not be copied to be looked at."""

    def allows(self, token: int) -> bool | None:
        """Whether the mask has a token; None when it cannot be computed, as for `mask`."""
        ...


def walk(
    matcher: Peeking,
    ids: Sequence[int],
    text: bytes,
    vocabulary: Vocabulary,
    meter: Meter,
    deadline: float,
) -> Walked:
    """Walk `ids`, which write `text`, to the end; `deadline` is by `time.monotonic()`."""
    rendered, masks, place, cpu = vocabulary.rendered, meter.masks, 0, time.thread_time_ns
    for step, token in enumerate(ids):
        if time.monotonic() > deadline:
            return Walked(End.LATE, step)
        spent = cpu()
        allowed = matcher.allows(token)
        masks.append(cpu() - spent)
        if allowed is None:
            return Walked(End.NO_MASK, step)
        if not allowed and not _forced(matcher, text[place:], vocabulary):
            return Walked(End.MASKED, step)
        taken = matcher.consume(token)
        meter.engine += cpu() - spent
        if not taken:
            return Walked(End.CONSUME, step)
        place += len(rendered[token])
    with meter.on():
        accepting = matcher.accepting()
        mask = matcher.mask() if accepting else None
    if not accepting:
        return Walked(End.INCOMPLETE, len(ids))
    if mask is None:
        return Walked(End.NO_MASK, len(ids))
    ends = vocabulary.end_ids
    if ends and ends.isdisjoint(allowed_ids(mask, vocabulary.n_tokens).tolist()):
        return Walked(End.NO_STOP, len(ids))
    return Walked(End.ACCEPTED)


def _forced(matcher: Matcher, rest: bytes, vocabulary: Vocabulary) -> bool:
    """Whether the mask is one forced token that writes what the text goes on with."""
    mask = matcher.mask()
    if mask is None:
        return False
    allowed = allowed_ids(mask, vocabulary.n_tokens)
    if allowed.size != 1 or matcher.forced()[:1] != [int(allowed[0])]:
        return False
    piece = vocabulary.rendered[int(allowed[0])]
    return bool(piece) and rest.startswith(piece)


def judge(valid: bool, walked: Walked, by_bytes: bool, by_truth: bool) -> tuple[Verdict, Cause]:
    """A walk's verdict and whose fault it is.

    `by_bytes`: whether the grammar over single bytes accepts the text. `by_truth`: whether a table
    of true bytes, tokenized greedily, comes past the step where this walk ended. A builder is to
    blame where both side with the file against it; a limit is the engine's, whoever meets it.
    """
    if walked.end is End.LATE:
        return Verdict.TIMEOUT, Cause.ENGINE
    if walked.end is End.NO_MASK:
        return Verdict.LIMIT, Cause.ENGINE
    accepted = walked.end in {End.ACCEPTED, End.NO_STOP}
    if valid and walked.end is End.NO_STOP:
        return Verdict.NO_STOP, Cause.BUILDER
    if valid == accepted:
        return Verdict.OK, Cause.NONE
    if accepted:
        return Verdict.INVALID_ACCEPTED, Cause.ENGINE if by_bytes else Cause.BUILDER
    return Verdict.VALID_REFUSED, Cause.BUILDER if by_bytes and by_truth else Cause.ENGINE
