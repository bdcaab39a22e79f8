"""Targets: where generation happens. Each turns requests into transcripts.

`inprocess` drives llama.cpp and the engine in the worker itself. Every target gives the same
`Transcript`, though one that only sees text may leave steps out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.decode import Transcript
from pipeline.suites import Case
from pipeline.worker import Unit


@dataclass(frozen=True)
class Request:
    """One cell to generate."""

    key: str
    """The `cell_key`."""
    case: Case
    builder: str
    max_tokens: int

    @property
    def unit(self) -> Unit:
        """The cell as a unit of work."""
        return ("cell", self.builder, self.case.suite, self.case.id)


class Target(Protocol):
    """Something that generates under a constraint."""

    name: str
    device: str

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Transcript]]:
        """Generate all requests, in any order; each is given out as it ends."""
        ...
