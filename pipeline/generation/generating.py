"""What a target generates from and what it gives: the part of the protocol for workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..audit.canonical import Canonical
from ..audit.token_oracle import TokenOracle
from ..engines.protocol import Engine
from ..engines.table import Material, TokenTable
from ..grammars.case import Case
from ..grammars.languages import Languages
from ..model.names import Row
from ..model.verdicts import Origin
from ..native import llama
from ..system.clock import Clock
from ..vocab.vocabulary import Vocabulary
from .cell import Observer
from .judge_transcript import Judged
from .prompts import Prompts
from .request import Request
from .settings import EngineSettings, Sampling, TargetSettings
from .target import Target


@dataclass(frozen=True)
class Inputs:
    """All that a target may use of a worker."""

    model_name: str
    """As in tables."""
    model: llama.Model
    """Loaded with its weights for a target that shows tables, else its vocabulary alone."""
    file: Path
    """The model's GGUF."""
    vocabulary: Vocabulary
    material: Material
    prompts: Prompts
    languages: Mapping[Case, Languages]
    """The wanted cases, each with its grammar over bytes."""
    oracle: TokenOracle
    canonical: Canonical
    tables: Mapping[str, TokenTable]
    """Of the builders; empty for a target that shows none."""
    grammar_engine: Engine
    target: TargetSettings
    engine: EngineSettings
    sampling: Sampling
    device: str
    """`cpu` or `gpu`."""
    n_seq: int
    """Cells in one batch, at most; 0 to choose."""
    n_threads: int
    """Threads for decoding."""
    log: Path
    """Where the log of a started server goes."""
    clock: Clock
    observe: Observer | None
    """Called with every mask of a running cell; None where masks are not judged."""
    alive: Callable[[], None]
    """Called at each answer of a server, as a sign of life."""


@dataclass(frozen=True)
class TokenStep:
    """One token of a cell, as far as the target tells it."""

    token: int
    n_allowed: int | None = None
    origin: Origin | None = None


@dataclass(frozen=True)
class Generated:
    """One cell that is done."""

    request: Request
    judged: Judged
    steps: Sequence[TokenStep] = ()
    columns: Row = field(default_factory=dict[str, object])
    """Further columns of `cells`: how it ended, what the engine said."""


class Generation(Protocol):
    """A target at work."""

    device: str
    """The column `device`."""
    made_by: Row
    """Columns of `cells` that say what made the output: a server's build, its library's hash."""

    @property
    def version(self) -> object:
        """What else decides the outcome, for `cell_hash`; None where the builders' versions do."""
        ...

    def generate(self, requests: Sequence[Request]) -> Iterator[Generated]:
        """Each request once, as soon as it is done and judged."""
        ...

    def timings(self) -> Row | None:
        """Where the time went; None where that is not known."""
        ...


class GeneratingTarget(Target, Protocol):
    """A target, with what workers use of it."""

    def opened(
        self, inputs: Inputs, requests: Sequence[Request]
    ) -> AbstractContextManager[Generation]:
        """The target, ready for these requests. Raises PipelineError where it cannot be used."""
        ...
