"""Turn a transcript into evidence: the rendered bytes, where they leave the grammar, and the cause.

Everything is judged on the bytes that a runtime renders, never on claimed bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..audit.controls import FaultKind, Found, Shown
from ..audit.token_oracle import TokenOracle
from ..engines.table import TokenTable
from ..grammars import checkers
from ..grammars.case import Case
from ..grammars.languages import ByteGrammar
from ..model.verdicts import Bytes, Cause, Control, End, Lost, Origin, Verdict
from ..vocab.token_types import UNRENDERED
from ..vocab.vocabulary import Vocabulary
from .cell import Transcript
from .judgement import Evidence, Judged, Text, why_nothing_fits

Experiment = Callable[[Shown], Found]
"""Finds the cause of a fault of this cell's builder over controls (`audit.controls`)."""

_NAMED = 3
"""Number of lost ids that a reason names."""


@dataclass(frozen=True, kw_only=True)
class _Decoded(Evidence):
    """Evidence of a cell that was decoded in process: every step and every failure."""

    transcript: Transcript
    vocabulary: Vocabulary
    table: TokenTable
    experiment: Experiment
    lost_ids: tuple[int, ...] = ()
    """At a failed or empty mask: the legal ids that were lost."""
    no_error = "no error is raised"
    continued = "generation continued"

    @property
    def culprit(self) -> int | None:
        """The first step whose true bytes leave the grammar, or whose token was refused.

        The runtime notices a refused token one step later; here the refused step counts. A failed
        mask has no culprit: no token was taken with it.
        """
        loss = self.transcript.loss
        refused = loss.step - 1 if loss and loss.kind is Lost.CONSUME and loss.step else None
        left = self.text.leaves_at
        if left is not None and (loss is None or left < loss.step):
            return left
        judged = self.text.n_legal is not None
        if loss is None and self.end is End.STOP_ID and (judged or self.asked_to_stop):
            return self.n_tokens - 1
        return refused

    @property
    def asked_to_stop(self) -> bool:
        """Whether the grammar itself names the special token on which the runtime stopped."""
        steps = self.transcript.steps
        if self.end is not End.STOP_ID or not steps or self.text.n_legal is not None:
            return False
        name = self.vocabulary.texts[steps[-1].token].decode("utf-8", "replace")
        return bool(name) and name in self.case.grammar.text

    @property
    def masked(self) -> bool:
        """Whether the first thing that went wrong is a mask that failed or allows nothing."""
        loss = self.transcript.loss
        failed = self.end is End.EMPTY_MASK if loss is None else loss.kind is Lost.MASK
        return failed and self.culprit is None

    @property
    def at(self) -> str:
        steps, culprit = self.transcript.steps, self.culprit
        if culprit is not None and culprit < len(steps):
            return f"step {culprit}: {self._token(steps[culprit].token)}; "
        return ""

    @property
    def _no_mask(self) -> str:
        """Words for a failed mask: the step, and the legal ids that were lost."""
        loss = self.transcript.loss
        step = self.n_tokens if loss is None else loss.step
        groups: dict[bytes, list[int]] = {}
        for token in self.lost_ids:
            if self._claims_wrong(token):
                groups.setdefault(self.table.claimed[token], []).append(token)
        told = [
            f"{_legal_ids(ids)} claimed as {_quote(claim)}"
            for claim, ids in sorted(groups.items(), key=lambda item: -len(item[1]))[:_NAMED]
        ]
        if not told and self.lost_ids:
            told = [f"{_legal_ids(self.lost_ids)} lost"]
        return f"no mask at step {step}" + (f": {', '.join(told)}" if told else "")

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

    def own_cause(self) -> tuple[Cause, Control | None]:
        """What the cell's own tokens show, or else the outcome of an experiment."""
        steps, culprit, loss = self.transcript.steps, self.culprit, self.transcript.loss
        if loss is not None and loss.raised is not None:
            return Cause.TOKENIZE, Control.FACTS
        if self.asked_to_stop:
            return Cause.GRAMMAR, Control.FACTS
        if culprit is not None:
            step = steps[culprit]
            hidden = self.vocabulary.attrs[step.token] & UNRENDERED
            if hidden or step.token in self.vocabulary.end_ids:
                return Cause.SPECIAL, Control.FACTS
            if step.origin is Origin.FORCED and self.text.leaves_at == culprit:
                return Cause.TOKENIZE, Control.FACTS
        lost_at = len(steps) if loss is None else loss.step
        before = steps[: lost_at if culprit is None else culprit + 1]
        if any(self._claims_wrong(step.token) for step in before):
            return Cause.BYTES, Control.FACTS
        shown = self._shown()
        if shown is None:
            return Cause.UNKNOWN, None
        found = self.experiment(shown)
        return found.cause, found.by

    def _shown(self) -> Shown | None:
        """The fault as an experiment needs it; None if no state shows it."""
        loss, culprit = self.transcript.loss, self.culprit
        taken = tuple(step.token for step in self.transcript.steps)
        if self.masked:
            step = self.n_tokens if loss is None else loss.step
            kind = FaultKind.EMPTY if loss is None else FaultKind.NO_MASK
            return Shown(kind, taken[:step])
        if culprit is None:
            return None
        left = self.text.leaves_at == culprit
        kind = FaultKind.ALLOWED if left else FaultKind.REFUSED
        return Shown(kind, taken[:culprit], taken[culprit])

    def own_reason(self, verdict: Verdict) -> str:
        match verdict:
            case Verdict.UNENFORCED:
                lost_at = self.transcript.loss.step if self.transcript.loss else 0
                lost = f"the constraint was lost at step {lost_at}"
                if self.masked:
                    lost = self._no_mask
                if self.transcript.loss and self.transcript.loss.raised:
                    lost += f", because the tokenization raised {self.transcript.loss.raised},"
                return f"{self.at}{lost} and {self.continued} without it"
            case Verdict.STOPPED if self.masked:
                return f"{self._no_mask}; generation stopped"
            case Verdict.STOPPED:
                return f"{self.at}the constraint was lost and generation stopped"
            case Verdict.GRAMMAR_ERROR:
                return "the grammar did not compile and the runtime refused it"
            case Verdict.EARLY_STOP if self.asked_to_stop:
                return (
                    f"{self.at}the grammar itself asks for this token, on which the runtime stops"
                )
            case Verdict.EARLY_STOP:
                return f"{self.at}the runtime stopped before the output was complete"
            case Verdict.NO_STOP:
                return "the output is complete, but no id is allowed on which the runtime stops"
            case Verdict.DEAD_END:
                but = ", but legal tokens exist" if self.text.n_legal is not None else ""
                lost = f" ({self._no_mask.partition(': ')[2]})" if self.lost_ids else ""
                return f"the mask allows no token at step {self.n_tokens}{but}{lost}"
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
    experiment: Experiment,
) -> Judged:
    """Judge one cell. `experiment` is called only if the cell's own tokens show no cause."""
    pieces = [vocabulary.rendered[step.token] for step in transcript.steps]
    text = Text.of(case, grammar, b"".join(pieces), pieces)
    masked = _masked_at(transcript)
    nothing = None if masked is None else why_nothing_fits(grammar, text.before(masked), oracle)
    if transcript.loss is not None and transcript.loss.kind is Lost.COMPILE:
        nothing = Cause.GRAMMAR if checkers.accepts_nothing(case.check) else None
    lost = () if masked is None or nothing else _legal(grammar, text.before(masked), oracle)
    found = _Decoded(
        case=case,
        text=text,
        end=transcript.end,
        lost=transcript.loss.kind if transcript.loss else Lost.NO,
        nothing_fits=nothing,
        stop_allowed=transcript.stop_allowed,
        transcript=transcript,
        vocabulary=vocabulary,
        table=table,
        experiment=experiment,
        lost_ids=lost,
    )
    if found.asked_to_stop and text.objection is not None:
        found = replace(found, text=replace(text, state=Bytes.PREFIX))
    return found.judged()


def _legal(grammar: ByteGrammar, prefix: bytes, oracle: TokenOracle) -> tuple[int, ...]:
    """The ids that may come next; empty if that is not known."""
    state = None if grammar.no_oracle else grammar.after(prefix)
    if state is None:
        return ()
    return tuple(int(token) for token in np.flatnonzero(oracle.legal_in(state)))


def _masked_at(transcript: Transcript) -> int | None:
    """The step at which the mask was empty or failed; None if there is none."""
    loss = transcript.loss
    if loss is not None:
        return loss.step if loss.kind is Lost.MASK else None
    return len(transcript.steps) if transcript.end is End.EMPTY_MASK else None


def _legal_ids(ids: Sequence[int]) -> str:
    """`the legal id 7 is` or `3 legal ids (7, 8, 9) are`."""
    if len(ids) == 1:
        return f"the legal id {ids[0]} is"
    more = ", …" if len(ids) > _NAMED else ""
    return f"{len(ids)} legal ids ({', '.join(map(str, ids[:_NAMED]))}{more}) are"


def _quote(data: bytes) -> str:
    return repr(data)[1:]
