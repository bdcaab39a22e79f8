"""The verdict is one total function: every combination of facts is checked against a table."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from pipeline.model.outcome import Facts, judge
from pipeline.model.verdicts import BADNESS, Bytes, Cause, End, Lost, Verdict

V = Verdict
Row = tuple[Verdict, Callable[[Facts], bool]]


def _lost(f: Facts) -> bool:
    return f.lost is not Lost.NO


def _begun(f: Facts) -> bool:
    return f.bytes in {Bytes.PREFIX, Bytes.UNJUDGED}


# The table of the README, in the same order: the first matching row gives the verdict.
TABLE: list[Row] = [
    (V.CRASHED, lambda f: f.end in {End.CRASHED, End.CLOSED, End.FAILED, End.GARBLED}),
    (V.TIMEOUT, lambda f: f.end is End.TIMEOUT),
    (V.LOAD_REFUSED, lambda f: f.end is End.LOAD_REFUSED),
    (V.BUILDER_REFUSED, lambda f: f.end is End.BUILDER_REFUSED),
    (V.GRAMMAR_ERROR, lambda f: f.end is End.REFUSED),
    (V.REFUSED, lambda f: f.end is End.DECLINED),
    (V.BUSY, lambda f: f.end is End.BUSY),
    (V.IMPOSSIBLE, lambda f: f.lost in {Lost.MASK, Lost.COMPILE} and f.oracle_empty),
    (V.GRAMMAR_ERROR, lambda f: f.lost is Lost.COMPILE and f.end is End.LOST),
    (V.UNENFORCED, lambda f: _lost(f) and f.end is not End.LOST),
    (V.STOPPED, _lost),
    (
        V.IMPOSSIBLE,
        lambda f: f.end is End.EMPTY_MASK and _begun(f) and f.oracle_empty,
    ),
    (V.DEAD_END, lambda f: f.end is End.EMPTY_MASK and _begun(f)),
    (V.SILENT_CORRUPTION, lambda f: f.bytes is Bytes.INVALID),
    (
        V.SILENT_CORRUPTION,
        lambda f: f.bytes is Bytes.UNJUDGED and f.end is End.STOP_ID and not f.checker_agrees,
    ),
    (V.EARLY_STOP, lambda f: f.end is End.STOP_ID and f.bytes is Bytes.PREFIX),
    (
        V.NO_STOP,
        lambda f: f.end is not End.STOP_ID and f.bytes is Bytes.VALID and not f.stop_allowed,
    ),
    (V.TRUNCATED, lambda f: f.end is not End.STOP_ID),
    (V.CHECKER_DISAGREES, lambda f: not f.checker_agrees),
    (V.OK, lambda f: True),
]


def test_truth_table() -> None:
    seen: set[Verdict] = set()
    for facts in product(End, Lost, Bytes, (False, True), (False, True), (False, True)):
        case = Facts(*facts)
        expected = next(verdict for verdict, fits in TABLE if fits(case))
        assert judge(case) is expected, case
        seen.add(expected)
    assert seen == set(Verdict), "every verdict can be reached"


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        (Facts(End.STOP_ID, Lost.NO, Bytes.VALID, True, True), V.OK),
        (Facts(End.STOP_ID, Lost.NO, Bytes.VALID, False, True), V.CHECKER_DISAGREES),
        (Facts(End.STOP_ID, Lost.NO, Bytes.PREFIX, False, True), V.EARLY_STOP),
        (Facts(End.STOP_ID, Lost.NO, Bytes.INVALID, False, True), V.SILENT_CORRUPTION),
        (Facts(End.TOKEN_LIMIT, Lost.NO, Bytes.VALID, True, True), V.TRUNCATED),
        (Facts(End.TOKEN_LIMIT, Lost.NO, Bytes.VALID, True, False), V.NO_STOP),
        (Facts(End.EMPTY_MASK, Lost.NO, Bytes.VALID, True, False), V.NO_STOP),
        (Facts(End.STOP_ID, Lost.CONSUME, Bytes.VALID, True), V.UNENFORCED),
        (Facts(End.LOST, Lost.CONSUME, Bytes.PREFIX), V.STOPPED),
        (Facts(End.LOST, Lost.COMPILE), V.GRAMMAR_ERROR),
        (Facts(End.TOKEN_LIMIT, Lost.COMPILE), V.UNENFORCED),
    ],
)
def test_right_by_luck_is_not_enforced_and_other_plain_cases(
    facts: Facts, verdict: Verdict
) -> None:
    assert judge(facts) is verdict


def test_order_of_badness_is_as_written() -> None:
    worst_first = sorted(Verdict, key=lambda verdict: -BADNESS[verdict])
    assert [verdict.value for verdict in worst_first] == [
        "silent_corruption",
        "unenforced",
        "early_stop",
        "no_stop",
        "refused",
        "crashed",
        "timeout",
        "busy",
        "dead_end",
        "stopped",
        "grammar_error",
        "builder_refused",
        "load_refused",
        "checker_disagrees",
        "truncated",
        "impossible",
        "ok",
    ]


def test_causes_are_the_written_set() -> None:
    assert {cause.value for cause in Cause} == {
        "bytes",
        "tokenize",
        "special",
        "vocabulary",
        "grammar",
        "checker",
        "engine",
        "runtime",
        "builder",
        "none",
        "unknown",
    }
