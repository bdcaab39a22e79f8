"""The sequences of a context: what each holds, so that no prompt is decoded twice.

A sequence that is given back keeps what it holds until it is taken again. A prompt that begins
like another one begins in a copy of that one's sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..native.context import Context

WORTH = 8
"""Shortest shared prefix worth copying instead of decoding again."""
_LEAST = 2
"""Tokens of a prompt that are decoded together at least: one alone is rounded otherwise."""


@dataclass
class _Held:
    """What a sequence holds."""

    prompt: tuple[int, ...] = ()
    n: int = 0
    """Tokens decoded into it, those of its prompt first."""


class Sequences:
    """The sequences of one context, the lowest free one always taken first."""

    def __init__(self, context: Context, n: int) -> None:
        self._context = context
        self._held = [_Held() for _ in range(n)]
        self._free = set(range(n))

    @property
    def n_free(self) -> int:
        """Sequences that can be taken."""
        return len(self._free)

    def n_held(self, sequence: int) -> int:
        """Tokens decoded into a sequence."""
        return self._held[sequence].n

    def add(self, sequence: int, n: int) -> None:
        """So many more tokens were decoded into a sequence."""
        self._held[sequence].n += n

    def reusable(self, prompt: Sequence[int]) -> int:
        """How much of a prompt some sequence holds."""
        return max(self._reusable(held, prompt) for held in self._held)

    def take(self, prompt: tuple[int, ...]) -> int:
        """A sequence for a prompt; it may hold the prompt's beginning already."""
        place = self.take_any()
        best = max(range(len(self._held)), key=lambda i: self._reusable(self._held[i], prompt))
        n = self._reusable(self._held[best], prompt)
        if n < WORTH:
            self._clear(place)
        else:
            if best != place:
                self.copy(best, place)
            if n < self._held[place].n and not self._context.keep(place, n):
                self._clear(place)  # a recurrent model cannot forget the end alone
                n = 0
            self._held[place].n = n
        self._held[place].prompt = prompt
        return place

    def take_any(self) -> int:
        """A sequence that is to become a copy of another."""
        place = min(self._free)
        self._free.remove(place)
        return place

    def copy(self, source: int, target: int) -> None:
        """Make a sequence equal to another."""
        self._clear(target)
        if self._held[source].n:
            self._context.copy(source, target)
        self._held[target] = _Held(self._held[source].prompt, self._held[source].n)

    def give_back(self, sequence: int) -> None:
        """Its text has ended."""
        self._free.add(sequence)

    def gather(self, sequence: int) -> int:
        """Move a sequence down to the lowest free one, if there is any below it; its new place."""
        if not self._free or min(self._free) > sequence:
            return sequence
        place = self.take_any()
        self.copy(sequence, place)
        self.give_back(sequence)
        return place

    def forget(self, sequence: int) -> None:
        """Empty a sequence that may be one beyond those that are given out."""
        self._context.clear(sequence)
        if sequence < len(self._held):
            self._held[sequence] = _Held()

    def clear(self) -> None:
        """Forget everything."""
        for sequence in range(len(self._held)):
            self._clear(sequence)

    def _clear(self, sequence: int) -> None:
        if self._held[sequence].n:
            self._context.clear(sequence)
        self._held[sequence] = _Held()

    def _reusable(self, held: _Held, prompt: Sequence[int]) -> int:
        return min(_common(held.prompt, prompt), held.n)


def _common(prompt: Sequence[int], other: Sequence[int]) -> int:
    """Tokens with which both prompts begin, as far as they can be shared."""
    most = min(len(prompt), len(other) - _LEAST)
    if most <= 0 or prompt[:most] == other[:most]:
        return max(most, 0)
    return next(i for i in range(most) if prompt[i] != other[i])


def longest_common(prompts: Iterable[Sequence[int]], other: Sequence[int]) -> int:
    """The most that any of the prompts shares with another one."""
    return max((_common(prompt, other) for prompt in prompts), default=0)
