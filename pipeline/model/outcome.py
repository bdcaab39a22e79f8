"""The verdict of a cell: one total function of the facts.

A verdict depends on facts only, never on messages or logs. `judge` is total: every combination of
facts has exactly one verdict, and a truth-table test checks all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from .verdicts import Bytes, End, Lost, Verdict


@dataclass(frozen=True)
class Facts:
    """All facts that a verdict depends on."""

    end: End
    lost: Lost = Lost.NO
    bytes: Bytes = Bytes.UNJUDGED
    checker_agrees: bool = False
    """Whether the independent checker accepts the rendered bytes."""
    stop_allowed: bool = False
    """Whether the last mask allowed an id on which the runtime stops."""
    oracle_empty: bool = False
    """Whether an empty or failed mask was right: the text is not complete, and no token of the
    vocabulary can come next."""


_DIRECT = {
    End.CRASHED: Verdict.CRASHED,
    End.TIMEOUT: Verdict.TIMEOUT,
    End.LOAD_REFUSED: Verdict.LOAD_REFUSED,
    End.BUILDER_REFUSED: Verdict.BUILDER_REFUSED,
    End.REFUSED: Verdict.GRAMMAR_ERROR,
    End.DECLINED: Verdict.REFUSED,
    End.BUSY: Verdict.BUSY,
    End.CLOSED: Verdict.CRASHED,
    End.FAILED: Verdict.CRASHED,
    End.GARBLED: Verdict.CRASHED,
}


def judge(facts: Facts) -> Verdict:
    """The verdict of a cell: the first matching row of the table in the README."""
    if facts.end in _DIRECT:
        return _DIRECT[facts.end]
    if facts.lost in (Lost.MASK, Lost.COMPILE) and facts.oracle_empty:
        return Verdict.IMPOSSIBLE  # the engine reports "no token fits" as a failed mask or grammar
    if facts.lost is not Lost.NO:
        if facts.end is not End.LOST:
            return Verdict.UNENFORCED
        return Verdict.GRAMMAR_ERROR if facts.lost is Lost.COMPILE else Verdict.STOPPED
    return _judge_enforced(facts)


def _judge_enforced(facts: Facts) -> Verdict:
    """The verdict if the constraint was not lost: the bytes and the end decide."""
    complete = facts.bytes is Bytes.VALID
    unjudged = facts.bytes is Bytes.UNJUDGED
    if facts.end is End.EMPTY_MASK and (facts.bytes is Bytes.PREFIX or unjudged):
        return Verdict.IMPOSSIBLE if facts.oracle_empty else Verdict.DEAD_END
    wrong = unjudged and facts.end is End.STOP_ID and not facts.checker_agrees
    if facts.bytes is Bytes.INVALID or wrong:
        return Verdict.SILENT_CORRUPTION
    if facts.end is End.STOP_ID and facts.bytes is Bytes.PREFIX:
        return Verdict.EARLY_STOP
    if facts.end is not End.STOP_ID:
        return Verdict.NO_STOP if complete and not facts.stop_allowed else Verdict.TRUNCATED
    return Verdict.OK if facts.checker_agrees else Verdict.CHECKER_DISAGREES
