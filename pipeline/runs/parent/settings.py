"""Settings as typed dataclasses: all that a run is told.

`cli` makes Hydra's schema of them, which the YAML files under `conf/` extend.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...engines.outside import Outside
from ...model.errors import ConfigError
from ...vocab import prefix_schemes
from ...vocab.files.source import Source
from .target_settings import TargetConfig

MISSING: Any = "???"
"""What OmegaConf takes for a value that must still be given."""


@dataclass
class SourceConfig:
    """A model or tokenizer file: the fields of `Source`."""

    name: str = MISSING
    """Name in tables and errors; the group's option sets it."""
    kind: str = MISSING
    """Where the file comes from: forge, own, path, package, sdist, wheel or hub."""
    path: str | None = None
    """A file of your own, with the option `path`."""
    package: str | None = None
    """package, sdist, wheel: which Python package has the file."""
    version: str | None = None
    """sdist, wheel: the exact version."""
    members: list[str] = field(default_factory=list[str])
    """package, sdist, wheel: paths in it; the parts of one file, in order."""
    sha256: str | None = None
    """Checksum of the whole file; checked wherever it comes from."""
    repo: str | None = None
    """hub: owner/name of the repository."""
    file: str | None = None
    """hub: path in the repository."""
    revision: str | None = None
    """hub: branch, tag or commit; null for main."""
    seed: int = 0
    """forge: seed of the weights."""

    def source(self) -> Source:
        """The same as the plain, frozen type; a file of one's own is named by its stem."""
        name = Path(self.path).stem if self.kind == "path" and self.path else self.name
        fields: dict[str, Any] = {key: getattr(self, key) for key in Source.__dataclass_fields__}
        fields |= {"name": name, "members": tuple(self.members)}
        return Source(**fields)


@dataclass
class TokenizerConfig(SourceConfig):
    """A tokenizer file, and what it does not say of itself."""

    prefix_scheme: str = prefix_schemes.AUTO
    """Where SentencePiece's dummy prefix goes; auto: as the source says."""


@dataclass
class BuilderConfig:
    """One builder under test."""

    name: str = MISSING
    """Its name, as in `engines/builders/` or `engines/libraries/`."""


@dataclass
class BuildersConfig:
    """The builders chosen, by name; each file of `conf/builder` adds one."""

    use: dict[str, BuilderConfig] = field(default_factory=dict[str, BuilderConfig])
    """The chosen builders by name; set with builder=[a,b]."""
    python: str | None = None
    """The interpreter of another environment, in which released packages make their tables."""
    tokenizer_json: str | None = None
    """The model's own tokenizer.json, for builders that read one; else one of the GGUF."""
    time_limit: float = 300.0
    """Time limit of a released package for one table, in seconds."""
    memory_limit: float = 8.0
    """Memory limit of a released package, in GiB."""

    def outside(self) -> Outside:
        """The same as the plain, frozen type. Raises ConfigError for a file that is not there."""
        found = {"python": "", "tokenizer_json": ""}
        for key in found:
            path: str | None = getattr(self, key)
            if path is not None:
                if not Path(path).is_file():
                    raise ConfigError(f"builder.{key}={path} is not a file.")
                found[key] = str(Path(path).absolute())
        return Outside(**found, time_limit=self.time_limit, memory_limit=self.memory_limit)


@dataclass
class SuiteConfig:
    """One suite: a file of `datasets/`, or any path; with a layout, a collection of others."""

    file: str | None = MISSING
    """The suite file, or the folder of a collection."""
    layout: str | None = None
    """How a collection lies on the disk: a name of `grammars/importers/`; null for a suite file."""


@dataclass
class GrammarConfig:
    """The suites chosen, by name, and which of their cases."""

    suites: dict[str, SuiteConfig] = field(default_factory=dict[str, SuiteConfig])
    """The chosen suites and collections by name; set with grammar=[a,b]."""
    path: str | None = None
    """The suite file of `grammar=path`, or the folder of a collection."""
    limit: int | None = None
    """Use only the first N cases of each suite (or schemas of each collection)."""
    sample: int | None = None
    """Draw N at random (`seed`), before `limit` applies."""
    seed: int = 0
    """Seed of that draw."""
    cases: list[str] = field(default_factory=list[str])
    """Only cases with these ids, such as [founding]; all where empty."""
    prompt: str = "One example:"
    """Prompt for imported items that have none; `{grammar}` is replaced by the grammar's text."""
    constraint: str | None = None
    """A JSON Schema (.json), Lark (.lark) or GBNF (.gbnf) file for prompts without a grammar."""


@dataclass
class RuntimeConfig:
    """Where and how llama.cpp runs."""

    device: str = "auto"
    """cpu, gpu, or auto: gpu where llama.cpp was built for one and finds it."""
    n_seq: int = 0
    """Largest batch, in cells; 0 chooses by device and free memory."""
    n_threads: int = 0
    """Threads for decoding; 0 takes one for small models, else every processor."""
    memory_limit: float | None = None
    """Memory limit of a worker, in GiB; null for the machine's memory."""
    llama_lib: str | None = None
    """A libllama of your own, in place of llama-cpp-python's; its interface must be the same."""
    llguidance_lib: str | None = None
    """A library with llguidance's C interface, in place of the wheel's."""


@dataclass
class EngineConfig:
    """How a constraint is run."""

    on_error: str = "drop"
    """When the constraint is lost: `drop` it and go on, as llama.cpp does, or `stop`."""
    max_tokens: int | None = None
    """Token limit of every cell, in place of each case's own."""
    fast_forward: bool = True
    """Skip decoding for tokens the grammar forces. The output does not change."""
    oracle: str = "auto"
    """Which masks of generation are judged against the byte oracle: off, first, every, or auto:
    every up to 65,536 tokens, first above."""
    oracle_budget: float = 300.0
    """Time limit for the oracle per job, in seconds; later states are `no_oracle` and say so."""
    time_limit: float = 600.0
    """Longest silence of a worker, in seconds; after it the worker counts as hung."""
    case_limit: float = 120.0
    """Time limit per cell, in seconds; 0 for none."""


@dataclass
class SamplingConfig:
    """How tokens are chosen where the grammar leaves a choice."""

    temperature: float = 0.0
    """0 takes the likeliest; above, tokens are drawn, each cell from its own seed."""
    top_p: float = 1.0
    """Draw from the likeliest allowed tokens that together reach this probability."""
    seed: int = 0
    """Seed of the draws."""


@dataclass
class AuditConfig:
    """How deep the audit looks."""

    walks: int = 20
    """State walks per tokenizer and builder, spread over the suites and strategies."""
    seed: int = 0
    """Seed of the walks."""
    walks_suite: str = "walks.yaml"
    """Grammars that are walked beside the chosen suites: choices at spaces and punctuation."""
    strings_suite: str | None = "strings.yaml"
    """Grammars with strings to accept and reject; null for none."""
    engines: list[str] = field(default_factory=list[str])
    """Released engines whose own masks are looked at too: xgrammar, outlines_core, outlines, lmfe,
    gbnf."""
    engines_suite: str = "engines.yaml"
    """Grammars that all of them know."""
    references: list[str] = field(default_factory=list[str])
    """Pythons whose reference tokenizers are asked where a prefix goes; `here` for this one."""


@dataclass
class ShardConfig:
    """A part of a run's work, for a machine of its own."""

    count: int = 1
    """Number of shards; each gets an equal part of the work of every model and tokenizer."""
    index: int = 0
    """Which shard this is, from 0; a multirun takes all of them."""
    gpus: int = 0
    """GPUs that each job asks the cluster for."""


@dataclass
class RunConfig:
    """The run itself."""

    name: str = MISSING
    """The folder under `results_dir`; the date and time by default."""
    budget: float | None = None
    """Time limit for the whole command, in seconds. Unfinished cells become `timeout`. null for
    none."""


@dataclass
class Settings:
    """Everything a run is told."""

    model: SourceConfig = field(default_factory=SourceConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    grammar: GrammarConfig = field(default_factory=GrammarConfig)
    builder: BuildersConfig = field(default_factory=BuildersConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    target: TargetConfig = field(default_factory=TargetConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    repeats: int = 1
    """Samples of each cell; their rates come with confidence intervals."""
    audit: AuditConfig = field(default_factory=AuditConfig)
    shard: ShardConfig = field(default_factory=ShardConfig)
    run: RunConfig = field(default_factory=RunConfig)
    results_dir: str = "results"
    """The folder of all runs."""
    stages: list[str] | None = None
    """Of `audit` (token tables and masks), `generate` and `replay` (instances of collections);
    null for all, and then generate takes suites and prompts; other collections for servers only."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.results_dir) / self.run.name


STAGES = ("audit", "generate", "replay")
"""What a run can do, in this order."""

CHOICES = {
    "runtime.device": ("auto", "cpu", "gpu"),
    "engine.on_error": ("drop", "stop"),
    "engine.oracle": ("auto", "off", "first", "every"),
    "tokenizer.prefix_scheme": (prefix_schemes.AUTO, *prefix_schemes.SpmPrefixScheme),
}
"""Settings that take one of a few words, the first by default."""
