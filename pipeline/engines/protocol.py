"""Constraints: a grammar compiled over a token table, behind one protocol for every engine.

llguidance is reached through the C structure that llama.cpp's bridge fills in, so what is tested
is what the bridge runs.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from .table import TokenTable

Mask = npt.NDArray[np.uint32]
"""Allowed tokens, one bit an id, shape (ceil(n_tokens / 32),)."""


class Matcher(Protocol):
    """One grammar over one token table, in one state."""

    @property
    def error(self) -> str | None:
        """Why the matcher is dead, compile errors included; None while it lives."""
        ...

    def mask(self) -> Mask | None:
        """The allowed tokens; None when they cannot be computed, which kills the matcher."""
        ...

    def consume(self, token: int) -> bool:
        """Advance by one token; False when it is refused, which kills the matcher."""
        ...

    def accepting(self) -> bool:
        """Whether the text so far is complete."""
        ...

    def stopped(self) -> bool:
        """Whether only the end is left; also true after an error."""
        ...

    def forced(self) -> list[int]:
        """Tokens about which the grammar and the tokenization leave no choice."""
        ...

    def clone(self) -> Matcher:
        """A matcher of its own in the same state."""
        ...

    def close(self) -> None:
        """Give the native memory back."""
        ...


class Engine(Protocol):
    """A constraint engine."""

    name: str
    version: str

    def compile(self, table: TokenTable, kind: str, grammar: str) -> Matcher:
        """A matcher at its start. A grammar that does not compile gives one with `error` set."""
        ...

    def close(self) -> None:
        """Give the native memory back; every matcher must be closed before."""
        ...


def allowed_ids(mask: Mask, n_tokens: int) -> npt.NDArray[np.int64]:
    """The ids whose bit is set, ascending; bits beyond the vocabulary are not looked at."""
    bits = np.unpackbits(mask.view(np.uint8), count=n_tokens, bitorder="little")
    return np.flatnonzero(bits)
