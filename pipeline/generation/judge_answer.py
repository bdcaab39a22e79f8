"""Turn a server's answer into evidence: does the text obey the grammar, and was it enforced?

A server shows only the text, and some servers the ids. Its token table and the step at which it
lost the constraint are not visible. A correct text does not prove that the grammar was
enforced; sentinel cases do, because no model gives their answer by chance.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..audit.token_oracle import TokenOracle
from ..grammars import checkers
from ..grammars.case import Case
from ..grammars.languages import ByteGrammar
from ..model.names import SENTINEL
from ..model.verdicts import Bytes, Cause, Control, End, Lost, Verdict
from .judgement import Evidence, Judged, Text, why_nothing_fits
from .servers.answer import Answer

_CONSTANT = re.compile(rb"[a-z0-9]{12,}")
_TRACE = 4
"""Consecutive bytes of a constant that prove an effect of the grammar."""


@dataclass(frozen=True)
class Bench:
    """Everything that is needed to judge an answer."""

    grammar: ByteGrammar
    oracle: TokenOracle
    rendered: Sequence[bytes]
    """The bytes a runtime renders for each id."""
    layout: bool = True
    """Whether the interface also promises the grammar's layout; if not, every text that the
    checker accepts is valid."""
    enforces: bool = True
    """Whether the sentinel showed that the target enforces grammars."""

    def unknown(self, case: Case) -> bool:
        """Whether our engine does not compile the grammar, and another engine may well do."""
        return self.grammar.error is not None and not self.layout and not case.invalid_grammar


def shows_constant(case: Case, answer: Answer, grammar: ByteGrammar) -> bool | None:
    """Whether a sentinel's constant is in the answer; None if the case has none, or if the answer
    was cut at the token limit on a legal beginning.

    Spaces are ignored: a table with wrong spaces still enforces something.
    """
    if case.suite != SENTINEL or case.invalid_grammar or answer.text is None:
        return None
    constant = _CONSTANT.search(case.grammar.text.encode())
    if constant is None:
        return None
    text = b"".join(_data(answer.text).split())
    word = constant[0]
    shown = any(word[i : i + _TRACE] in text for i in range(len(word) - _TRACE + 1))
    if not shown and answer.end is End.TOKEN_LIMIT and grammar.no_oracle is None:
        data = _data(answer.text)
        if grammar.match(data).n_legal == len(data):
            return None
    return shown


@dataclass(frozen=True, kw_only=True)
class _Answered(Evidence):
    """Evidence of an answer: its text, its ids if reported, and the server's log."""

    answer: Answer
    no_error = "no engine error is seen"
    continued = "the server continued"

    @property
    def stuck(self) -> str:
        return f"byte {self.text.n_legal}; {self.continued} without the constraint"

    @property
    def n_tokens(self) -> int | None:
        return self.answer.n_tokens

    @property
    def _description(self) -> str:
        """A description of the text."""
        if self.text.state is Bytes.INVALID:
            return self.text.leaves
        if self.text.objection is not None:
            return f"the checker rejects the output: {self.text.objection}"
        return "the output is correct anyway"

    def own_cause(self) -> tuple[Cause, Control | None]:
        """`runtime` if the server returned no text or ignores grammars, else `unknown`."""
        blamed = self.answer.text is None or self.lost is Lost.IGNORED
        return (Cause.RUNTIME, Control.FACTS) if blamed else (Cause.UNKNOWN, None)

    def own_reason(self, verdict: Verdict) -> str:
        match verdict:
            case Verdict.UNENFORCED if self.lost is Lost.IGNORED:
                return "the server ignores the grammar: no sentinel answer shows its constant"
            case Verdict.UNENFORCED:
                return (
                    f"the engine reported an error and {self.continued} without the constraint; "
                    f"{self._description}"
                )
            case Verdict.EARLY_STOP:
                return "the server ended the output before it was complete"
            case _:
                return self.answer.said


def judge_answer(case: Case, answer: Answer, bench: Bench) -> Judged:
    """The verdict of one answer."""
    text = _text(case, answer, bench)
    nothing = _nothing_fits(bench, text) if text.state is Bytes.INVALID else None
    if checkers.accepts_nothing(case.check) and not text.output:
        nothing = Cause.GRAMMAR
    judged = _Answered(
        case=case,
        text=text,
        end=answer.end,
        lost=_lost(case, answer, bench, nothing),
        nothing_fits=nothing,
        stop_allowed=True,  # not visible; a text that ends at the limit is truncated
        answer=answer,
    ).judged()
    return replace(judged, reason=judged.reason + _hints(case, answer, judged.verdict))


def _text(case: Case, answer: Answer, bench: Bench) -> Text:
    """The text of an answer; without one it is unjudged, and not valid."""
    if answer.text is None:
        return Text(b"", None, Bytes.UNJUDGED, None, objection="there is no text")
    output, pieces = _output(answer, bench.rendered)
    if bench.unknown(case):
        # Another engine may well compile it: only the checker can judge.
        return Text(output, pieces, Bytes.UNJUDGED, None, checkers.check(case.check, output))
    text = Text.of(case, bench.grammar, output, pieces)
    if not bench.layout and text.state is not Bytes.UNJUDGED and text.objection is None:
        return replace(text, state=Bytes.VALID)
    return text


def _data(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _output(answer: Answer, rendered: Sequence[bytes]) -> tuple[bytes, list[bytes] | None]:
    """(text as bytes, bytes of each step or None if the ids do not match the text).

    JSON cannot carry bytes that are not UTF-8. A server puts U+FFFD there, but the ids keep the
    bytes.
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
    return data, None  # such as a text cut at a stop word: only the received text counts


def _nothing_fits(bench: Bench, text: Text) -> Cause | None:
    """Why no token could continue where the text left the grammar; None if one could."""
    if text.leaves_at is not None:
        return why_nothing_fits(bench.grammar, text.before(text.leaves_at), bench.oracle)
    oracle = None if text.pieces is None else bench.oracle
    return why_nothing_fits(bench.grammar, text.output[: text.n_legal], oracle)


def _lost(case: Case, answer: Answer, bench: Bench, nothing: Cause | None) -> Lost:
    if nothing is not None and bench.grammar.error is not None:
        return Lost.COMPILE
    if bench.grammar.error is not None and not bench.unknown(case):
        return Lost.COMPILE
    if answer.errors or nothing is not None:
        return Lost.MASK
    return Lost.NO if bench.enforces else Lost.IGNORED


def _hints(case: Case, answer: Answer, verdict: Verdict) -> str:
    """Further remarks on an answer."""
    if answer.text is None:
        return ""
    hints: list[str] = []
    if verdict is not Verdict.OK and answer.aside:
        valid = checkers.check(case.check, _data(answer.aside).strip()) is None
        hints.append(
            "the reasoning text is valid: the server constrained the reasoning and not the answer"
            if valid
            else "the answer has reasoning text too"
        )
    if verdict is not Verdict.OK and answer.tool:
        valid = checkers.check(case.check, _data(answer.tool).strip()) is None
        hints.append(
            "the arguments of the tool call are valid: the server put the answer there"
            if valid
            else "the answer has a tool call too"
        )
    if answer.note:
        hints.append(answer.note)
    if answer.unlike:
        hints.append("the answer differs if the request is sent alone")
    return "".join(f"; {hint}" for hint in hints)
