"""Continuous batching: many cells in one context; a new cell starts as soon as another ends.

A step decodes one token of every running cell. Meanwhile other threads compile the grammars of the
next cells and compute the masks for the next token, which do not depend on the logits. With
fast-forward, a token that the grammar forces is accepted without logits. It is decoded only when a
later token needs logits.

The last bits of the logits that llama.cpp computes for a token depend on whether one or several
tokens of its sequence are decoded together (measured; the number of sequences does not matter). A
prompt is therefore decoded as a whole and every later token alone, so that the text of a cell does
not depend on the batch or on fast-forward. Some models round a single row differently from several
rows (`single_row_differs`); for these a batch always has at least two rows. Sequences that are not
adjacent are computed separately, at the cost of another batch, so they are kept adjacent.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from ..native.context import Context, Entry
from .cell import Cell
from .sampling import Choice, Logits, choose
from .sequences import MIN_SHARED, Sequences, longest_common
from .settings import Sampling
from .timings import Part, Stopwatch

_NOTHING: Logits = np.empty((0, 0), np.float32)


@dataclass
class _Slot:
    """A cell, its tokens so far, and the sequence that holds the decoded ones."""

    cell: Cell
    text: list[int]
    sequence: int = -1
    twins: list[_Slot] = field(default_factory=list["_Slot"])
    """Slots with the same prompt, which is decoded only once, in this slot."""
    row: int = -1
    """Index of its row in the latest logits."""

    @property
    def prompted(self) -> bool:
        """Whether no token has been accepted yet, so that the logits of the prompt are needed."""
        return len(self.text) == len(self.cell.prompt)


class Scheduler:
    """Decodes cells over one context."""

    def __init__(
        self,
        context: Context,
        *,
        n_seq: int,
        n_mask_threads: int = 1,
        fast_forward: bool = False,
        min_two_rows: bool = False,
        sampling: Sampling | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        """At most `n_seq` cells are decoded in one batch. With `min_two_rows` no row is computed
        alone; the context must then have at least two sequences."""
        self._context = context
        self._n_mask_threads = n_mask_threads
        self._fast_forward = fast_forward
        self._min_two_rows = min_two_rows
        self._sampling = sampling or Sampling()
        self._stopwatch = stopwatch or Stopwatch()
        self._n_ahead = n_seq
        self._sequences = Sequences(context, n_seq)
        self._coming: Iterator[Cell] = iter(())
        self._ahead: deque[tuple[Cell, Future[None]]] = deque()
        """The next cells, whose grammars are being compiled."""
        self._waiting: deque[_Slot] = deque()
        self._running: list[_Slot] = []

    def run(self, cells: Iterable[Cell]) -> Iterator[Cell]:
        """Decode all cells and yield each as it ends; the caller must close it.

        Cells are taken from the iterable when sequences are free, and up to `n_seq` cells ahead.
        Cells with similar prompts should be adjacent.
        """
        self._coming = iter(cells)
        try:
            with ThreadPoolExecutor(self._n_mask_threads, "mask") as pool:
                while ended := self._decode_until_ended(pool):
                    for cell in ended:
                        self._stopwatch.lap(Part.PYTHON)
                        yield cell
                        self._stopwatch.lap(Part.JUDGE)
        finally:
            for slot in (*self._running, *self._waiting):
                slot.cell.close()
            for cell, _ in self._ahead:
                cell.close()
            self._sequences.clear()

    def _decode_until_ended(self, pool: ThreadPoolExecutor) -> list[Cell]:
        """Start and decode cells until some end; returns these, or [] when all cells are done."""
        while True:
            ended, starting = self._start()
            self._decode_prompts(starting, pool)
            ended += self._ended()
            self._step(pool)
            ended += self._ended()
            if ended or not self._running:
                return ended

    # --- which cells run --------------------------------------------------------------------------

    def _start(self) -> tuple[list[Cell], list[_Slot]]:
        """Give free sequences to the next cells: (cells that ended without one, new prompts)."""
        ended: list[Cell] = []
        starting: dict[tuple[int, ...], _Slot] = {}
        while self._sequences.n_free and (slot := self._next()):
            prompt = slot.cell.prompt
            if slot.cell.end is not None:
                ended.append(slot.cell)
                continue
            if self._min_two_rows and len(prompt) == 1:
                slot.sequence = self._sequences.take(prompt)  # it is decoded in the next step
            elif leader := starting.get(prompt):
                slot.sequence = self._sequences.take_any()
                leader.twins.append(slot)
            elif longest_common(starting, prompt) >= self._sequences.reusable(prompt) + MIN_SHARED:
                self._waiting.append(slot)  # most of it can be copied in the next round
                break
            else:
                slot.sequence = self._sequences.take(prompt)
                starting[prompt] = slot
            self._running.append(slot)
        return ended, [*starting.values()]

    def _next(self) -> _Slot | None:
        if self._waiting:
            return self._waiting.popleft()
        if self._ahead:
            cell, compiled = self._ahead.popleft()
            if not compiled.cancel():
                compiled.result()
        elif not (cell := next(self._coming, None)):
            return None
        slot = _Slot(cell, [*cell.prompt])
        self._accept_forced(slot)
        return slot

    def _ended(self) -> list[Cell]:
        """Remove the cells that have ended and free their sequences; returns these cells."""
        ended = [slot for slot in self._running if slot.cell.end is not None]
        self._running = [slot for slot in self._running if slot.cell.end is None]
        for slot in ended:
            self._sequences.give_back(slot.sequence)
        return [slot.cell for slot in ended]

    # --- what is decoded --------------------------------------------------------------------------

    def _decode_prompts(self, starting: Sequence[_Slot], pool: ThreadPoolExecutor) -> None:
        """Decode new slots' prompts; those with the same number of tokens left share a batch."""
        by_length: defaultdict[int, list[_Slot]] = defaultdict(list)
        for slot in starting:
            n_left = len(slot.cell.prompt) - self._sequences.n_held(slot.sequence)
            by_length[n_left].append(slot)
        for n_left, slots in by_length.items():
            room = self._context.n_batch
            at_once = max(1, room // n_left)
            for begin in range(0, len(slots), at_once):
                self._decode_some_prompts(slots[begin : begin + at_once], pool)

    def _decode_some_prompts(self, leaders: Sequence[_Slot], pool: ThreadPoolExecutor) -> None:
        entries: list[Entry] = []
        n_rows = 0
        prompted: list[_Slot] = []
        for slot in leaders:
            prompt, done = slot.cell.prompt, self._sequences.n_held(slot.sequence)
            mine = [one for one in (slot, *slot.twins) if one.prompted]
            n_wanted = (2 if self._min_two_rows else 1) if mine else 0
            first_wanted = len(prompt) - n_wanted
            entries += [
                (prompt[place], place, slot.sequence, place >= first_wanted)
                for place in range(done, len(prompt))
            ]
            n_rows += len(prompt) - max(first_wanted, done)
            for one in mine:
                one.row = n_rows - 1
            prompted += mine
        logits = self._decode(entries, prompted, pool)
        for slot in leaders:
            self._sequences.add(
                slot.sequence, len(slot.cell.prompt) - self._sequences.n_held(slot.sequence)
            )
            for twin in slot.twins:
                self._sequences.copy(slot.sequence, twin.sequence)
            slot.twins = []
        self._advance(prompted, logits)

    def _step(self, pool: ThreadPoolExecutor) -> None:
        """Decode one token of every running cell; cells without undecoded tokens accept another."""
        if not self._running:
            return
        self._gather()
        places = [self._sequences.n_held(slot.sequence) for slot in self._running]
        asks = [
            place == len(slot.text) - 1 for slot, place in zip(self._running, places, strict=True)
        ]
        asking = [slot for slot, asked in zip(self._running, asks, strict=True) if asked]
        if self._min_two_rows and len(asking) == 1:
            asks[asks.index(True) - 1] = True  # two rows: a neighbour's logits too
        entries: list[Entry] = []
        n_rows = 0
        for slot, place, asked in zip(self._running, places, asks, strict=True):
            entries.append((slot.text[place], place, slot.sequence, asked))
            self._sequences.add(slot.sequence, 1)
            slot.row = n_rows
            n_rows += asked
        if self._min_two_rows and len(entries) == 1:
            self._sequences.forget(1)
            entries.append((entries[0][0], 0, 1, n_rows > 0))
            logits = self._decode(entries, asking, pool)
            self._sequences.forget(1)
        else:
            logits = self._decode(entries, asking, pool)
        self._advance(asking, logits)

    def _gather(self) -> None:
        """Make the sequences of the running cells adjacent."""
        self._running.sort(key=lambda slot: slot.sequence)
        for slot in reversed(self._running):
            slot.sequence = self._sequences.gather(slot.sequence)
        self._running.sort(key=lambda slot: slot.sequence)

    def _decode(
        self, entries: Sequence[Entry], slots: Sequence[_Slot], pool: ThreadPoolExecutor
    ) -> Logits:
        """Decode the entries while other threads compute the slots' next masks.

        Returns the logits, shape (n_wanted, n_vocab), as `Context.decode` does.
        """
        without_mask = [slot.cell for slot in slots if slot.cell.view is None]
        shares = [without_mask[i :: self._n_mask_threads] for i in range(self._n_mask_threads)]
        logits = _NOTHING
        self._stopwatch.lap(Part.PYTHON)
        computing: list[Future[None]] = [
            pool.submit(_compute_masks, share) for share in shares if share
        ]
        for cell in islice(self._coming, self._n_ahead - len(self._ahead)):
            self._ahead.append((cell, pool.submit(cell.prepare)))
        for some in _batches(entries, self._context.n_batch):
            logits = self._context.decode(some)
        self._stopwatch.lap(Part.DECODE)
        for future in computing:
            future.result()
        self._stopwatch.lap(Part.MASK)
        return logits

    # --- which tokens are accepted ----------------------------------------------------------------

    def _advance(self, slots: Sequence[_Slot], logits: Logits) -> None:
        """Accept one token in each of these cells, then all tokens that need no logits."""
        taken = [(slot, self._forced_token(slot)) for slot in slots]
        undecided = [slot for slot, token in taken if token is None and slot.cell.end is None]
        self._stopwatch.lap(Part.PYTHON)
        chosen = choose(logits, [_choice(slot) for slot in undecided], self._sampling)
        self._stopwatch.lap(Part.SELECT)
        forced = [(slot, token) for slot, token in taken if token is not None]
        for slot, token in (*forced, *zip(undecided, chosen, strict=True)):
            self._accept(slot, token)
            self._accept_forced(slot)
        self._stopwatch.lap(Part.PYTHON)

    def _accept_forced(self, slot: _Slot) -> None:
        """Accept tokens as long as they need no logits (with fast-forward)."""
        while self._fast_forward and self._may_be_forced(slot.cell):
            token = self._forced_token(slot)
            if token is None:
                break
            self._accept(slot, token)

    def _may_be_forced(self, cell: Cell) -> bool:
        self._stopwatch.lap(Part.PYTHON)
        likely = cell.may_be_forced()
        if likely:
            cell.compute_mask()
        self._stopwatch.lap(Part.MASK)
        return likely

    def _forced_token(self, slot: _Slot) -> int | None:
        if slot.cell.observe is None:
            return slot.cell.forced_token()
        self._stopwatch.lap(Part.PYTHON)
        token = slot.cell.forced_token()
        self._stopwatch.lap(Part.JUDGE)
        return token

    def _accept(self, slot: _Slot, token: int) -> None:
        slot.cell.accept(token)
        slot.text.append(token)


def single_row_differs(context: Context) -> bool:
    """Whether the logits of a token change if the batch has a token of another sequence.

    llama.cpp multiplies a single row with other kernels than several rows; for some weight types
    the sums are still equal. The context must be empty, and it is empty afterwards.
    """
    alone = context.decode([(0, 0, 0, True)]).copy()
    context.clear(0)
    beside = context.decode([(0, 0, sequence, True) for sequence in (0, 1)])[:1].copy()
    for sequence in (0, 1):
        context.clear(sequence)
    return not np.array_equal(alone, beside)


def _batches(entries: Sequence[Entry], room: int) -> Iterator[Sequence[Entry]]:
    """Split a prompt that is too long for one batch; no batch has only one token."""
    begin = 0
    while len(entries) - begin > room:
        end = begin + room - (len(entries) - begin == room + 1)
        yield entries[begin:end]
        begin = end
    yield entries[begin:]


def _compute_masks(cells: Sequence[Cell]) -> None:
    for cell in cells:
        cell.compute_mask()


def _choice(slot: _Slot) -> Choice:
    cell = slot.cell
    allowed = cell.view.allowed if cell.view is not None else None
    return Choice(slot.row, allowed, f"{cell.draw}/{len(cell.steps)}")
