"""The inputs and outputs of targets: the part of the target protocol for workers."""

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
    """Everything that a target may use."""

    model_name: str
    """Name in tables."""
    model: llama.Model
    """With weights for a target that uses tables, else only with its vocabulary."""
    file: Path
    """The model's GGUF."""
    vocabulary: Vocabulary
    material: Material
    prompts: Prompts
    languages: Mapping[Case, Languages]
    """The selected cases, each with its byte-level grammar."""
    oracle: TokenOracle
    canonical: Canonical
    tables: Mapping[str, TokenTable]
    """Tables by builder; empty for a target that does not use them."""
    grammar_engine: Engine
    target: TargetSettings
    engine: EngineSettings
    sampling: Sampling
    device: str
    """`cpu` or `gpu`."""
    n_seq: int
    """Largest batch, in cells; 0 to choose."""
    n_threads: int
    """Threads for decoding."""
    log: Path
    """The file for the log of a started server."""
    clock: Clock
    observe: Observer | None
    """Called with every mask of a running cell; None if masks are not judged."""
    alive: Callable[[], None]
    """Called at each answer of a server, to show that the worker does not hang."""


@dataclass(frozen=True)
class TokenStep:
    """One token of a cell, with the facts that the target reports."""

    token: int
    n_allowed: int | None = None
    origin: Origin | None = None


@dataclass(frozen=True)
class Generated:
    """One finished and judged cell."""

    request: Request
    judged: Judged
    steps: Sequence[TokenStep] = ()
    columns: Row = field(default_factory=dict[str, object])
    """Further columns of `cells`, such as how it ended and the engine's error."""


class Generation(Protocol):
    """A target that is ready to generate."""

    device: str
    """The column `device`."""
    made_by: Row
    """Columns of `cells` that identify the generator: a server's build, its library's hash."""

    @property
    def version(self) -> object:
        """What else decides the outcome, for `cell_hash`; None to use the builder's version."""
        ...

    def generate(self, requests: Sequence[Request]) -> Iterator[Generated]:
        """Yield each request once, as soon as it is finished and judged."""
        ...

    def timings(self) -> Row | None:
        """Timings of the generation; None if not known."""
        ...


class GeneratingTarget(Target, Protocol):
    """A target with the method that only workers use."""

    def opened(
        self, inputs: Inputs, requests: Sequence[Request]
    ) -> AbstractContextManager[Generation]:
        """The target, ready for these requests. Raises PipelineError if it cannot be used."""
        ...
