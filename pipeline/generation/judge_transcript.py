"""Turn a transcript into evidence: the rendered bytes, where they leave the grammar, and the cause.

Everything is judged on the bytes that a runtime renders, never on claimed bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..audit.token_oracle import TokenOracle
from ..engines.table import TokenTable
from ..grammars.case import Case
from ..grammars.languages import ByteGrammar
from ..model.verdicts import Cause, End, Lost, Origin, Verdict
from ..vocab.token_types import UNRENDERED
from ..vocab.vocabulary import Vocabulary
from .cell import Transcript
from .judgement import Evidence, Judged, Text, why_nothing_fits

Control = Callable[[], bool]
"""Whether a table of true bytes, tokenized greedily, has a mask where this cell's mask failed."""


@dataclass(frozen=True, kw_only=True)
class _Decoded(Evidence):
    """Evidence of a cell that was decoded in process: every step and every failure."""

    transcript: Transcript
    vocabulary: Vocabulary
    table: TokenTable
    control: Control
    no_error = "no error is raised"
    continued = "generation continued"

    @property
    def culprit(self) -> int | None:
        """The first step whose true bytes leave the grammar, or that lost the constraint.

        The runtime notices a refused token one step later; here the refused step counts.
        """
        loss = self.transcript.loss
        refused = None if loss is None else max(loss.step - (loss.kind is Lost.CONSUME), 0)
        left = self.text.leaves_at
        if left is not None and (refused is None or left < refused):
            return left
        judged = self.text.n_legal is not None
        if refused is None and judged and self.end is End.STOP_ID:
            return self.n_tokens - 1
        return refused

    @property
    def at(self) -> str:
        steps, culprit = self.transcript.steps, self.culprit
        if culprit is None:
            return ""
        if culprit == len(steps):
            return f"step {culprit}; "
        return f"step {culprit}: {self._token(steps[culprit].token)}; "

    @property
    def stuck(self) -> str:
        loss = self.transcript.loss
        if loss is None:
            return f"step {self.n_tokens}"
        then = "stopped" if self.end is End.LOST else "continued without the constraint"
        return f"step {loss.step}; the engine reported it and the runtime {then}"

    @property
    def n_tokens(self) -> int:
        return len(self.transcript.steps)

    def own_cause(self) -> Cause:
        """The first cause that applies: special token, tokenization, claimed bytes, engine."""
        steps, culprit, loss = self.transcript.steps, self.culprit, self.transcript.loss
        if loss is not None and loss.raised is not None:
            return Cause.TOKENIZE
        if culprit is None:
            return Cause.UNKNOWN
        masked = loss is not None and loss.kind is Lost.MASK and culprit == loss.step
        # At a failed mask no token is to blame: the token taken there had no mask.
        taken = () if masked else steps[culprit : culprit + 1]
        for step in taken:
            hidden = self.vocabulary.attrs[step.token] & UNRENDERED
            if hidden or step.token in self.vocabulary.end_ids:
                return Cause.SPECIAL
            if step.origin is Origin.FORCED and self.text.leaves_at == culprit:
                return Cause.TOKENIZE
        if any(self._claims_wrong(step.token) for step in (*steps[:culprit], *taken)):
            return Cause.BYTES
        if masked and self.control():  # the difference to the control is the cause
            return Cause.BYTES if self.table.tokenize is None else Cause.TOKENIZE
        if masked:
            return Cause.ENGINE
        return Cause.TOKENIZE if taken and taken[0].origin is Origin.FORCED else Cause.ENGINE

    def own_reason(self, verdict: Verdict) -> str:
        match verdict:
            case Verdict.UNENFORCED:
                lost_at = self.transcript.loss.step if self.transcript.loss else 0
                lost = f"the constraint was lost at step {lost_at}"
                if self.transcript.loss and self.transcript.loss.raised:
                    lost += f", because the tokenization raised {self.transcript.loss.raised},"
                return f"{self.at}{lost} and {self.continued} without it"
            case Verdict.STOPPED:
                return f"{self.at}the constraint was lost and generation stopped"
            case Verdict.GRAMMAR_ERROR:
                return "the grammar did not compile and the runtime refused it"
            case Verdict.EARLY_STOP:
                return f"{self.at}the runtime stopped before the output was complete"
            case Verdict.NO_STOP:
                return "the output is complete, but no id is allowed on which the runtime stops"
            case Verdict.DEAD_END:
                but = ", but legal tokens exist" if self.text.n_legal is not None else ""
                return f"the mask allows no token at step {self.n_tokens}{but}"
            case Verdict.TIMEOUT:
                return f"the time limit (engine.case_limit) was hit after {self.n_tokens} tokens"
            case _:
                return verdict.value

    def _claims_wrong(self, token: int) -> bool:
        return self.table.claimed[token] != self.vocabulary.true_bytes[token]

    def _token(self, token: int) -> str:
        claimed, true = self.table.claimed[token], self.vocabulary.true_bytes[token]
        shown = f"token {token} {_quote(true)}"
        wrong = self._claims_wrong(token)
        return f"{shown} (the table says {_quote(claimed)})" if wrong else shown


def evaluate(
    case: Case,
    transcript: Transcript,
    vocabulary: Vocabulary,
    table: TokenTable,
    grammar: ByteGrammar,
    oracle: TokenOracle,
    control: Control,
) -> Judged:
    """Judge one cell. `control` is called only if a mask failed and no claimed bytes explain it."""
    pieces = [vocabulary.rendered[step.token] for step in transcript.steps]
    text = Text.of(case, grammar, b"".join(pieces), pieces)
    masked = _masked_at(transcript)
    return _Decoded(
        case=case,
        text=text,
        end=transcript.end,
        lost=transcript.loss.kind if transcript.loss else Lost.NO,
        nothing_fits=(
            None if masked is None else why_nothing_fits(grammar, text.before(masked), oracle)
        ),
        stop_allowed=transcript.stop_allowed,
        transcript=transcript,
        vocabulary=vocabulary,
        table=table,
        control=control,
    ).judged()


def _masked_at(transcript: Transcript) -> int | None:
    """The step at which the mask was empty or failed; None if there is none."""
    loss = transcript.loss
    if loss is not None:
        return loss.step if loss.kind is Lost.MASK else None
    return len(transcript.steps) if transcript.end is End.EMPTY_MASK else None


def _quote(data: bytes) -> str:
    return repr(data)[1:]
