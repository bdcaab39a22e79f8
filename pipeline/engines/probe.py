"""One grammar of a released engine in one state, as its process answers for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol


class Probe(Protocol):
    """One grammar in one state."""

    def mask(self) -> bytes:
        """The allowed tokens, one bit an id, least significant first, in whole 32-bit words."""
        ...

    def consume(self, token: int) -> bool:
        """Advance by one token; False when it is refused."""
        ...

    def accepting(self) -> bool:
        """Whether the text so far is complete."""
        ...

    def clone(self) -> Probe:
        """The same state, to go on by itself."""
        ...


Compile = Callable[[str, str], Probe]
"""(`regex` or `json`, text) → the grammar's first state; raises what the library raises."""


def bits(ids: Iterable[int], n_tokens: int) -> bytes:
    """A mask of these ids."""
    mask = bytearray((n_tokens + 31) // 32 * 4)
    for token in ids:
        mask[token >> 3] |= 1 << (token & 7)
    return bytes(mask)
