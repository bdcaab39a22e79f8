"""What parent and worker say to each other: a job, and messages about its units.

A worker is a native process, one per (model, tokenizer).

A job comes in as one JSON object on standard input; messages go out as one JSON object a line.
llama.cpp and llguidance live here and nowhere else, so that an abort costs one job and becomes a
verdict. The parent is the one that writes files. Neither polars nor Hydra is imported.

Messages: `hello` (versions, device), `started` and `done` (a unit of work; its `rows` of one table
stand between), `over` (a unit took too long, and the process ends itself), `spent` (processor time
in the engine and in all), `timings` (where the time of generation went), `refused` (an input that
cannot be used, with the reason), `end`. A job without `end` has died.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..engines.outside import Outside
from ..generation.target import TargetRef
from ..model.names import Unit


@dataclass(frozen=True)
class FileRef:
    """A file a job reads."""

    path: str
    sha256: str
    format: str = "gguf"


@dataclass(frozen=True)
class SuiteRef:
    """A suite file and which of its cases are wanted."""

    path: str
    cases: tuple[str, ...]
    name: str = ""
    layout: str | None = None
    """Of a collection that is generated from: its cases are the ids of its items."""


@dataclass(frozen=True)
class CollectionRef:
    """A collection of others and those of its items that are wanted; see `grammars.importers`."""

    name: str
    layout: str
    path: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """All cells of one model and one tokenizer."""

    model: str
    tokenizer: str
    weights: FileRef | None
    """The model's GGUF; None if one is forged around the tokenizer."""
    tokens: FileRef | None
    """The tokenizer's file; None if the model has its own."""
    prefix_scheme: str
    """`auto` or a `SpmPrefixScheme`: how prompts are encoded on SentencePiece."""
    seed: int
    """Of the forged weights."""
    cache: str
    builders: tuple[str, ...]
    suites: tuple[SuiteRef, ...]
    stages: tuple[str, ...]
    """Of `audit`, `generate`, `replay`."""
    device: str
    """`cpu`, `gpu` or `auto`."""
    n_seq: int
    """0 for automatic."""
    n_threads: int
    """0 for automatic."""
    on_error: str
    """`drop` as llama.cpp does, or `stop`."""
    max_tokens: int | None
    """Overrides every case's own limit."""
    oracle: str
    """Which masks of generation are judged: `off`, `first`, `every`, or `auto`."""
    oracle_budget: float
    """Seconds of oracle time."""
    walks: int
    """State walks per builder."""
    walks_suite: str
    """The suite file that is walked beside the chosen ones."""
    strings_suite: str | None
    """The file of accept/reject strings."""
    audit_seed: int
    engines: tuple[str, ...]
    """Released engines whose own masks are audited."""
    engines_suite: str
    """The suite file whose grammars they all know."""
    outside: Outside
    """How builders from released packages run."""
    references: tuple[str, ...]
    """Python interpreters with reference tokenizers; `here` is this one."""
    named: tuple[str, ...] = ()
    """Overrides that select this vocabulary, for the re-run command (user files without their
    folder)."""
    target: TargetRef = field(default_factory=TargetRef)
    """Where `generate` happens."""
    fast_forward: bool = True
    """Skip decoding for tokens the grammar forces."""
    temperature: float = 0.0
    """0 for the likeliest token."""
    top_p: float = 1.0
    sampling_seed: int = 0
    repeats: int = 1
    """Samples of each cell."""
    llama_lib: str | None = None
    """The llama.cpp library to use in place of llama-cpp-python's own."""
    llguidance_lib: str | None = None
    """The library with llguidance's C interface to use in place of the wheel's."""
    case_limit: float = 0.0
    """Time limit per case, in seconds; 0 for none."""
    memory_limit: int = 0
    """Memory limit of the worker, in bytes; 0 for the machine's memory."""
    collections: tuple[CollectionRef, ...] = ()
    """Collections to replay; already reduced to this shard's items."""
    prompt: str = ""
    """Prompt for imported items that have none."""
    constraint: str | None = None
    """File of the grammar for imported items that have none."""
    others: tuple[Unit, ...] = ()
    """Units assigned to other shards."""
    pending: str = ""
    """Bitmap over `units.owed(job)`: "1" still to do, "0" skip (see `units.less`); empty to do
    all."""
    apart: bool = False
    """Run one cell at a time, so that a crash identifies its cell."""

    @staticmethod
    def from_json(data: dict[str, Any]) -> Job:
        """The job a parent has sent."""
        data["weights"] = FileRef(**data["weights"]) if data["weights"] else None
        data["tokens"] = FileRef(**data["tokens"]) if data["tokens"] else None
        data["suites"] = tuple(
            SuiteRef(**suite | {"cases": tuple(suite["cases"])}) for suite in data["suites"]
        )
        data["collections"] = tuple(
            CollectionRef(**one | {"ids": tuple(one["ids"])}) for one in data["collections"]
        )
        data["others"] = tuple(tuple(unit) for unit in data["others"])
        data["outside"] = Outside(**data["outside"])
        data["engines"] = tuple(data["engines"])
        data["target"] = TargetRef.from_json(data["target"])
        data["builders"], data["stages"] = tuple(data["builders"]), tuple(data["stages"])
        data["references"], data["named"] = tuple(data["references"]), tuple(data["named"])
        return Job(**data)

    def to_json(self) -> str:
        """The job as a worker reads it."""
        return json.dumps(asdict(self))


def repeats(n: int) -> Sequence[int | None]:
    """Repeat indices of a cell; `(None,)` when it is not repeated."""
    return range(n) if n > 1 else (None,)
