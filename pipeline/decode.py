"""Constrained decoding: a state machine per cell, and a scheduler that batches cells.

A cell knows its matcher, its tokens and how it ends, and nothing of the model; the scheduler
knows the model and nothing of grammars. Losing the constraint is reproduced as llama.cpp's bridge
does it (`llama_sampler_llg_apply` and `_accept_impl` in `common/llguidance.cpp`): a refused token
is not noticed when it is consumed, the next mask fails, the matcher is dropped, and generation
goes on unconstrained (`on_error="drop"`), or, as the safe alternative, ends (`"stop"`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain

import numpy as np
import numpy.typing as npt

from pipeline import llama
from pipeline.constraint import Mask, Matcher
from pipeline.limits import UNTIMED, Clock
from pipeline.verdict import End, Lost
from pipeline.worker import Unit

Logits = npt.NDArray[np.float32]


class Origin(StrEnum):
    """Why a step took the token it took."""

    CHOSEN = "chosen"
    """The likeliest of several allowed tokens, or the only legal one."""
    FORCED = "forced"
    """The one token that the grammar and the builder's tokenization left."""
    UNCONSTRAINED = "unconstrained"
    """The likeliest of all: the constraint was lost before."""


@dataclass(frozen=True)
class Step:
    """One decoded token."""

    token: int
    n_allowed: int | None
    """Tokens the mask allowed; None once the constraint is lost."""
    origin: Origin


@dataclass(frozen=True)
class Loss:
    """The constraint was lost."""

    kind: Lost
    step: int
    """The first step that was, or would have been, taken without the constraint."""
    message: str
    """The engine's words."""


@dataclass(frozen=True)
class Transcript:
    """What one cell's decoding did."""

    prompt: tuple[int, ...]
    steps: tuple[Step, ...]
    end: End
    loss: Loss | None
    stop_allowed: bool
    """Whether, at the end, the mask allowed an id on which the runtime stops."""


Observer = Callable[["Cell", Mask], None]
"""Called with every mask before a token is taken from it."""


@dataclass
class Cell:
    """The state of one cell's decoding; `transcript` once `end` is set."""

    key: str
    prompt: tuple[int, ...]
    matcher: Matcher
    max_tokens: int
    end_ids: frozenset[int]
    """Every id on which the runtime stops."""
    drop_on_error: bool
    first: tuple[int, ...] = ()
    """Ids to take first, as far as the mask allows them."""
    observe: Observer | None = None
    clock: Clock = UNTIMED
    unit: Unit = ()
    """What its time is counted under."""
    steps: list[Step] = field(default_factory=list[Step])
    end: End | None = None
    loss: Loss | None = None
    stop_allowed: bool = False

    def start(self) -> None:
        """Meet a grammar that did not compile before the first token, as the bridge does."""
        if self.matcher.error is not None:
            self._lose(Lost.COMPILE, self.matcher.error)

    def advance(self, logits: Logits) -> int | None:
        """Take one token from the logits of the next position, shape (n_vocab,).

        Returns the token to decode next, or None when the cell has ended.
        """
        with self.clock.on(self.unit):
            token = self._advance(logits)
        if self.end is None and self.clock.over(self.unit):
            self.end = End.TIMEOUT
        return token if self.end is None else None

    def _advance(self, logits: Logits) -> int | None:
        mask = self._mask()
        if self.end is not None:
            return None
        if mask is None:
            return self._take(Step(int(np.argmax(logits)), None, Origin.UNCONSTRAINED))
        bits = np.unpackbits(mask.view(np.uint8), count=len(logits), bitorder="little")
        n_allowed = int(bits.sum())
        self.stop_allowed = any(bits[token] for token in self.end_ids)
        if self.observe is not None:
            self.observe(self, mask)
        if n_allowed == 0:
            self.end = End.EMPTY_MASK
            return None
        token = int(np.where(bits.view(np.bool_), logits, -np.inf).argmax())
        wanted = self.first[len(self.steps) : len(self.steps) + 1]
        if wanted and wanted[0] < len(bits) and bits[wanted[0]]:
            token = wanted[0]
        if not bits[token]:  # every allowed logit is -inf or NaN
            token = int(np.flatnonzero(bits)[0])
        forced = n_allowed == 1 and self.matcher.forced()[:1] == [token]
        return self._take(Step(token, n_allowed, Origin.FORCED if forced else Origin.CHOSEN))

    def transcript(self) -> Transcript:
        """The whole story; only once the cell has ended."""
        assert self.end is not None
        return Transcript(self.prompt, tuple(self.steps), self.end, self.loss, self.stop_allowed)

    def _mask(self) -> Mask | None:
        """The next mask, None once the constraint is lost; a failure here is what loses it."""
        if self.loss is not None:
            return None
        mask = self.matcher.mask()
        if mask is None:
            self._lose(Lost.MASK, self.matcher.error or "the mask cannot be computed")
        return mask

    def _take(self, step: Step) -> int | None:
        self.steps.append(step)
        stops = step.token in self.end_ids
        if self.loss is None and not self.matcher.consume(step.token) and not stops:
            # The bridge ignores this and meets it at the next mask: so is it dated.
            self._lose(Lost.CONSUME, self.matcher.error or "the token was refused")
        if self.end is None:
            if stops:
                self.end = End.STOP_ID
            elif len(self.steps) >= self.max_tokens:
                self.end = End.TOKEN_LIMIT
                self._look_past_the_limit()
        return step.token if self.end is None else None

    def _look_past_the_limit(self) -> None:
        mask = self.matcher.mask() if self.loss is None else None
        self.stop_allowed = mask is not None and any(
            mask[token // 32] >> (token % 32) & 1 for token in self.end_ids
        )

    def _lose(self, kind: Lost, message: str) -> None:
        self.loss = Loss(kind, len(self.steps), message)
        self.stop_allowed = False
        if not self.drop_on_error:
            self.end = End.LOST


@dataclass
class _Slot:
    """A sequence of the context with the cell that holds it."""

    sequence: int
    cell: Cell
    logits: Logits
    position: int
    token: int = -1


def decode(context: llama.Context, cells: Sequence[Cell], *, n_seq: int) -> Iterator[Cell]:
    """Decode all cells greedily, up to `n_seq` at a time in one batch; yields each as it ends.

    Cells with the same prompt are started together: the prompt is decoded once and its sequence
    copied. A slot is given to the next cell as soon as its cell ends.
    """
    waiting = deque(sorted(cells, key=lambda cell: cell.prompt))
    free = deque(range(n_seq))
    active: list[_Slot] = []
    while waiting or active:
        running: list[_Slot] = []
        # Running cells move first: their logits are stale once a prompt is decoded.
        for slot in chain(active, _start(context, waiting, free)):
            token = slot.cell.advance(slot.logits) if slot.cell.end is None else None
            if token is None:
                context.clear(slot.sequence)
                free.append(slot.sequence)
                yield slot.cell
            else:
                slot.token = token
                running.append(slot)
        if running:
            rows = context.decode([(s.token, s.position, s.sequence, True) for s in running])
            for slot, row in zip(running, rows, strict=True):
                slot.logits = row
                slot.position += 1
        active = running


def _start(context: llama.Context, waiting: deque[Cell], free: deque[int]) -> Iterator[_Slot]:
    """Give the sequences free at the first step to waiting cells; a prompt is decoded once."""
    budget = len(free)
    while waiting and budget > 0:
        first = _Slot(free.popleft(), waiting.popleft(), np.empty(0, np.float32), 0)
        prompt = first.cell.prompt
        first.logits = _prefill(context, prompt, first.sequence)
        same = [first]
        while waiting and len(same) < budget and waiting[0].prompt == prompt:
            twin = _Slot(free.popleft(), waiting.popleft(), first.logits, 0)
            context.copy(first.sequence, twin.sequence)
            same.append(twin)
        for slot in same:
            slot.position = len(prompt)
            slot.cell.start()
        budget -= len(same)
        yield from same


def _prefill(context: llama.Context, prompt: Sequence[int], sequence: int) -> Logits:
    """Decode a prompt into an empty sequence; a copy of the logits after its last token."""
    last = len(prompt) - 1
    rows: list[Logits] = []
    for begin in range(0, len(prompt), context.n_batch):
        chunk = range(begin, min(begin + context.n_batch, len(prompt)))
        rows = context.decode([(prompt[i], i, sequence, i == last) for i in chunk])
    return rows[-1].copy()
