"""From a server's answer to a verdict: the text against the grammar, and whether it was enforced.

Of a server only the text is seen, and the ids where it tells them: what its token table claims,
and at which step it lost the constraint, is not. A right text does not show that anything was
enforced; for that there are sentinel cases, whose answer no model gives by luck.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ..audit.token_oracle import TokenOracle
from ..grammars import checkers
from ..grammars.case import Case
from ..grammars.languages import ByteGrammar
from ..model.names import SENTINEL
from ..model.verdicts import Bytes, Cause, Facts, Lost, Verdict, judge
from .judge_transcript import Judged, does_not_compile, objection_of, state_of
from .servers.answer import Answer

_CONSTANT = re.compile(rb"[a-z0-9]{12,}")
_TRACE = 4
"""Bytes in a row of a constant that show that the grammar had a say."""


@dataclass(frozen=True)
class Bench:
    """What an answer is judged with."""

    grammar: ByteGrammar
    oracle: TokenOracle
    rendered: Sequence[bytes]
    """The bytes a runtime renders for each id."""
    layout: bool = True
    """Whether the grammar's layout is promised too; else what the checker accepts is valid."""
    enforces: bool = True
    """Whether the target's sentinel showed that the grammar has a say."""


def engaged(case: Case, answer: Answer) -> bool | None:
    """Whether a sentinel's constant shows in the answer; None where the case shows nothing.

    Spaces are looked through: a table that gets them wrong still enforces something.
    """
    if case.suite != SENTINEL or case.invalid_grammar or answer.text is None:
        return None
    constant = _CONSTANT.search(case.grammar.text.encode())
    if constant is None:
        return None
    text = b"".join(_data(answer.text).split())
    word = constant[0]
    return any(word[i : i + _TRACE] in text for i in range(len(word) - _TRACE + 1))


def judge_answer(case: Case, answer: Answer, bench: Bench) -> Judged:
    """The verdict of one answer."""
    if answer.text is None:
        return _unanswered(case, answer, bench)
    output, pieces = _output(answer, bench.rendered)
    state, n_legal = state_of(bench.grammar, output)
    objection = objection_of(case, output, state)
    if not bench.layout and state is not Bytes.UNJUDGED and objection is None:
        state = Bytes.VALID
    nothing = _nothing_fits(bench, output, pieces, n_legal) if state is Bytes.INVALID else None
    lost = _lost(answer, bench, nothing)
    verdict = judge(
        Facts(
            end=answer.end,
            lost=lost,
            bytes=state,
            checker_agrees=objection is None,
            stop_allowed=True,  # not seen; what ends at the limit is cut, and no more is known
            oracle_empty=nothing is not None,
        )
    )
    culprit = None if verdict is Verdict.OK else _culprit(pieces, n_legal)
    return Judged(
        verdict=verdict,
        cause=_cause(case, verdict, lost, nothing),
        text_valid=objection is None,
        output=output,
        n_legal=n_legal,
        culprit=culprit,
        reason=_reason(verdict, answer, lost, n_legal, objection) + _hints(case, answer, verdict),
    )


def _unanswered(case: Case, answer: Answer, bench: Bench) -> Judged:
    verdict = judge(Facts(end=answer.end))
    refused = verdict is Verdict.GRAMMAR_ERROR and bench.grammar.error is not None
    return Judged(
        verdict=verdict,
        cause=does_not_compile(case) if refused else Cause.RUNTIME,
        text_valid=False,
        output=b"",
        n_legal=None,
        culprit=None,
        reason=answer.said,
    )


def _data(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _output(answer: Answer, rendered: Sequence[bytes]) -> tuple[bytes, list[bytes] | None]:
    """(the text as bytes, the bytes of each step if its ids tell them).

    JSON cannot carry bytes that are no UTF-8: a server puts U+FFFD there, and the ids have them.
    """
    assert answer.text is not None
    data = _data(answer.text)
    ids = answer.tokens
    if ids is None or not all(0 <= token < len(rendered) for token in ids):
        return data, None
    pieces = [rendered[token] for token in ids]
    whole = b"".join(pieces)
    if whole == data or whole.decode("utf-8", "replace") == answer.text:
        return whole, pieces
    return data, None  # such as a text cut at a stop word: what was received counts


def _nothing_fits(
    bench: Bench, output: bytes, pieces: list[bytes] | None, n_legal: int | None
) -> Cause | None:
    """Why, where the text left the grammar, nothing could go on; None where something could."""
    at = _culprit(pieces, n_legal)
    prefix = output[:n_legal] if pieces is None or at is None else b"".join(pieces[:at])
    state = bench.grammar.after(prefix)
    if state is None or state.complete():
        return None
    if not any(state.fits([byte]) for byte in range(256)):
        return Cause.GRAMMAR
    if pieces is None or bench.oracle.legal_in(state).any():
        return None
    return Cause.VOCABULARY


def _lost(answer: Answer, bench: Bench, nothing: Cause | None) -> Lost:
    if bench.grammar.error is not None:
        return Lost.COMPILE
    if answer.errors or nothing is not None:
        return Lost.MASK
    return Lost.NO if bench.enforces else Lost.IGNORED


def _culprit(pieces: list[bytes] | None, n_legal: int | None) -> int | None:
    """The step whose bytes first leave the grammar."""
    if pieces is None or n_legal is None:
        return None
    ends = accumulate(map(len, pieces))
    return next((i for i, end in enumerate(ends) if end > n_legal), None)


_CAUSES = {
    Verdict.OK: Cause.NONE,
    Verdict.TRUNCATED: Cause.NONE,
    Verdict.CHECKER_DISAGREES: Cause.ENGINE,
    Verdict.CRASHED: Cause.RUNTIME,
}


def _cause(case: Case, verdict: Verdict, lost: Lost, nothing: Cause | None) -> Cause:
    """Where the fault lies, as far as it shows from outside."""
    if verdict in _CAUSES:
        return _CAUSES[verdict]
    if verdict is Verdict.IMPOSSIBLE:
        return nothing or Cause.UNKNOWN
    if lost is Lost.IGNORED:
        return Cause.RUNTIME
    return does_not_compile(case) if lost is Lost.COMPILE else Cause.UNKNOWN


def _reason(
    verdict: Verdict, answer: Answer, lost: Lost, n_legal: int | None, objection: str | None
) -> str:
    leaves = f"the text leaves the grammar at byte {n_legal}"
    where = leaves if n_legal is not None else f"the checker refuses the text: {objection}"
    match verdict:
        case Verdict.OK:
            return ""
        case Verdict.UNENFORCED if lost is Lost.COMPILE:
            return "the grammar does not compile and the server answered without it"
        case Verdict.UNENFORCED if lost is Lost.IGNORED:
            return "the server answers as if there were no grammar: its sentinel shows no trace"
        case Verdict.UNENFORCED:
            return f"the engine gave up, the server went on; {where}"
        case Verdict.IMPOSSIBLE:
            return f"no text goes on at byte {n_legal}, and the server went its own way"
        case Verdict.SILENT_CORRUPTION:
            return f"{where}, and no engine error is seen"
        case Verdict.EARLY_STOP:
            return "the server ended the text before it was complete"
        case Verdict.TRUNCATED:
            return "the limit of tokens was hit before the text ended"
        case Verdict.CHECKER_DISAGREES:
            return f"the grammar accepts the text, the checker does not: {objection}"
        case _:
            return answer.said


def _hints(case: Case, answer: Answer, verdict: Verdict) -> str:
    """What else is to be known of an answer."""
    hints: list[str] = []
    if verdict is not Verdict.OK and answer.aside:
        valid = checkers.check(case.check, _data(answer.aside).strip()) is None
        hints.append(
            "the text beside it (reasoning) would be right: the grammar went to the wrong place"
            if valid
            else "there is text beside it (reasoning)"
        )
    if answer.unlike:
        hints.append("asked alone it answered otherwise than among other requests")
    return "".join(f"; {hint}" for hint in hints)
