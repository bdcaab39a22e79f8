"""A matcher of a released engine, as implemented in the engine's process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol


class Probe(Protocol):
    """The state of one grammar."""

    def mask(self) -> bytes:
        """The allowed tokens: one bit per id, least significant bit first, in 32-bit words."""
        ...

    def consume(self, token: int) -> bool:
        """Advance by one token; False if it is refused."""
        ...

    def accepting(self) -> bool:
        """Whether the text so far is complete."""
        ...

    def clone(self) -> Probe:
        """An independent copy in the same state."""
        ...


Compile = Callable[[str, str], Probe]
"""(`regex` or `json`, text) → the grammar's first state. Raises the library's exceptions."""


def bits(ids: Iterable[int], n_tokens: int) -> bytes:
    """A mask that allows these ids, in the format of `Probe.mask`."""
    mask = bytearray((n_tokens + 31) // 32 * 4)
    for token in ids:
        mask[token >> 3] |= 1 << (token & 7)
    return bytes(mask)
