"""Continuous batching: many cells in one context, each place given on as soon as its cell ends.

Masks for the next step are computed in threads while llama.cpp decodes this one: they depend on
the tokens taken, not on the logits. With fast-forward, a token that comes whatever the logits say
is taken without decoding anything; such tokens are decoded together with the next one that
matters, or never, where the text ends before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from pipeline.choice import Logits, Sampling, Wish, choose
from pipeline.decode import Cell
from pipeline.llama import Context, Entry
from pipeline.sequences import WORTH, Sequences, common
from pipeline.stopwatch import Part, Stopwatch


@dataclass
class _Slot:
    """A cell with its text so far, and the sequence that holds the decoded part of it."""

    cell: Cell
    text: list[int]
    sequence: int = -1
    leader: _Slot | None = None
    """A slot that decodes the very same text in this step, for this one as well."""
    row: int = -1
    """Its row of the latest logits."""


class Scheduler:
    """Decodes cells over one context."""

    def __init__(
        self,
        context: Context,
        *,
        n_seq: int,
        n_mask_threads: int = 1,
        fast_forward: bool = False,
        sampling: Sampling | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        """`n_seq` is how many cells are in one batch, at most."""
        self._context = context
        self._n_mask_threads = n_mask_threads
        self._fast_forward = fast_forward
        self._sampling = sampling or Sampling()
        self._stopwatch = stopwatch or Stopwatch()
        self._sequences = Sequences(context, n_seq)
        self._waiting: deque[_Slot] = deque()
        self._running: list[_Slot] = []

    def run(self, cells: Iterable[Cell]) -> Iterator[Cell]:
        """Decode all cells and give out each as it ends.

        They are taken from the iterable as there are places for them; those with like prompts
        should come one after the other.
        """
        coming = iter(cells)
        try:
            with ThreadPoolExecutor(self._n_mask_threads, "mask") as pool:
                while ended := self._move(coming, pool):
                    for cell in ended:
                        self._stopwatch.lap(Part.PYTHON)
                        yield cell
                        self._stopwatch.lap(Part.JUDGE)
        finally:
            self._sequences.clear()

    def _move(self, coming: Iterator[Cell], pool: ThreadPoolExecutor) -> list[Cell]:
        """Start and decode until some cells end; none when there are no more."""
        while True:
            ended = self._start(coming)
            if self._running:
                self._step(pool)
                ended += self._ended()
            if ended or not self._running:
                return [slot.cell for slot in ended]

    def _start(self, coming: Iterator[Cell]) -> list[_Slot]:
        """Give free sequences to waiting cells; the slots that ended without needing one."""
        ended: list[_Slot] = []
        starting: dict[tuple[int, ...], _Slot] = {}
        while self._sequences.n_free and (slot := self._next(coming)):
            if slot.cell.end is not None:
                ended.append(slot)
                continue
            text = tuple(slot.text)
            if text in starting:
                slot.leader = starting[text]
                slot.sequence = self._sequences.take_any()
            elif self._worth_waiting(slot, starting):
                self._waiting.append(slot)
                break
            else:
                slot.sequence = self._sequences.take(slot.text)
                starting[text] = slot
            self._running.append(slot)
        return ended

    def _next(self, coming: Iterator[Cell]) -> _Slot | None:
        if self._waiting:
            return self._waiting.popleft()
        cell = next(coming, None)
        if cell is None:
            return None
        slot = _Slot(cell, [*cell.prompt])
        cell.start()
        self._run_ahead(slot)
        return slot

    def _worth_waiting(self, slot: _Slot, starting: Iterable[tuple[int, ...]]) -> bool:
        """Whether much of a text is decoded in this step and can be copied in the next one."""
        soon = max((common(text, slot.text) for text in starting), default=0)
        return soon >= self._sequences.common(slot.text) + WORTH

    def _step(self, pool: ThreadPoolExecutor) -> None:
        """Decode what is pending and take one token in every running cell, or several."""
        self._stopwatch.lap(Part.PYTHON)
        looks = self._look(pool)
        logits = self._decode()
        self._stopwatch.lap(Part.DECODE)
        for look in looks:
            look.result()
        self._stopwatch.lap(Part.MASK)
        taken = [(slot, self._due(slot)) for slot in self._running]
        undecided = [slot for slot, token in taken if token is None and slot.cell.end is None]
        self._stopwatch.lap(Part.PYTHON)
        chosen = choose(logits, [_wish(slot) for slot in undecided], self._sampling)
        self._stopwatch.lap(Part.SELECT)
        due = [(slot, token) for slot, token in taken if token is not None]
        for slot, token in (*due, *zip(undecided, chosen, strict=True)):
            self._take(slot, token)
            self._run_ahead(slot)

    def _look(self, pool: ThreadPoolExecutor) -> list[Future[None]]:
        """Have the next masks computed, the cells dealt out to the threads."""
        blind = [slot.cell for slot in self._running if slot.cell.view is None]
        hands = [blind[i :: self._n_mask_threads] for i in range(self._n_mask_threads)]
        return [pool.submit(_look_in, hand) for hand in hands if hand]

    def _decode(self) -> Logits:
        """Decode what the sequences lack of the texts; the logits behind each text."""
        entries: list[Entry] = []
        leaders = [slot for slot in self._running if slot.leader is None]
        for row, slot in enumerate(leaders):
            held, last = self._sequences.held(slot.sequence), len(slot.text) - 1
            entries += [
                (slot.text[place], place, slot.sequence, place == last)
                for place in range(len(held), len(slot.text))
            ]
            held += slot.text[len(held) :]
            slot.row = row
        logits = self._decode_in_batches(entries)
        for slot in self._running:
            if slot.leader is not None:
                self._sequences.copy(slot.leader.sequence, slot.sequence)
                slot.row, slot.leader = slot.leader.row, None
        return logits

    def _decode_in_batches(self, entries: Sequence[Entry]) -> Logits:
        room = self._context.n_batch
        if len(entries) <= room:
            return self._context.decode(entries)
        begins = range(0, len(entries), room)  # a view is stale after the next decode
        return np.concatenate(
            [self._context.decode(entries[at : at + room]).copy() for at in begins]
        )

    def _run_ahead(self, slot: _Slot) -> None:
        """Take the tokens that need no logits."""
        while self._fast_forward and self._looks_ahead(slot.cell):
            token = self._due(slot)
            if token is None:
                break
            self._take(slot, token)

    def _looks_ahead(self, cell: Cell) -> bool:
        self._stopwatch.lap(Part.PYTHON)
        likely = cell.likely_due()
        if likely:
            cell.look()
        self._stopwatch.lap(Part.MASK)
        return likely

    def _due(self, slot: _Slot) -> int | None:
        if slot.cell.observe is None:
            return slot.cell.due()
        self._stopwatch.lap(Part.PYTHON)
        token = slot.cell.due()
        self._stopwatch.lap(Part.JUDGE)
        return token

    def _take(self, slot: _Slot, token: int) -> None:
        slot.cell.take(token)
        slot.text.append(token)

    def _ended(self) -> list[_Slot]:
        """The cells that have ended; their sequences are free again."""
        ended = [slot for slot in self._running if slot.cell.end is not None]
        self._running = [slot for slot in self._running if slot.cell.end is None]
        for slot in ended:
            self._sequences.give_back(slot.sequence)
        return ended


def _look_in(cells: Sequence[Cell]) -> None:
    for cell in cells:
        cell.look()


def _wish(slot: _Slot) -> Wish:
    cell = slot.cell
    allowed = cell.view.allowed if cell.view is not None else None
    return Wish(slot.row, allowed, f"{cell.draw}/{len(cell.steps)}")
