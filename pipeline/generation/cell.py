"""Constrained decoding of one cell: a state machine that knows no model and no batch.

A cell has a matcher and its tokens; `scheduler` has the model and knows nothing of grammars. The
constraint is lost in the same way as in llama.cpp's bridge (`llama_sampler_llg_apply` and
`_accept_impl` in `common/llguidance.cpp`): consuming a refused token raises no error, the next
mask fails, and the matcher is dropped. Generation then continues without the constraint
(`on_error="drop"`). The safe alternative is to end there (`"stop"`).

A step is three calls: `compute_mask` (in any thread, while llama.cpp decodes), `forced_token`
(returns a forced token, or detects the end) and `accept` (takes the chosen token).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..engines.protocol import Mask, Matcher
from ..model.names import Unit
from ..model.verdicts import End, Lost, Origin
from ..system.clock import UNTIMED, Clock

Allowed = npt.NDArray[np.bool_]
"""Which tokens may come next, shape (n_vocab,)."""


@dataclass(frozen=True)
class Step:
    """One decoded token."""

    token: int
    n_allowed: int | None
    """Number of tokens that the mask allowed; None once the constraint is lost."""
    origin: Origin


@dataclass(frozen=True)
class Loss:
    """How and when the constraint was lost."""

    kind: Lost
    step: int
    """The first step without the constraint; it is not taken if generation stops."""
    message: str
    """The engine's message."""
    raised: str | None = None
    """The exception of the builder's tokenization, in words; None if it raised none."""


@dataclass(frozen=True)
class Transcript:
    """The record of one cell's decoding."""

    prompt: tuple[int, ...]
    steps: tuple[Step, ...]
    end: End
    loss: Loss | None
    stop_allowed: bool
    """Whether the mask at the end allowed an id on which the runtime stops."""


Observer = Callable[["Cell", Mask], None]
"""Called with the cell and each mask, before a token is chosen from the mask."""


@dataclass(frozen=True)
class View:
    """The tokens that a mask allows."""

    mask: Mask
    allowed: Allowed
    n_allowed: int
    forced: int | None
    """The only allowed token, if the grammar and the builder's tokenization force it."""


@dataclass
class Cell:
    """The state of one cell's decoding; `transcript` is available once `end` is set."""

    key: str
    prompt: tuple[int, ...]
    compile: Callable[[], Matcher]
    """Makes the matcher; called once, by the thread that needs it first."""
    max_tokens: int
    end_ids: frozenset[int]
    """Every id on which the runtime stops."""
    drop_on_error: bool
    n_vocab: int
    first: tuple[int, ...] = ()
    """Ids to take at the first steps, each only if the mask allows it."""
    observe: Observer | None = None
    draw: str = ""
    """Name of its random draws."""
    clock: Clock = UNTIMED
    unit: Unit = ()
    """Unit under which its time is counted."""
    steps: list[Step] = field(default_factory=list[Step])
    end: End | None = None
    loss: Loss | None = None
    stop_allowed: bool = False
    view: View | None = None
    """The next mask; None before `compute_mask` and once the constraint is lost."""
    _matcher: Matcher | None = None
    _compiles: bool = True
    """False if the grammar did not compile."""
    _mask_checked: bool = False
    """Whether `forced_token` has looked at the view."""

    @property
    def matcher(self) -> Matcher:
        """The matcher over the builder's tokens, after the text so far."""
        self.prepare()
        assert self._matcher is not None
        return self._matcher

    def prepare(self) -> None:
        """Compile the grammar, once; any thread may call it."""
        if self._matcher is None:
            with self.clock.count(self.unit):
                self._matcher = self.compile()
            self._compiles = self._matcher.error is None

    def close(self) -> None:
        """Free the matcher's memory."""
        if self._matcher is not None:
            self._matcher.close()

    def compute_mask(self) -> None:
        """Compute the next mask, once. It uses only the cell, so any thread may call it."""
        if self.loss is not None or self.view is not None:
            return
        self.prepare()
        if not self._compiles:
            return
        with self.clock.count(self.unit):
            mask = self.matcher.mask()
        if mask is None:
            return
        bits = np.unpackbits(mask.view(np.uint8), count=self.n_vocab, bitorder="little")
        allowed = bits.view(np.bool_)
        n_allowed = int(np.count_nonzero(allowed))
        forced = self.matcher.forced()[:1] if n_allowed == 1 else []
        told = forced[0] if forced and allowed[forced[0]] else None
        self.view = View(mask, allowed, n_allowed, told)

    def may_be_forced(self) -> bool:
        """Whether a token may be forced, so that the mask is needed before the logits. Cheaper than
        a mask."""
        if self.loss is not None or self.end is not None:
            return False
        self.prepare()
        if len(self.steps) < len(self.first) or not self._compiles:
            return True
        with self.clock.count(self.unit):
            return self.matcher.stopped() or bool(self.matcher.forced())

    def forced_token(self) -> int | None:
        """The next token if it does not depend on logits: a forced one, or one of `first`.

        None if the logits decide or the cell has ended. Detects a failed or empty mask.
        """
        if self.view is None and self.loss is None:  # a failed mask loses the constraint
            kind = Lost.MASK if self._compiles else Lost.COMPILE
            self._lose(kind, self.matcher.error or "the mask cannot be computed")
        view = self.view
        if view is None or self.end is not None:
            return None
        if not self._mask_checked:
            self._mask_checked = True
            self.stop_allowed = any(view.allowed[token] for token in self.end_ids)
            if self.observe is not None:
                with self.clock.count(self.unit):
                    self.observe(self, view.mask)
            if view.n_allowed == 0:
                self.end = End.EMPTY_MASK
                return None
        wanted = self.first[len(self.steps) : len(self.steps) + 1]
        if wanted and wanted[0] < self.n_vocab and view.allowed[wanted[0]]:
            return wanted[0]
        return int(view.allowed.argmax()) if view.n_allowed == 1 else None

    def accept(self, token: int) -> None:
        """Accept a token that `forced_token` returned or the logits chose."""
        view, self.view, self._mask_checked = self.view, None, False
        if view is None:
            self.steps.append(Step(token, None, Origin.UNCONSTRAINED))
        else:
            origin = Origin.FORCED if view.forced == token else Origin.CHOSEN
            self.steps.append(Step(token, view.n_allowed, origin))
        with self.clock.count(self.unit):
            self._consume(token)
        if self.end is None and self.clock.expired(self.unit):
            self.end = End.TIMEOUT

    def transcript(self) -> Transcript:
        """The transcript; the cell must have ended."""
        assert self.end is not None
        return Transcript(self.prompt, tuple(self.steps), self.end, self.loss, self.stop_allowed)

    def _consume(self, token: int) -> None:
        stops = token in self.end_ids
        if self.loss is None and not self.matcher.consume(token) and not stops:
            # The bridge ignores this and fails at the next mask: the loss is at the next step.
            self._lose(Lost.CONSUME, self.matcher.error or "the token was refused")
        if self.end is None:
            if stops:
                self.end = End.STOP_ID
            elif len(self.steps) >= self.max_tokens:
                self.end = End.TOKEN_LIMIT
                self._check_stop_at_limit()

    def _check_stop_at_limit(self) -> None:
        mask = self.matcher.mask() if self.loss is None else None
        self.stop_allowed = mask is not None and any(
            mask[token // 32] >> (token % 32) & 1 for token in self.end_ids
        )

    def _lose(self, kind: Lost, message: str) -> None:
        self.loss = Loss(kind, len(self.steps), message, self.matcher.raised)
        self.stop_allowed = False
        if not self.drop_on_error:
            self.end = End.LOST
