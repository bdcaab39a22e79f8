"""The protocol between parent and worker: a job, and messages about its units.

A worker is a native process, one per (model, tokenizer). It reads a job as one JSON object from
standard input, and writes each message as one line of JSON. llama.cpp and llguidance live in the
worker and nowhere else, so that an abort costs one job and becomes a verdict. Only the parent
writes files. Neither polars nor Hydra is imported.

A job consists of groups of settings, defined in the packages that read them, and of a `Plan`. The
messages are the dataclasses of `Message`; the `rows` of a unit come between its `started` and its
`done`. A worker that exits without sending `end` has died. `protocol.schema.json` is the JSON
Schema of both directions (`schema`), so that a worker can be written in any language.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeVar

from ..audit.settings import AuditSettings
from ..engines.settings import BuilderSettings
from ..generation import targets
from ..generation.settings import EngineSettings, Sampling, TargetSettings
from ..grammars.settings import GrammarSettings
from ..model.names import Unit
from ..vocab.files.source import Source, TokenizerSource
from .settings import RuntimeSettings

VERSION = 2
"""Increased whenever a field of the job or of a message changes its name, type or meaning.

A new `schemas.SCHEMA_VERSION` (other columns or words in `rows`) also needs a new version here.
"""

T = TypeVar("T")
Cell = str | int | float | bool | None | list[str] | list[int]
"""A value of a row; bytes are sent as Latin-1 text, one character per byte."""


@dataclass(frozen=True)
class FileRef:
    """A file that a job reads."""

    path: str
    sha256: str
    format: str = "gguf"


@dataclass(frozen=True)
class SuiteRef:
    """A suite file and the cases to use from it."""

    path: str
    cases: tuple[str, ...]
    name: str = ""
    layout: str | None = None
    """Layout of a collection whose items are the cases; None for a suite file."""


@dataclass(frozen=True)
class CollectionRef:
    """An imported collection and the items to use from it; see `grammars.importers`."""

    name: str
    layout: str
    path: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What a job has to do; `units.required` lists its units."""

    builders: tuple[str, ...]
    """Names of builders; for a server target, its label only."""
    stages: tuple[str, ...]
    """Stages to run: `audit`, `generate`, `replay`."""
    suites: tuple[SuiteRef, ...] = ()
    collections: tuple[CollectionRef, ...] = ()
    """Collections to replay; already reduced to this shard's items."""
    others: tuple[Unit, ...] = ()
    """Units assigned to other shards."""
    pending: str = ""
    """Bitmap over `units.required(job)`: "1" still to do, "0" skip (see `units.for_worker`). Empty
    means that all are to do."""
    apart: bool = False
    """Run one cell at a time, so that a crash identifies its cell."""


@dataclass(frozen=True)
class Job:
    """All cells of one model and one tokenizer. Paths in it are absolute."""

    model: str
    """Name in tables."""
    tokenizer: str
    """Name in tables."""
    plan: Plan
    cache: str
    """The cache folder."""
    weights: FileRef | None = None
    """The model's GGUF; None if one is forged around the tokenizer."""
    tokens: FileRef | None = None
    """The tokenizer's file; None if the model has its own."""
    log: str | None = None
    """Log file of a server that is started for the run."""
    named: tuple[str, ...] = ()
    """Overrides that select this vocabulary, for the re-run command (user files without their
    folder)."""
    model_source: Source = field(default_factory=Source)
    tokenizer_source: TokenizerSource = field(default_factory=TokenizerSource)
    grammar: GrammarSettings = field(default_factory=GrammarSettings)
    builder: BuilderSettings = field(default_factory=BuilderSettings)
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)
    target: TargetSettings = field(default_factory=TargetSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    sampling: Sampling = field(default_factory=Sampling)
    repeats: int = 1
    audit: AuditSettings = field(default_factory=AuditSettings)
    protocol: int = VERSION

    @property
    def remote(self) -> bool:
        """Whether a server generates; its token table cannot be seen."""
        return not targets.get(self.target.name).shows_tables

    def planned(self, **changes: Any) -> Job:
        """The job with parts of its plan changed."""
        return replace(self, plan=replace(self.plan, **changes))

    def to_json(self) -> str:
        """The job as a worker reads it."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Hello:
    """The first message: what the worker runs on."""

    versions: dict[str, str]
    """Versions of packages, by name."""
    engine: str
    llama_cpp: str
    """llama.cpp's own description of its build."""
    libraries: dict[str, str]
    """sha256 of the native libraries."""
    device: Literal["cpu", "gpu"]
    build: str = ""
    """The version of ggml and the commit that llama.cpp's library reports."""
    protocol: int = VERSION
    type: Literal["hello"] = "hello"


@dataclass(frozen=True)
class Started:
    """Work on a unit begins; sent before the work, so that a crash identifies the unit."""

    unit: Unit
    type: Literal["started"] = "started"


@dataclass(frozen=True)
class Rows:
    """Rows of one table; they belong to the next `done`."""

    table: str
    rows: list[dict[str, Cell]]
    type: Literal["rows"] = "rows"


@dataclass(frozen=True)
class Done:
    """A unit is done: the rows sent since the last one are its rows."""

    unit: Unit
    type: Literal["done"] = "done"


@dataclass(frozen=True)
class Over:
    """A unit took longer than its time limit; the process ends itself."""

    unit: Unit
    type: Literal["over"] = "over"


@dataclass(frozen=True)
class Answered:
    """A server has answered: a sign of life."""

    type: Literal["answered"] = "answered"


@dataclass(frozen=True)
class Spent:
    """Processor time of a replay, in nanoseconds."""

    engine: int
    all: int
    type: Literal["spent"] = "spent"


@dataclass(frozen=True)
class Timings:
    """Where the time of generation went."""

    timings: dict[str, Any]
    type: Literal["timings"] = "timings"


@dataclass(frozen=True)
class Refused:
    """An input cannot be used; ends the job."""

    message: str
    type: Literal["refused"] = "refused"


@dataclass(frozen=True)
class End:
    """Every unit is done."""

    type: Literal["end"] = "end"


Message = Hello | Started | Rows | Done | Over | Answered | Spent | Timings | Refused | End


def read_job(line: str) -> Job:
    """Parse a job sent by the parent. Raises ValueError for malformed text or another version."""
    job: Job = adapter(Job).validate_json(line)
    if job.protocol != VERSION:
        raise ValueError(
            f"the job has protocol version {job.protocol}; this worker needs {VERSION}"
        )
    return job


@cache
def adapter(kind: Any) -> Any:
    """A pydantic adapter that checks plain data and converts it to a dataclass or a union."""
    from pydantic import TypeAdapter  # slow to import, and some processes never need it

    return TypeAdapter(kind)


def schema() -> str:
    """The text of `protocol.schema.json`. `job` is a worker's input, `message` its output."""
    from pydantic import TypeAdapter  # slow to import, as above

    kinds: dict[str, TypeAdapter[Any]] = {"job": adapter(Job), "message": adapter(Message)}
    refs, made = TypeAdapter.json_schemas(
        [(name, "serialization", kind) for name, kind in kinds.items()],
        title=f"byte-exact worker protocol, version {VERSION}",
    )
    for kind in made["$defs"].values():
        kind |= {"additionalProperties": False, "required": sorted(kind.get("properties", ()))}
    made |= {"properties": {name: ref for (name, _), ref in refs.items()}}
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def repeats(n: int) -> Sequence[int | None]:
    """Repeat indices of a cell; `(None,)` when it is not repeated."""
    return range(n) if n > 1 else (None,)
