"""From evidence to a verdict: one judgement for what was decoded here and what a server answered.

The evidence comes from a transcript (`judge_transcript`) or from an answer (`judge_answer`). The
verdict, the fields of the outcome, and all causes and reasons that both know are given here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

from ..audit.token_oracle import TokenOracle
from ..grammars import checkers
from ..grammars.case import Case
from ..grammars.checkers import Unchecked
from ..grammars.languages import ByteGrammar
from ..model.outcome import Facts, judge
from ..model.verdicts import Bytes, Cause, End, Lost, Verdict


@dataclass(frozen=True)
class Judged:
    """A cell's outcome."""

    verdict: Verdict
    cause: Cause
    text_valid: bool
    """Whether the independent checker accepts the output, even if only by luck."""
    output: bytes
    """As rendered."""
    n_legal: int | None
    """Bytes of the output that are a legal beginning; None where there is no byte-level grammar."""
    culprit: int | None
    """The step at which the constraint first went wrong; None where it never did."""
    reason: str
    """One line a person understands; empty for `ok`."""


@dataclass(frozen=True)
class Text:
    """What came out, against the grammar over bytes and the independent checker."""

    output: bytes
    """As rendered."""
    pieces: Sequence[bytes] | None
    """Rendered bytes of each step; None where the steps are not known."""
    state: Bytes
    n_legal: int | None
    """See `Judged.n_legal`."""
    objection: str | None
    """What the independent checker says against the output."""

    @staticmethod
    def of(case: Case, grammar: ByteGrammar, output: bytes, pieces: Sequence[bytes] | None) -> Text:
        """Hold an output against the grammar and the checker of its case."""
        state, n_legal = _state_of(grammar, output)
        return Text(output, pieces, state, n_legal, _objection_of(case, output, state))

    @cached_property
    def leaves_at(self) -> int | None:
        """The step whose bytes first leave the grammar; None where none does or it is not seen."""
        if self.pieces is None or self.n_legal is None:
            return None
        lengths = accumulate(map(len, self.pieces))
        return next((i for i, length in enumerate(lengths) if length > self.n_legal), None)

    def before(self, step: int) -> bytes:
        """The bytes of the steps before one; the steps must be known."""
        assert self.pieces is not None
        return b"".join(self.pieces[:step])

    @property
    def leaves(self) -> str:
        """That the text leaves the grammar over bytes, in words."""
        return f"the text leaves the grammar at byte {self.n_legal}"


@dataclass(frozen=True, kw_only=True)
class Evidence(ABC):
    """What is known of a cell before its verdict is given."""

    case: Case
    text: Text
    end: End
    lost: Lost
    nothing_fits: Cause | None
    """See `why_nothing_fits`."""
    stop_allowed: bool
    unnoticed: ClassVar[str]
    """That no error was seen, in words."""
    went_on: ClassVar[str]
    """That the text went on, in words."""

    @property
    def culprit(self) -> int | None:
        """The step at which the constraint first went wrong, as far as it is seen."""
        return self.text.leaves_at

    @property
    def at(self) -> str:
        """The culprit in words, before what is said of it; empty where it is not seen."""
        return ""

    @property
    @abstractmethod
    def stuck(self) -> str:
        """Where nothing fits, and what was done there, in words."""

    @property
    @abstractmethod
    def n_tokens(self) -> int | None:
        """How many tokens came out, where it is known."""

    @abstractmethod
    def own_cause(self) -> Cause:
        """Where the fault lies where the verdict and a lost grammar do not tell it."""

    @abstractmethod
    def own_reason(self, verdict: Verdict) -> str:
        """The reason of a verdict that the two kinds of evidence tell in their own ways."""

    def judged(self) -> Judged:
        """The outcome."""
        text = self.text
        verdict = judge(
            Facts(
                end=self.end,
                lost=self.lost,
                bytes=text.state,
                checker_agrees=text.objection is None,
                stop_allowed=self.stop_allowed,
                oracle_empty=self.nothing_fits is not None,
            )
        )
        return Judged(
            verdict=verdict,
            cause=self._cause(verdict),
            text_valid=text.objection is None,
            output=text.output,
            n_legal=text.n_legal,
            culprit=None if verdict is Verdict.OK else self.culprit,
            reason=self._reason(verdict),
        )

    def _cause(self, verdict: Verdict) -> Cause:
        """Where the fault lies."""
        if verdict in _CAUSES:
            return _CAUSES[verdict]
        if verdict is Verdict.IMPOSSIBLE:
            return self.nothing_fits or Cause.UNKNOWN
        if self.lost is Lost.COMPILE:  # who wrote a suite can mend it; others' schemas are as is
            return Cause.ENGINE if self.case.imported else Cause.GRAMMAR
        return self.own_cause()

    def _reason(self, verdict: Verdict) -> str:
        """One line for a person."""
        match verdict:
            case Verdict.OK:
                return ""
            case Verdict.SILENT_CORRUPTION if self.text.n_legal is None:
                return f"the checker refuses the text, {self.unnoticed}: {self.text.objection}"
            case Verdict.SILENT_CORRUPTION:
                return f"{self.at}{self.text.leaves}, {self.unnoticed}"
            case Verdict.UNENFORCED if self.lost is Lost.COMPILE:
                return f"the grammar did not compile and {self.went_on} without it"
            case Verdict.IMPOSSIBLE:
                mine = self.nothing_fits is Cause.GRAMMAR
                who = "grammar has no text" if mine else "vocabulary has no token"
                return f"the {who} that goes on at {self.stuck}"
            case Verdict.TRUNCATED:
                limit = "tokens" if self.n_tokens is None else f"{self.n_tokens} tokens"
                return f"the limit of {limit} was hit before the text ended"
            case Verdict.CHECKER_DISAGREES:
                objection = self.text.objection
                return f"the grammar accepts the text, the checker does not: {objection}"
            case _:
                return self.own_reason(verdict)


_CAUSES = {
    Verdict.OK: Cause.NONE,
    Verdict.TRUNCATED: Cause.NONE,
    Verdict.CRASHED: Cause.RUNTIME,
    Verdict.TIMEOUT: Cause.RUNTIME,
    Verdict.NO_STOP: Cause.SPECIAL,
    Verdict.CHECKER_DISAGREES: Cause.ENGINE,
}
"""Verdicts that have but one cause."""


def why_nothing_fits(
    grammar: ByteGrammar, prefix: bytes, oracle: TokenOracle | None
) -> Cause | None:
    """Why nothing can go on after a prefix; None where something can, or the text is complete.

    The grammar's own fault if not even a single byte can, the vocabulary's if only no token can;
    without an `oracle` tokens are not looked at.
    """
    state = grammar.after(prefix)
    if state is None or state.complete():
        return None
    if not any(state.fits([byte]) for byte in range(256)):
        return Cause.GRAMMAR
    if oracle is None or oracle.legal_in(state).any():
        return None
    return Cause.VOCABULARY


def _state_of(grammar: ByteGrammar, output: bytes) -> tuple[Bytes, int | None]:
    """The bytes against the grammar, and how many of them are a legal beginning."""
    if grammar.no_oracle is not None:
        return Bytes.UNJUDGED, None
    match = grammar.match(output)
    if match.complete:
        return Bytes.VALID, match.n_legal
    return (Bytes.PREFIX if match.n_legal == len(output) else Bytes.INVALID), match.n_legal


def _objection_of(case: Case, output: bytes, state: Bytes) -> str | None:
    """What the independent checker says against an output; where there is none, the grammar."""
    if isinstance(case.check, Unchecked):
        return None if state is Bytes.VALID else "the grammar over bytes does not accept it"
    return checkers.check(case.check, output)
