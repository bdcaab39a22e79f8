"""From a transcript to a verdict: what was rendered, where it left the grammar, and whose fault.

Everything is judged on the bytes a runtime renders, never on what the builder claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from ..audit.token_oracle import TokenOracle
from ..engines.table import TokenTable
from ..grammars import checkers
from ..grammars.case import Case
from ..grammars.checkers import Unchecked
from ..grammars.languages import ByteGrammar
from ..model.verdicts import Bytes, Cause, End, Facts, Lost, Verdict, judge
from ..vocab.token_types import UNRENDERED
from ..vocab.vocabulary import Vocabulary
from .cell import Origin, Transcript


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


Control = Callable[[], bool]
"""Whether a table of true bytes, tokenized greedily, still has a mask where this cell's failed."""


@dataclass(frozen=True)
class _Evidence:
    """What is known of a cell before its cause and reason are told."""

    case: Case
    transcript: Transcript
    vocabulary: Vocabulary
    table: TokenTable
    pieces: Sequence[bytes]
    """Rendered bytes of each step."""
    state: Bytes
    n_legal: int | None
    objection: str | None
    """What the independent checker says against the output."""
    control: Control
    nothing_fits: Cause | None

    @property
    def lost(self) -> Lost:
        loss = self.transcript.loss
        return loss.kind if loss else Lost.NO

    @cached_property
    def culprit(self) -> int | None:
        """The first step whose true bytes leave the grammar, or that lost the constraint.

        A refused token is met one step later by the runtime; here the refused step is named.
        """
        loss = self.transcript.loss
        refused = None if loss is None else max(loss.step - (loss.kind is Lost.CONSUME), 0)
        left = self._leaves_at()
        if left is not None and (refused is None or left < refused):
            return left
        judged = self.n_legal is not None
        if refused is None and judged and self.transcript.end is End.STOP_ID:
            return len(self.pieces) - 1
        return refused

    def _leaves_at(self) -> int | None:
        """The step whose bytes first leave the grammar."""
        if self.n_legal is None:
            return None
        lengths = accumulate(map(len, self.pieces))
        return next((i for i, length in enumerate(lengths) if length > self.n_legal), None)

    def cause(self, verdict: Verdict) -> Cause:
        """Where the fault lies: what came first of a wrong special, tokenization or byte claim."""
        if verdict in _CAUSES:
            return _CAUSES[verdict]
        if verdict is Verdict.IMPOSSIBLE:
            return self.nothing_fits or Cause.UNKNOWN
        if self.lost is Lost.COMPILE:
            return does_not_compile(self.case)
        steps, culprit, loss = self.transcript.steps, self.culprit, self.transcript.loss
        if culprit is None:
            return Cause.UNKNOWN
        masked = loss is not None and loss.kind is Lost.MASK and culprit == loss.step
        # At a failed mask no token is to blame: the one taken there was taken without it.
        taken = () if masked else steps[culprit : culprit + 1]
        for step in taken:
            hidden = self.vocabulary.attrs[step.token] & UNRENDERED
            if hidden or step.token in self.vocabulary.end_ids:
                return Cause.SPECIAL
            if step.origin is Origin.FORCED and self._leaves_at() == culprit:
                return Cause.TOKENIZE
        if any(self._claims_wrong(step.token) for step in (*steps[:culprit], *taken)):
            return Cause.BYTES
        if masked and self.control():  # what differs from the control is to blame
            return Cause.BYTES if self.table.tokenize is None else Cause.TOKENIZE
        if masked:
            return Cause.ENGINE
        return Cause.TOKENIZE if taken and taken[0].origin is Origin.FORCED else Cause.ENGINE

    def _claims_wrong(self, token: int) -> bool:
        return self.table.claimed[token] != self.vocabulary.true_bytes[token]

    def reason(self, verdict: Verdict) -> str:
        """One line for a person."""
        steps, loss, at = self.transcript.steps, self.transcript.loss, f"step {self.culprit}"
        if self.culprit is not None and self.culprit < len(steps):
            at += ": " + self._token(steps[self.culprit].token)
        match verdict:
            case Verdict.OK:
                return ""
            case Verdict.SILENT_CORRUPTION if self.n_legal is None:
                return f"the checker refuses the text, unnoticed: {self.objection}"
            case Verdict.SILENT_CORRUPTION:
                return f"{at}; the text leaves the grammar at byte {self.n_legal}, unnoticed"
            case Verdict.UNENFORCED if self.lost is Lost.COMPILE:
                return "the grammar did not compile and generation went on without it"
            case Verdict.UNENFORCED:
                lost_at = loss.step if loss else 0
                return f"{at}; the constraint was lost at step {lost_at} and generation went on"
            case Verdict.STOPPED:
                return f"{at}; the constraint was lost and generation stopped"
            case Verdict.GRAMMAR_ERROR:
                return "the grammar did not compile and the runtime refused it"
            case Verdict.EARLY_STOP:
                return f"{at}; the runtime stopped on it before the text was complete"
            case Verdict.NO_STOP:
                return "the text is complete, but no id that ends it is allowed"
            case Verdict.DEAD_END:
                though = ", though legal ones exist" if self.n_legal is not None else ""
                return f"no token is allowed after step {len(steps)}{though}"
            case Verdict.IMPOSSIBLE:
                who = (
                    "grammar has no text that goes"
                    if self.nothing_fits is Cause.GRAMMAR
                    else ("vocabulary has no token that goes")
                )
                after = "; the engine said so, and the runtime went its own way" if loss else ""
                return f"the {who} on at step {loss.step if loss else len(steps)}{after}"
            case Verdict.TRUNCATED:
                return f"the limit of {len(steps)} tokens was hit before the text ended"
            case Verdict.TIMEOUT:
                return f"after {len(steps)} tokens its time was up (engine.case_limit)"
            case Verdict.CHECKER_DISAGREES:
                return f"the grammar accepts the text, the checker does not: {self.objection}"
            case _:
                return verdict.value

    def _token(self, token: int) -> str:
        claimed, true = self.table.claimed[token], self.vocabulary.true_bytes[token]
        shown = f"token {token} {_quote(true)}"
        return f"{shown}, claimed to be {_quote(claimed)}" if self._claims_wrong(token) else shown


_CAUSES = {
    Verdict.OK: Cause.NONE,
    Verdict.TRUNCATED: Cause.NONE,
    Verdict.TIMEOUT: Cause.RUNTIME,
    Verdict.NO_STOP: Cause.SPECIAL,
    Verdict.CHECKER_DISAGREES: Cause.ENGINE,
}


def evaluate(
    case: Case,
    transcript: Transcript,
    vocabulary: Vocabulary,
    table: TokenTable,
    grammar: ByteGrammar,
    oracle: TokenOracle,
    control: Control,
) -> Judged:
    """Judge one cell. `control` is asked only where a mask failed and no byte claim is to blame."""
    pieces = [vocabulary.rendered[step.token] for step in transcript.steps]
    output = b"".join(pieces)
    state, n_legal = state_of(grammar, output)
    evidence = _Evidence(
        case=case,
        transcript=transcript,
        vocabulary=vocabulary,
        table=table,
        pieces=pieces,
        state=state,
        n_legal=n_legal,
        objection=objection_of(case, output, state),
        control=control,
        nothing_fits=_nothing_fits(transcript, pieces, grammar, oracle),
    )
    verdict = judge(
        Facts(
            end=transcript.end,
            lost=evidence.lost,
            bytes=state,
            checker_agrees=evidence.objection is None,
            stop_allowed=transcript.stop_allowed,
            oracle_empty=evidence.nothing_fits is not None,
        )
    )
    return Judged(
        verdict=verdict,
        cause=evidence.cause(verdict),
        text_valid=evidence.objection is None,
        output=output,
        n_legal=n_legal,
        culprit=None if verdict is Verdict.OK else evidence.culprit,
        reason=evidence.reason(verdict),
    )


def objection_of(case: Case, output: bytes, state: Bytes) -> str | None:
    """What the independent checker says against an output; where there is none, the grammar."""
    if isinstance(case.check, Unchecked):
        return None if state is Bytes.VALID else "the grammar over bytes does not accept it"
    return checkers.check(case.check, output)


def does_not_compile(case: Case) -> Cause:
    """Whose fault that is: whoever wrote a suite can mend it, a schema of others is as it is."""
    return Cause.ENGINE if case.imported else Cause.GRAMMAR


def state_of(grammar: ByteGrammar, output: bytes) -> tuple[Bytes, int | None]:
    """The bytes against the grammar, and how many of them are a legal beginning."""
    if grammar.no_oracle is not None:
        return Bytes.UNJUDGED, None
    match = grammar.match(output)
    if match.complete:
        return Bytes.VALID, match.n_legal
    return (Bytes.PREFIX if match.n_legal == len(output) else Bytes.INVALID), match.n_legal


def _nothing_fits(
    transcript: Transcript, pieces: Sequence[bytes], grammar: ByteGrammar, oracle: TokenOracle
) -> Cause | None:
    """Why, where the mask was empty or failed, no token could go on; None where one could.

    The vocabulary's fault, or the grammar's own if not even a single byte could.
    """
    loss = transcript.loss
    if loss is not None and loss.kind is Lost.MASK:
        prefix = b"".join(pieces[: loss.step])
    elif loss is None and transcript.end is End.EMPTY_MASK:
        prefix = b"".join(pieces)
    else:
        return None
    state = grammar.after(prefix)
    if state is None or state.complete() or oracle.legal_in(state).any():
        return None
    some_byte = any(state.fits([byte]) for byte in range(256))
    return Cause.VOCABULARY if some_byte else Cause.GRAMMAR


def _quote(data: bytes) -> str:
    return repr(data)[1:]
