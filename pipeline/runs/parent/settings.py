"""All settings of a run: the parts of every package, and those that only the parent reads.

`cli/compose` makes Hydra's schema of it, which the YAML files under `conf/` extend.
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
    """Number of shards; each gets an equal part of the work of every model and tokenizer."""
    index: int = setting(0, least=0)
    """Which shard this is, from 0; a multirun takes all of them."""
    gpus: int = setting(0, least=0)
    """GPUs that each job asks the cluster for."""


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
    """Of `audit` (token tables and masks), `generate` and `replay` (instances of collections);
    null for all, and then generate takes suites and prompts; other collections for servers only."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.results_dir) / self.run.name
