"""The sequences of a context: what each holds, so that nothing is decoded twice.

A sequence that is given back keeps its tokens until it is taken again. A new text begins in the
free sequence that holds most of its beginning, or in a copy of one that holds much more.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.llama import Context

WORTH = 8
"""Tokens in common from which a copy of a sequence, or a wait for one, costs less than decoding."""


class Sequences:
    """The sequences of one context."""

    def __init__(self, context: Context, n: int) -> None:
        self._context = context
        self._held: list[list[int]] = [[] for _ in range(n)]
        self._free = list(range(n))

    @property
    def n_free(self) -> int:
        """Sequences that can be taken."""
        return len(self._free)

    def held(self, sequence: int) -> list[int]:
        """The tokens decoded into a sequence; whoever decodes into it adds to them."""
        return self._held[sequence]

    def common(self, tokens: Sequence[int]) -> int:
        """How many of the tokens, but for the last, some sequence begins with."""
        return max(common(held, tokens) for held in self._held)

    def take(self, tokens: Sequence[int]) -> int:
        """A sequence that holds a beginning of the tokens, never all of them, and nothing else:
        the last must be decoded for its logits."""
        place = max(self._free, key=lambda free: common(self._held[free], tokens))
        self._free.remove(place)
        best = max(range(len(self._held)), key=lambda any_: common(self._held[any_], tokens))
        if common(self._held[best], tokens) >= common(self._held[place], tokens) + WORTH:
            self.copy(best, place)
        n = common(self._held[place], tokens)
        if n < len(self._held[place]):
            if n and self._context.keep(place, n):
                del self._held[place][n:]
            else:
                self._context.clear(place)
                self._held[place].clear()
        return place

    def take_any(self) -> int:
        """A sequence that will be a copy of another."""
        return self._free.pop()

    def copy(self, source: int, target: int) -> None:
        """Make a taken sequence equal to another, whole."""
        if self._held[target]:
            self._context.clear(target)
        self._context.copy(source, target)
        self._held[target] = [*self._held[source]]

    def give_back(self, sequence: int) -> None:
        """Its text has ended."""
        self._free.append(sequence)

    def clear(self) -> None:
        """Forget what all of them hold."""
        for sequence, held in enumerate(self._held):
            if held:
                self._context.clear(sequence)
                held.clear()


def common(held: Sequence[int], tokens: Sequence[int]) -> int:
    """Tokens that both begin with, the last of the wanted ones not counted."""
    most = min(len(held), len(tokens) - 1)
    if held[:most] == tokens[:most]:
        return most
    return next((i for i in range(most) if held[i] != tokens[i]), most)
