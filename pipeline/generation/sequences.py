"""The sequences of a context and the tokens in each, so that no prompt is decoded twice.

A sequence that is given back keeps its tokens until it is taken again. A prompt that shares a
prefix with a decoded one starts from a copy of that sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..native.context import Context

MIN_SHARED = 8
"""Shortest shared prefix worth copying instead of decoding again."""
_LEAST = 2
"""Smallest number of prompt tokens to decode together: a single token is rounded differently."""


@dataclass
class _Held:
    """The content of a sequence."""

    prompt: tuple[int, ...] = ()
    n: int = 0
    """Number of tokens decoded into it, starting with those of its prompt."""


class Sequences:
    """The sequences of one context; the lowest free one is always taken first."""

    def __init__(self, context: Context, n: int) -> None:
        self._context = context
        self._held = [_Held() for _ in range(n)]
        self._free = set(range(n))

    @property
    def n_free(self) -> int:
        """Number of free sequences."""
        return len(self._free)

    def n_held(self, sequence: int) -> int:
        """Number of tokens decoded into a sequence."""
        return self._held[sequence].n

    def add(self, sequence: int, n: int) -> None:
        """Record that `n` more tokens were decoded into a sequence."""
        self._held[sequence].n += n

    def reusable(self, prompt: Sequence[int]) -> int:
        """Length of the longest prefix of a prompt that some sequence holds, in tokens."""
        return max(self._reusable(held, prompt) for held in self._held)

    def take(self, prompt: tuple[int, ...]) -> int:
        """Take a sequence for a prompt; it may already hold the start of the prompt."""
        place = self.take_any()
        best = max(range(len(self._held)), key=lambda i: self._reusable(self._held[i], prompt))
        n = self._reusable(self._held[best], prompt)
        if n < MIN_SHARED:
            self._clear(place)
        else:
            if best != place:
                self.copy(best, place)
            if n < self._held[place].n and not self._context.keep(place, n):
                self._clear(place)  # a recurrent model cannot remove only the end
                n = 0
            self._held[place].n = n
        self._held[place].prompt = prompt
        return place

    def take_any(self) -> int:
        """Take a sequence that will become a copy of another one."""
        place = min(self._free)
        self._free.remove(place)
        return place

    def copy(self, source: int, target: int) -> None:
        """Copy the content of sequence `source` to sequence `target`."""
        self._clear(target)
        if self._held[source].n:
            self._context.copy(source, target)
        self._held[target] = _Held(self._held[source].prompt, self._held[source].n)

    def give_back(self, sequence: int) -> None:
        """Mark a sequence as free; its content is kept until it is taken again."""
        self._free.add(sequence)

    def gather(self, sequence: int) -> int:
        """Move a sequence to the lowest free place, if that is below it; returns its place."""
        if not self._free or min(self._free) > sequence:
            return sequence
        place = self.take_any()
        self.copy(sequence, place)
        self.give_back(sequence)
        return place

    def forget(self, sequence: int) -> None:
        """Empty a sequence, or one of the context that `take` never returns."""
        self._context.clear(sequence)
        if sequence < len(self._held):
            self._held[sequence] = _Held()

    def clear(self) -> None:
        """Empty all sequences."""
        for sequence in range(len(self._held)):
            self._clear(sequence)

    def _clear(self, sequence: int) -> None:
        if self._held[sequence].n:
            self._context.clear(sequence)
        self._held[sequence] = _Held()

    def _reusable(self, held: _Held, prompt: Sequence[int]) -> int:
        return min(_common(held.prompt, prompt), held.n)


def _common(prompt: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix that can be shared; `_LEAST` tokens of `other` stay to decode."""
    most = min(len(prompt), len(other) - _LEAST)
    if most <= 0 or prompt[:most] == other[:most]:
        return max(most, 0)
    return next(i for i in range(most) if prompt[i] != other[i])


def longest_common(prompts: Iterable[Sequence[int]], other: Sequence[int]) -> int:
    """The longest prefix that `other` can share with any of the prompts, in tokens."""
    return max((_common(prompt, other) for prompt in prompts), default=0)
