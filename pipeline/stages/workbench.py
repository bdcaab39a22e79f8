"""A loaded model, its vocabulary, and the tables that the job's builders make of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pipeline import builders, llama
from pipeline.builders import Material, TokenTable, bridge
from pipeline.constraint import Llguidance
from pipeline.errors import BuilderRefused
from pipeline.limits import Clock
from pipeline.masks import Finding, MaskJudge
from pipeline.oracle import TokenOracle
from pipeline.replay import Spelling
from pipeline.stages.survival import Survival
from pipeline.suites import Case
from pipeline.vocabulary import Vocabulary
from pipeline.walks import Languages
from pipeline.worker import Channel, Job, Row

_SMALL_FILE = 256 * 2**20
"""Bytes up to which a model decodes on one thread: its steps are shorter than a spin barrier."""
_SMALL_VOCABULARY = 65536
"""Tokens up to which `engine.oracle=auto` judges every mask."""


@dataclass
class Workbench:
    """What the stages of one job share."""

    job: Job
    channel: Channel
    model: llama.Model
    weights: str
    """sha256 of the model's file."""
    file: Path
    engine: Llguidance
    device: str
    vocabulary: Vocabulary
    languages: dict[Case, Languages]
    """The chosen cases, each with its grammar over bytes."""
    clock: Clock = field(default_factory=lambda: Clock(0, lambda _: None))
    """How long the work on each case has taken."""
    tables: dict[str, TokenTable] = field(default_factory=dict[str, TokenTable])
    refusals: dict[str, str] = field(default_factory=dict[str, str])
    """Builders that refused this vocabulary, with their reasons."""

    @cached_property
    def material(self) -> Material:
        """What builders may look at."""
        return Material(self.vocabulary, self.model.vocab, self.survival)

    @cached_property
    def survival(self) -> Survival:
        """Which bytes `llama_tokenize` survives; doubtful ones are tried in a child."""
        return Survival(self.file, self.vocabulary)

    @cached_property
    def oracle(self) -> TokenOracle:
        """The true next tokens of the vocabulary."""
        return TokenOracle(self.vocabulary.rendered)

    @cached_property
    def judge(self) -> MaskJudge:
        """The judge of every mask of this job, with one cache and one budget."""
        return MaskJudge(self.vocabulary, self.oracle, self.job.oracle_budget)

    @cached_property
    def spelling(self) -> Spelling:
        """Byte-exact token sequences of the vocabulary."""
        return Spelling(self.vocabulary)

    @cached_property
    def exact_runtime(self) -> bool:
        """Whether `llama_tokenize` itself gives the founding probes back to the byte."""
        return bridge.probed_tokenize(self.material) is not None

    def state_row(self, builder: str, case: Case, walk: str, step: int, finding: Finding) -> Row:
        """A row of `states`."""
        return {
            "tokenizer": self.job.tokenizer,
            "builder": builder,
            "grammar": f"{case.suite}/{case.id}",
            "walk": walk,
            "step": step,
            "verdict": finding.verdict.value,
            "n_allowed": finding.n_allowed,
            "n_unsound": finding.n_unsound,
            "n_incomplete": finding.n_incomplete,
            "n_incomplete_forced": finding.n_incomplete_forced,
            "ids": list(finding.ids),
            "engine_free": finding.engine_free or None,
            "reason": finding.reason,
        }

    @property
    def judged_masks(self) -> str:
        """Which masks of generation are judged: `off`, `first` or `every`."""
        if self.job.oracle != "auto":
            return self.job.oracle
        return "every" if self.vocabulary.n_tokens <= _SMALL_VOCABULARY else "first"

    @property
    def n_threads(self) -> int:
        """Threads for decoding."""
        if self.job.n_threads:
            return self.job.n_threads
        return 1 if self.file.stat().st_size < _SMALL_FILE else os.cpu_count() or 1

    def build(self) -> None:
        """Let every builder make its table; a refusal is kept for its rows."""
        for name in self.job.builders:
            self.channel.started("build", name)
            try:
                table = builders.get(name).build(self.material)
                self.engine.tokenizer(table)
                self.tables[name] = table
            except BuilderRefused as refusal:
                self.refusals[name] = str(refusal)
            self.channel.done("build", name)

    def begin(self, *unit: str) -> bool:
        """Whether a unit is still to be done; if so, it is said to have started."""
        missing = unit not in self.job.skip
        if missing:
            self.channel.started(*unit)
        return missing
