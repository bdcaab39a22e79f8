"""Turn evidence into a verdict, in the same way for transcripts and for servers' answers.

The evidence comes from a transcript (`judge_transcript`) or from an answer (`judge_answer`). This
file computes the verdict, the fields of the outcome, and the causes and reasons that both share.
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
from ..grammars.checkers import Json, JsonValue, Unchecked
from ..grammars.languages import ByteGrammar
from ..model.outcome import Facts, judge
from ..model.verdicts import Bytes, Cause, Control, End, Lost, Verdict


@dataclass(frozen=True)
class Judged:
    """A cell's outcome."""

    verdict: Verdict
    cause: Cause
    cause_by: Control | None
    """What the cause rests on; None if there is no fault, or for a server."""
    text_valid: bool
    """Whether the independent checker accepts the output, even if only by luck."""
    output: bytes
    """As rendered."""
    n_legal: int | None
    """Bytes of the output that are a legal prefix; None if there is no byte-level grammar."""
    culprit: int | None
    """The step at which the constraint first went wrong; None if it never did."""
    reason: str
    """One sentence; empty for `ok`."""


@dataclass(frozen=True)
class Text:
    """The output, compared with the byte-level grammar and the independent checker."""

    output: bytes
    """As rendered."""
    pieces: Sequence[bytes] | None
    """Rendered bytes of each step; None if the steps are not known."""
    state: Bytes
    n_legal: int | None
    """See `Judged.n_legal`."""
    objection: str | None
    """The objection of the independent checker; None if it accepts the output."""

    @staticmethod
    def of(case: Case, grammar: ByteGrammar, output: bytes, pieces: Sequence[bytes] | None) -> Text:
        """Compare an output with the grammar and the checker of its case."""
        state, n_legal = _state_of(grammar, output)
        return Text(output, pieces, state, n_legal, _objection_of(case, output, state))

    @cached_property
    def leaves_at(self) -> int | None:
        """The step whose bytes first leave the grammar; None if none does or if unknown."""
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
        """Words for: the output leaves the byte-level grammar."""
        return f"the output leaves the grammar at byte {self.n_legal}"


@dataclass(frozen=True, kw_only=True)
class Evidence(ABC):
    """The facts about a cell before its verdict."""

    case: Case
    text: Text
    end: End
    lost: Lost
    nothing_fits: Cause | None
    """See `why_nothing_fits`."""
    stop_allowed: bool
    no_error: ClassVar[str]
    """Words for: no error was seen; they follow "and"."""
    continued: ClassVar[str]
    """Words for: generation continued."""

    @property
    def culprit(self) -> int | None:
        """The step at which the constraint first went wrong, if known."""
        return self.text.leaves_at

    @property
    def at(self) -> str:
        """Words for the culprit, at the start of a reason; empty if it is not known."""
        return ""

    @property
    @abstractmethod
    def stuck(self) -> str:
        """Words for: where nothing fits, and what followed."""

    @property
    @abstractmethod
    def n_tokens(self) -> int | None:
        """Number of tokens in the output, if known."""

    @abstractmethod
    def own_cause(self) -> tuple[Cause, Control | None]:
        """The cause and what it rests on, if the verdict and the loss do not determine it."""

    @abstractmethod
    def own_reason(self, verdict: Verdict) -> str:
        """The reason, for verdicts that each kind of evidence words in its own way."""

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
        cause, by = self._cause(verdict)
        return Judged(
            verdict=verdict,
            cause=cause,
            cause_by=None if cause is Cause.NONE else by,
            text_valid=text.objection is None,
            output=text.output,
            n_legal=text.n_legal,
            culprit=None if verdict is Verdict.OK else self.culprit,
            reason=self._reason(verdict),
        )

    def _cause(self, verdict: Verdict) -> tuple[Cause, Control | None]:
        """The cause, and what it rests on."""
        if verdict in _CAUSES:
            return _CAUSES[verdict], Control.FACTS
        if verdict is Verdict.IMPOSSIBLE:
            return self.nothing_fits or Cause.UNKNOWN, Control.FACTS
        if verdict is Verdict.CHECKER_DISAGREES:
            return (Cause.CHECKER if self._only_layout else Cause.ENGINE), Control.FACTS
        if self.lost is Lost.COMPILE:  # a suite of ours can be corrected; imported schemas cannot
            return (Cause.ENGINE if self.case.imported else Cause.GRAMMAR), Control.FACTS
        return self.own_cause()

    @property
    def _only_layout(self) -> bool:
        """Whether the checker only objects to the layout of JSON that is valid by its meaning."""
        wanted = self.case.check
        if not isinstance(wanted, Json) or isinstance(wanted, JsonValue):
            return False
        return checkers.check(JsonValue(wanted.schema), self.text.output) is None

    def _reason(self, verdict: Verdict) -> str:
        """The reason, in one sentence."""
        match verdict:
            case Verdict.OK:
                return ""
            case Verdict.SILENT_CORRUPTION if self.text.n_legal is None:
                return f"the checker rejects the output and {self.no_error}: {self.text.objection}"
            case Verdict.SILENT_CORRUPTION:
                return f"{self.at}{self.text.leaves} and {self.no_error}"
            case Verdict.UNENFORCED if self.lost is Lost.COMPILE:
                return f"the grammar did not compile and {self.continued} without it"
            case Verdict.IMPOSSIBLE:
                mine = self.nothing_fits is Cause.GRAMMAR
                what = "the grammar allows no next byte" if mine else "no token fits the grammar"
                return f"{what} at {self.stuck}"
            case Verdict.TRUNCATED:
                n = self.n_tokens
                limit = "the token limit" if n is None else f"the limit of {n} tokens"
                return f"{limit} was reached before the output ended"
            case Verdict.CHECKER_DISAGREES:
                objection = self.text.objection
                if self._only_layout:
                    return (
                        "the checker is narrower than the grammar: the JSON is valid by its "
                        f"meaning, but the checker wants the compact layout: {objection}"
                    )
                return f"the grammar accepts the output but the checker rejects it: {objection}"
            case _:
                return self.own_reason(verdict)


_CAUSES = {
    Verdict.OK: Cause.NONE,
    Verdict.TRUNCATED: Cause.NONE,
    Verdict.CRASHED: Cause.RUNTIME,
    Verdict.TIMEOUT: Cause.RUNTIME,
    Verdict.BUSY: Cause.RUNTIME,
    Verdict.REFUSED: Cause.NONE,
    Verdict.NO_STOP: Cause.SPECIAL,
}
"""Verdicts with only one possible cause."""


def why_nothing_fits(
    grammar: ByteGrammar, prefix: bytes, oracle: TokenOracle | None
) -> Cause | None:
    """Why nothing can continue a prefix; None if something can, or if the text is complete.

    The cause is the grammar if no byte can continue, and the vocabulary if bytes can but no token
    can. Without an `oracle` tokens are not checked.
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
    """(state of the bytes under the grammar, length of the longest legal prefix in bytes)."""
    if grammar.no_oracle is not None:
        return Bytes.UNJUDGED, None
    match = grammar.match(output)
    if match.complete:
        return Bytes.VALID, match.n_legal
    return (Bytes.PREFIX if match.n_legal == len(output) else Bytes.INVALID), match.n_legal


def _objection_of(case: Case, output: bytes, state: Bytes) -> str | None:
    """The objection of the independent checker to an output; without a checker, that of the
    grammar."""
    if isinstance(case.check, Unchecked):
        return None if state is Bytes.VALID else "the byte-level grammar does not accept it"
    return checkers.check(case.check, output)
