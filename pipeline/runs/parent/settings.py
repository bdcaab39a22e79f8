"""All settings of a run: the groups of every package, and those that only the parent reads.

`cli/compose` makes Hydra's schema from `Settings`; the YAML files under `conf/` extend it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...audit.settings import AuditSettings
from ...engines.settings import BuilderSettings
from ...generation.settings import EngineSettings, Sampling, TargetSettings
from ...grammars.settings import GrammarSettings
from ...model.settings import MISSING, setting
from ...vocab.files.source import Source, TokenizerSource
from ..settings import RuntimeSettings

STAGES = ("audit", "generate", "replay")
"""The stages of a run, in this order."""


@dataclass(frozen=True)
class ShardSettings:
    """Splits a run's work over machines."""

    count: int = setting(1, least=1)
    """Number of shards; each does an equal part of the work for every model and tokenizer."""
    index: int = setting(0, least=0)
    """Index of this shard, from 0; a multirun does all of them."""
    gpus: int = setting(0, least=0)
    """Number of GPUs that each job requests from the cluster."""


@dataclass(frozen=True)
class RunSettings:
    """Name and budget of the run."""

    name: str = MISSING
    """The folder under `results_dir`; the date and time by default."""
    budget: float | None = setting(None, least=0.1)
    """Time limit for the whole command, in seconds. Unfinished cells become `timeout`. null for
    none."""


@dataclass(frozen=True)
class Settings:
    """All settings of a run."""

    model: Source = field(default_factory=Source)
    tokenizer: TokenizerSource = field(default_factory=TokenizerSource)
    grammar: GrammarSettings = field(default_factory=GrammarSettings)
    builder: BuilderSettings = field(default_factory=BuilderSettings)
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)
    target: TargetSettings = field(default_factory=TargetSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    sampling: Sampling = field(default_factory=Sampling)
    repeats: int = setting(1, least=1)
    """Samples of each cell; their rates come with confidence intervals."""
    audit: AuditSettings = field(default_factory=AuditSettings)
    shard: ShardSettings = field(default_factory=ShardSettings)
    run: RunSettings = field(default_factory=RunSettings)
    results_dir: str = "results"
    """The folder of all runs."""
    stages: tuple[str, ...] | None = setting(None, one_of=STAGES)
    """Stages to run: `audit` (token tables and masks), `generate`, `replay` (instances of
    collections). null for all; `generate` then skips collections without prompts, except for
    servers."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.results_dir) / self.run.name
