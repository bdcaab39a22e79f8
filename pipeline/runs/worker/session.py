"""A worker's session: the job, the loaded model, and the objects that all stages share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...engines.llguidance import Llguidance
from ...engines.table import Material
from ...generation.prompts import Prompts
from ...grammars.case import Case
from ...grammars.languages import Languages
from ...model.names import Unit
from ...native import llama
from ...system.clock import Clock
from ...vocab.vocabulary import Vocabulary
from .. import units
from ..protocol import Job
from .channel import Channel
from .survival import Survival

_SMALL_FILE = 256 * 2**20
"""File size in bytes below which a model decodes on one thread. Its steps are so short that waiting
for other threads would cost more."""


@dataclass
class Session:
    """One job in one worker."""

    job: Job
    channel: Channel
    clock: Clock
    """Measures the time spent on each case and enforces `engine.case_limit`."""
    model: llama.Model
    file: Path
    """The GGUF that is loaded."""
    weights: str
    """sha256 of the model's file."""
    device: str
    engine: Llguidance
    vocabulary: Vocabulary
    languages: dict[Case, Languages]
    """The chosen cases, each with its grammar over bytes."""

    @cached_property
    def material(self) -> Material:
        """The input of builders."""
        return Material(self.vocabulary, self.model.vocab, self.survival, self.job.builder)

    @cached_property
    def survival(self) -> Survival:
        """Which bytes crash `llama_tokenize`; uncertain ones are tried in a child process."""
        return Survival(self.file, self.vocabulary)

    @cached_property
    def prompts(self) -> Prompts:
        """Encodes prompts as token ids."""
        tokens = self.job.tokens
        return Prompts(
            self.model.vocab,
            self.vocabulary,
            self.job.tokenizer,
            wanted=self.job.tokenizer_source.prefix_scheme,
            is_gguf=tokens is None or tokens.format == "gguf",
            sha256=tokens.sha256 if tokens else None,
        )

    @property
    def n_threads(self) -> int:
        """Threads for decoding."""
        if self.job.runtime.n_threads:
            return self.job.runtime.n_threads
        return 1 if self.file.stat().st_size < _SMALL_FILE else os.cpu_count() or 1

    @cached_property
    def pending(self) -> set[Unit]:
        """The units that this job must still do."""
        return units.pending(self.job)

    def start_if_pending(self, *unit: str) -> bool:
        """Announce a unit as started. Returns False if it is done or belongs to another shard."""
        missing = unit in self.pending
        if missing:
            self.channel.started(*unit)
        return missing
