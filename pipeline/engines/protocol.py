"""The protocol of all engines: an engine compiles a grammar over a token table to a matcher.

llguidance is called through the C structure that llama.cpp's bridge uses, so that
byte-exact tests the code that the bridge runs.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from .table import TokenTable

Mask = npt.NDArray[np.uint32]
"""Allowed tokens, one bit per id, shape (ceil(n_tokens / 32),)."""


class Matcher(Protocol):
    """The state of one grammar over one token table."""

    @property
    def error(self) -> str | None:
        """Why the matcher failed, including compile errors; None if it has not."""
        ...

    @property
    def raised(self) -> str | None:
        """The first exception of the builder's tokenization, in words; None if it raised none."""
        ...

    def mask(self) -> Mask | None:
        """The allowed tokens; None if the computation fails, which sets `error`."""
        ...

    def consume(self, token: int) -> bool:
        """Advance by one token; False if it is refused, which sets `error`."""
        ...

    def accepting(self) -> bool:
        """Whether the text so far is complete."""
        ...

    def stopped(self) -> bool:
        """Whether no token can follow except the end; also True after an error."""
        ...

    def forced(self) -> list[int]:
        """The next tokens that the grammar and the tokenization force; empty if none."""
        ...

    def clone(self) -> Matcher:
        """An independent copy in the same state."""
        ...

    def close(self) -> None:
        """Free the native memory."""
        ...


class Engine(Protocol):
    """A constraint engine."""

    name: str
    version: str

    def compile(self, table: TokenTable, kind: str, grammar: str) -> Matcher:
        """A matcher at the start of the grammar; `error` is set if it does not compile."""
        ...

    def close(self) -> None:
        """Free the native memory; close all matchers first."""
        ...


def allowed_ids(mask: Mask, n_tokens: int) -> npt.NDArray[np.int64]:
    """The ids whose bit is set, ascending; bits beyond `n_tokens` are ignored."""
    bits = np.unpackbits(mask.view(np.uint8), count=n_tokens, bitorder="little")
    return np.flatnonzero(bits)
