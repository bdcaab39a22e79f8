"""The matrix: jobs to workers, messages to part files, parts to tables.

Every result goes one way: a worker's messages are appended to the part file of its job, and all
parts of a run are merged once, at the end (`finish`). A multirun is many jobs that share one
run folder. This is the only place where the death of a process becomes a verdict.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import re
import shutil
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipeline import provenance, sources, suites, tables
from pipeline.config import Settings, data_folder
from pipeline.errors import ConfigError, InputRefused, ResultsError, SourceError
from pipeline.job_target import SENTINEL, TargetRef
from pipeline.supervise import Death, supervise
from pipeline.verdict import Cause, End, Verdict
from pipeline.worker import FileRef, Job, SuiteRef, repeats

INVOCATION = "BYTE_EXACT_INVOCATION"
"""Environment variable that all jobs of one command share; a run folder belongs to one command."""


_LOST = (Verdict.CRASHED.value, Verdict.TIMEOUT.value)


@dataclass(frozen=True)
class Outcome:
    """How one job went."""

    folder: Path
    lost: int = 0
    """Cells or tables without a result because a native process or a server died or hung."""
    refusal: str | None = None
    """Why the job's input could not be used."""


@dataclass(frozen=True)
class Chosen:
    """A suite's file and those of its cases that are wanted."""

    path: Path
    name: str
    cases: tuple[str, ...]


@dataclass
class _Seen:
    """What a worker has said so far."""

    refusal: str | None = None
    ended: bool = False
    cells: set[tuple[str, str, str, int | None]] = field(
        default_factory=set[tuple[str, str, str, int | None]]
    )
    """(builder, suite, case, repeat) of every cell that has its row."""
    builders: set[str] = field(default_factory=set[str])
    """Builders with their row in `tokenizers`."""
    lost: int = 0
    """Cells of which the worker itself says that a server died, hung or gave no answer."""

    def note(self, message: dict[str, Any]) -> int:
        """Take one message in; how far the progress bar moves."""
        match message:
            case {"type": "refused", "message": text}:
                self.refusal = text
            case {"type": "end"}:
                self.ended = True
            case {"type": "rows", "table": "cells", "rows": rows}:
                self.cells |= {
                    (row["builder"], row["suite"], row["case"], row["repeat"]) for row in rows
                }
                self.lost += sum(row["verdict"] in _LOST for row in rows)
                return len(rows)
            case {"type": "rows", "table": "tokenizers", "rows": rows}:
                self.builders |= {row["builder"] for row in rows}
                return len(rows)
            case _:
                pass
        return 0


def execute(settings: Settings, *, keep_refused: bool) -> Outcome:
    """Run one job: all cells of one model and one tokenizer.

    An input that cannot be used raises a `PipelineError` and leaves nothing behind; with
    `keep_refused` (a multirun) its cells are kept as `load_refused`.
    """
    chosen = _chosen(settings)
    job = _job(settings, chosen)
    seen = _Seen()
    try:
        job = _with_files(job, settings)
        part = _open_part(settings.folder, job)
        death = _work(job, part, chosen, seen, settings.engine.time_limit)
        if seen.refusal is not None:
            raise InputRefused(seen.refusal)
    except (SourceError, InputRefused) as refusal:
        part = _part(settings.folder, job)
        if not keep_refused:
            _discard(part)
            raise
        if not part.exists():
            _open_part(settings.folder, job)
        _bury(job, chosen, seen, part, End.LOAD_REFUSED, str(refusal))
        return Outcome(settings.folder, refusal=str(refusal))
    if death is None:
        return Outcome(settings.folder, lost=seen.lost)
    end = End.TIMEOUT if death.hung else End.CRASHED
    buried = _bury(job, chosen, seen, part, end, death.reason)
    return Outcome(settings.folder, lost=seen.lost + buried)


def finish(folder: Path, outcomes: list[Outcome], settings: Settings) -> dict[str, Any]:
    """Merge the run's parts into its tables and write the manifest, which closes the run."""
    parts = sorted((folder / "parts").glob("*.jsonl"))
    counts = tables.merge(parts, folder)
    _write_reproducers(folder)
    hellos = [m for part in parts for m in tables.messages(part) if m["type"] == "hello"]
    timings = [m["timings"] for part in parts for m in tables.messages(part) if "timings" in m]
    jobs = [m["job"] for part in parts for m in tables.messages(part) if m["type"] == "job"]
    manifest: dict[str, Any] = {
        "schema_version": tables.SCHEMA_VERSION,
        "status": "complete",
        "run": folder.name,
        "stages": settings.stages,
        "rows": counts,
        "lost": sum(outcome.lost for outcome in outcomes),
        "refused": [outcome.refusal for outcome in outcomes if outcome.refusal],
        "versions": provenance.versions(),
        "engine": sorted({hello["engine"] for hello in hellos}),
        "devices": sorted({hello["device"] for hello in hellos}),
        "libraries": hellos[0]["libraries"] if hellos else None,
        "commit": provenance.commit(),
        "settings": _settings(settings),
        "sources": [_without_paths(job) for job in jobs],
        "volatile": {
            "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "host": platform.node(),
            "platform": platform.platform(),
            "timings": timings,
            "llama_cpp": hellos[0]["llama_cpp"] if hellos else None,
        },
    }
    temporary = folder / ".manifest.json"
    temporary.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    temporary.replace(folder / "manifest.json")
    return manifest


def _settings(settings: Settings) -> dict[str, Any]:
    """What decides outcomes; how fast they come does not."""
    engine = asdict(settings.engine)
    del engine["fast_forward"]
    sampling = asdict(settings.sampling)
    return {"engine": engine, "grammar": asdict(settings.grammar), "sampling": sampling}


def _write_reproducers(folder: Path) -> None:
    """Each reproducer as a suite file for `run` and as the text of a report."""
    for row in tables.read(folder, "reproducers").iter_rows(named=True):
        name = _file_name(f"{row['tokenizer']}-{row['builder']}-{row['name']}")
        (folder / "reproducers").mkdir(exist_ok=True)
        for suffix, text in (("yaml", row["suite_file"]), ("md", row["report"])):
            (folder / "reproducers" / f"{name}.{suffix}").write_text(text, encoding="utf-8")


def _chosen(settings: Settings) -> list[Chosen]:
    """The chosen suites, each with only its chosen cases."""
    grammar = settings.grammar
    out: list[Chosen] = []
    known: set[str] = set()
    target = settings.target.ref(settings.folder)
    for name, suite in grammar.suites.items():
        if not suite.file:
            raise ConfigError(f"grammar={name} needs a file: add grammar.path=FILE.yaml.")
        path = Path(suite.file)
        path = path if name == "path" else _dataset(suite.file)
        loaded = suites.load(path)
        known |= {case.id for case in loaded.cases}
        wanted = [c for c in loaded.cases if not grammar.cases or c.id in grammar.cases]
        cases = [c.id for c in wanted if target.carries(c.grammar.kind)]
        out.append(Chosen(path.absolute(), loaded.name, tuple(cases[: grammar.limit])))
    if target.remote and not any(suite.cases for suite in out):
        raise ConfigError(
            f"target={target.name} carries JSON Schemas only, and no chosen case has one: "
            "grammar=enum does."
        )
    if missing := sorted(set(grammar.cases) - known):
        raise ConfigError(f"grammar.cases: no chosen suite has a case {', '.join(missing)}.")
    names = [suite.name for suite in out]
    if len(set(names)) < len(names):
        raise ConfigError(f"two of the chosen suite files are named alike: {', '.join(names)}.")
    if not target.remote:
        return out
    others = [suite for suite in out if suite.name != SENTINEL]
    return [*others, _sentinel(settings, target)]


def _sentinel(settings: Settings, target: TargetRef) -> Chosen:
    """The cases that show whether a server enforces anything; never narrowed."""
    path = _dataset(settings.target.sentinel)
    cases = [c.id for c in suites.load(path).cases if target.carries(c.grammar.kind)]
    return Chosen(path, SENTINEL, tuple(cases))


def _dataset(file: str) -> Path:
    """A file of `datasets/`; an absolute path stays as it is."""
    return (data_folder("datasets") / file).absolute()


def _job(settings: Settings, chosen: list[Chosen]) -> Job:
    """The job, its files not yet found."""
    model, tokenizer = settings.model.source(), settings.tokenizer.source()
    forged = model.kind == "forge" and model.path is None
    own = tokenizer.kind == "own" and tokenizer.path is None
    if forged and own:
        raise ConfigError(
            f"model={model.name} has no tokenizer of its own: it is forged around one. "
            "Choose it with tokenizer=…, such as tokenizer=mistral_v1."
        )
    if not forged and not own:
        raise ConfigError(
            f"model={model.name} has weights that fit its own tokenizer only: leave "
            f"tokenizer={tokenizer.name} out, or try that tokenizer on model=tiny."
        )
    if not settings.builder.use:
        raise ConfigError("builder=[] chooses no builder; there must be at least one.")
    name = model.name if own else tokenizer.name
    label = settings.target.label or settings.target.name
    log = settings.folder / "parts" / f"{_file_name(f'{model.name}--{name}--{label}')}.log"
    target = settings.target.ref(log)
    if target.remote and "generate" not in settings.stages:
        raise ConfigError("A server's token table is not seen: audit goes with target=inprocess.")
    strings = settings.audit.strings_suite
    return Job(
        model=model.name,
        tokenizer=name,
        weights=None,
        tokens=None,
        prefix_scheme=settings.tokenizer.prefix_scheme,
        seed=model.seed,
        cache=str(sources.cache_dir()),
        builders=(target.label,) if target.remote else tuple(settings.builder.use),
        suites=tuple(SuiteRef(str(suite.path), suite.cases) for suite in chosen),
        stages=("generate",) if target.remote else tuple(settings.stages),
        device=settings.runtime.device,
        n_seq=settings.runtime.n_seq,
        n_threads=settings.runtime.n_threads,
        on_error=settings.engine.on_error,
        max_tokens=settings.engine.max_tokens,
        oracle=settings.engine.oracle,
        oracle_budget=settings.engine.oracle_budget,
        walks=settings.audit.walks,
        walks_suite=str(_dataset(settings.audit.walks_suite)),
        strings_suite=str(_dataset(strings)) if strings else None,
        audit_seed=settings.audit.seed,
        target=target,
        fast_forward=settings.engine.fast_forward,
        temperature=settings.sampling.temperature,
        top_p=settings.sampling.top_p,
        sampling_seed=settings.sampling.seed,
        repeats=settings.repeats,
        llama_lib=settings.runtime.llama_lib,
        llguidance_lib=settings.runtime.llguidance_lib,
        references=tuple(settings.audit.references),
    )


def _with_files(job: Job, settings: Settings) -> Job:
    """The job with its files found, fetched and checked."""
    model, tokenizer = settings.model.source(), settings.tokenizer.source()
    weights = tokens = None
    if model.kind != "forge" or model.path is not None:
        found = sources.resolve(model, role="model")
        weights = FileRef(str(found.path), found.sha256)
    else:
        found = sources.resolve(tokenizer, role="tokenizer")
        tokens = FileRef(str(found.path), found.sha256, found.format)
    return replace(job, weights=weights, tokens=tokens)


def _part(folder: Path, job: Job) -> Path:
    names = (job.model, job.tokenizer, *([job.target.label] if job.target.remote else []))
    return folder / "parts" / f"{_file_name('--'.join(names))}.jsonl"


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]", "_", text)


def _open_part(folder: Path, job: Job) -> Path:
    """The job's part file, in a run folder that belongs to this command."""
    invocation = os.environ.setdefault(INVOCATION, os.urandom(8).hex())
    owner = folder / "parts" / "owner"
    part = _part(folder, job)
    try:
        owner.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), owner.open("x") as file:
            file.write(invocation)
        if owner.read_text() != invocation:
            raise ResultsError(
                f"{folder} already holds a run. Choose another run.name, or remove that folder."
            )
        with part.open("x", encoding="utf-8") as file:
            file.write(json.dumps({"type": "job", "job": asdict(job)}) + "\n")
    except FileExistsError:
        raise ConfigError(
            f"two jobs of this run have the model {job.model} and the tokenizer {job.tokenizer}; "
            "give the files different names."
        ) from None
    except OSError as error:
        raise ResultsError(
            f"The results folder {folder} cannot be written: {error.strerror}. "
            "Choose another with results_dir=…."
        ) from None
    return part


def _work(
    job: Job, part: Path, chosen: list[Chosen], seen: _Seen, time_limit: float
) -> Death | None:
    """Run the job in a worker, its messages appended to the part file."""
    total = len(job.builders) * ("audit" in job.stages)
    if "generate" in job.stages:
        total += job.repeats * len(job.builders) * sum(len(suite.cases) for suite in chosen)
    with (
        part.open("a", encoding="utf-8") as journal,
        tqdm(total=total, desc=f"{job.model}/{job.tokenizer}", unit="cell", leave=False) as bar,
    ):

        def take(line: str) -> None:
            message = tables.message(line)
            if message is not None:
                journal.write(line)
                bar.update(seen.note(message))

        death = supervise(job, take, time_limit=time_limit)
        journal.flush()
        os.fsync(journal.fileno())
    if death is None and not seen.ended and seen.refusal is None:
        return Death(hung=False, reason="the worker ended before its job did.")
    return death


def _bury(job: Job, chosen: list[Chosen], seen: _Seen, part: Path, end: End, reason: str) -> int:
    """Give every cell and table that a job did not reach its row; the number of them."""
    whose = {"tokenizer": job.tokenizer}
    cells: list[dict[str, Any]] = []
    for suite in chosen if "generate" in job.stages else []:
        for case, builder, repeat in product(suite.cases, job.builders, repeats(job.repeats)):
            if (builder, suite.name, case, repeat) in seen.cells:
                continue
            key = (job.target.name, job.model, job.tokenizer, builder, suite.name, case)
            cells.append(
                dict.fromkeys(tables.SCHEMAS["cells"])
                | whose
                | {
                    "target": job.target.name,
                    "model": job.model,
                    "builder": builder,
                    "suite": suite.name,
                    "case": case,
                    "repeat": repeat,
                    "cell_key": "/".join(key),
                    "verdict": end.value,
                    "cause": (
                        Cause.RUNTIME if end is not End.LOAD_REFUSED else Cause.VOCABULARY
                    ).value,
                    "text_valid": False,
                    "ended": end.value,
                    "reason": reason,
                    "seed": job.seed,
                }
            )
    builders = [
        dict.fromkeys(tables.SCHEMAS["tokenizers"])
        | whose
        | {"builder": builder, "status": end.value, "reason": reason}
        for builder in job.builders
        if "audit" in job.stages and builder not in seen.builders
    ]
    with part.open("a", encoding="utf-8") as journal:
        for table, rows in (("cells", cells), ("tokenizers", builders)):
            journal.write(json.dumps({"type": "rows", "table": table, "rows": rows}) + "\n")
    return len(cells) + len(builders)


def _discard(part: Path) -> None:
    """Take back a part that holds nothing, and the run folder if nothing else is in it."""
    if not part.exists():
        return
    part.unlink()
    if not list(part.parent.glob("*.jsonl")):
        shutil.rmtree(part.parent)
        with contextlib.suppress(OSError):
            part.parent.parent.rmdir()


def _without_paths(job: dict[str, Any]) -> dict[str, Any]:
    """What a job read, without where it lay."""
    return {
        "model": job["model"],
        "tokenizer": job["tokenizer"],
        "weights_sha256": job["weights"]["sha256"] if job["weights"] else None,
        "tokens_sha256": job["tokens"]["sha256"] if job["tokens"] else None,
        "prefix_scheme": job["prefix_scheme"],
        "seed": job["seed"],
        "target": job["target"]["name"],
        "label": job["target"]["label"],
    }
