"""Verdicts: a closed set, one written order of badness, one total function that gives them.

A verdict is read from facts, never out of prose or a log. `judge` is total: every combination of
facts has exactly one verdict, and a truth-table test walks them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Every way a cell can come out, worst for a comparison first."""

    SILENT_CORRUPTION = "silent_corruption"
    UNENFORCED = "unenforced"
    EARLY_STOP = "early_stop"
    NO_STOP = "no_stop"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    DEAD_END = "dead_end"
    STOPPED = "stopped"
    GRAMMAR_ERROR = "grammar_error"
    BUILDER_REFUSED = "builder_refused"
    LOAD_REFUSED = "load_refused"
    CHECKER_DISAGREES = "checker_disagrees"
    TRUNCATED = "truncated"
    IMPOSSIBLE = "impossible"
    OK = "ok"


BADNESS: dict[Verdict, int] = {verdict: len(Verdict) - i for i, verdict in enumerate(Verdict)}
"""How bad a verdict is; higher is worse. The order is that of the class."""


class Cause(StrEnum):
    """Where the fault of a cell lies."""

    BYTES = "bytes"
    TOKENIZE = "tokenize"
    SPECIAL = "special"
    VOCABULARY = "vocabulary"
    GRAMMAR = "grammar"
    ENGINE = "engine"
    RUNTIME = "runtime"
    NONE = "none"
    UNKNOWN = "unknown"


class End(StrEnum):
    """How a cell's decoding ended."""

    STOP_ID = "stop_id"
    """A token was chosen on which the runtime stops."""
    TOKEN_LIMIT = "token_limit"
    EMPTY_MASK = "empty_mask"
    """No token was allowed; nothing is chosen then, least of all token 0."""
    LOST = "lost"
    """The constraint was lost and the runtime refused to go on (`engine.on_error=stop`)."""
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    LOAD_REFUSED = "load_refused"
    BUILDER_REFUSED = "builder_refused"
    REFUSED = "refused"
    """A server refused the request (HTTP 4xx), or an imported case could not be read."""
    CLOSED = "closed"
    """The connection to a server broke off, or none was to be had."""
    FAILED = "failed"
    """A server failed (HTTP 5xx)."""
    GARBLED = "garbled"
    """A server answered with what is no answer."""


class Lost(StrEnum):
    """At what the constraint was lost."""

    NO = "no"
    COMPILE = "compile"
    MASK = "mask"
    CONSUME = "consume"
    IGNORED = "ignored"
    """Never had: the runtime answers as if no grammar had been given."""


class Bytes(StrEnum):
    """The rendered bytes against the byte-level grammar."""

    VALID = "valid"
    PREFIX = "prefix"
    INVALID = "invalid"
    UNJUDGED = "unjudged"
    """There is no byte-level grammar to judge by; the checker alone does."""


@dataclass(frozen=True)
class Facts:
    """All that a verdict is made of."""

    end: End
    lost: Lost = Lost.NO
    bytes: Bytes = Bytes.UNJUDGED
    checker_agrees: bool = False
    """Whether the independent checker accepts the rendered bytes."""
    stop_allowed: bool = False
    """Whether, at the end, an id was allowed on which the runtime stops."""
    oracle_empty: bool = False
    """Whether, where the mask was empty or failed, no token of the vocabulary could truly have
    come next and the text was not complete either."""


_DIRECT = {
    End.CRASHED: Verdict.CRASHED,
    End.TIMEOUT: Verdict.TIMEOUT,
    End.LOAD_REFUSED: Verdict.LOAD_REFUSED,
    End.BUILDER_REFUSED: Verdict.BUILDER_REFUSED,
    End.REFUSED: Verdict.GRAMMAR_ERROR,
    End.CLOSED: Verdict.CRASHED,
    End.FAILED: Verdict.CRASHED,
    End.GARBLED: Verdict.CRASHED,
}


def judge(facts: Facts) -> Verdict:
    """The verdict of a cell: the first row of the table in the README that fits."""
    if facts.end in _DIRECT:
        return _DIRECT[facts.end]
    if facts.lost is Lost.MASK and facts.oracle_empty:
        return Verdict.IMPOSSIBLE  # the engine reports "no token fits" as a failed mask
    if facts.lost is not Lost.NO:
        if facts.end is not End.LOST:
            return Verdict.UNENFORCED
        return Verdict.GRAMMAR_ERROR if facts.lost is Lost.COMPILE else Verdict.STOPPED
    return _judge_enforced(facts)


def _judge_enforced(facts: Facts) -> Verdict:
    """Nothing was lost: the bytes and the end decide."""
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
