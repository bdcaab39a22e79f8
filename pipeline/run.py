"""The matrix: jobs to groups, groups to journals, journals to tables.

Every result goes one way: what a worker says of a unit of work is written to the journal of its
group, and all journals of a run are merged once, at the end (`finish`). A multirun is many jobs
that share one run folder; a resumed run is the same command again, less what its journals have.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import platform
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from tqdm import tqdm

from pipeline import attempts, journal, lost, provenance, resume, sources, suites, tables
from pipeline.attempts import Limits
from pipeline.config import Settings, data_folder
from pipeline.errors import ConfigError, InputRefused, SourceError
from pipeline.job_target import SENTINEL, TargetRef
from pipeline.journal import Command, Group, claim, file_name, group_path
from pipeline.lost import Fate
from pipeline.verdict import End
from pipeline.visible import visible
from pipeline.worker import FileRef, Job, SuiteRef, Unit

_begun: set[Path] = set()
"""Groups that this process has taken on."""


@dataclass(frozen=True)
class Outcome:
    """How one job went."""

    folder: Path
    refusal: str | None = None
    """Why the job's input could not be used."""


@dataclass(frozen=True)
class Chosen:
    """A suite's file and those of its cases that are wanted."""

    path: Path
    name: str
    cases: tuple[str, ...]


def execute(
    settings: Settings, command: Command, deadline: float | None, *, keep_refused: bool
) -> Outcome:
    """Run one job: all cells of one model and one tokenizer, or what is missing of them.

    An input that cannot be used raises a `PipelineError` and leaves nothing behind; with
    `keep_refused` (a multirun) its cells are kept as `load_refused`. `deadline` is when, by
    `time.monotonic()`, the run's budget is spent.
    """
    chosen = _chosen(settings)
    job = _job(settings, chosen)
    claim(settings.folder, command)
    group = Group(group_path(settings.folder, job))
    if group.path in _begun:
        raise ConfigError(
            f"two jobs of this run have the model {job.model} and the tokenizer {job.tokenizer}; "
            "give the files different names."
        )
    _begun.add(group.path)
    identity = _identity(settings, job)
    if group.identity:
        resume.same(group.identity, identity, settings.folder)
        if group.closed:
            return Outcome(settings.folder, group.refused)
    limits = Limits(settings.engine.time_limit, deadline)
    try:
        refusal = _work(group, job, identity, settings, limits)
    except (SourceError, InputRefused) as error:
        if not keep_refused and not group.done:
            _discard(group)
            raise
        if group.done and isinstance(error, SourceError):
            raise  # it was there before, so it may come back: this can be resumed
        refusal = str(error)
    if refusal is not None:
        group.begin(job, identity)
        for unit in lost.owed(job):
            group.finish(unit, lost.rows(job, unit, Fate(End.LOAD_REFUSED, refusal)))
    group.close(refusal)
    return Outcome(settings.folder, refusal)


def _work(
    group: Group, job: Job, identity: dict[str, str], settings: Settings, limits: Limits
) -> str | None:
    """Do a group's job; raises for a refused input as long as there is nothing to keep."""
    for again in (False, True):
        job = _with_files(job, settings)
        group.begin(job, identity)
        owed = set(lost.owed(job))
        with tqdm(
            total=len(owed),
            initial=len(owed & group.done),
            desc=visible(f"{job.model}/{job.tokenizer}"),
            unit="unit",
            leave=False,
        ) as bar:

            def progress(_: Unit, bar: Any = bar) -> None:
                bar.update()

            refusal = attempts.work(group, job, limits, progress)
        if refusal is None:
            return None
        if again or all(Path(ref.path).exists() for ref in (job.weights, job.tokens) if ref):
            raise InputRefused(refusal)
    raise AssertionError("the second turn of the loop returns or raises")  # files vanish once


def finish(folder: Path, settings: Settings, *, interrupted: bool) -> dict[str, Any]:
    """Merge the run's parts into its tables and write the manifest, which closes the run.

    A run is `complete` if every group that has begun is closed and nothing cut the command short;
    else it is `interrupted`, its tables hold what was done, and it can be resumed.
    """
    groups = journal.groups(folder)
    parts = [group.path for group in groups]
    interrupted |= not all(group.closed for group in groups)
    try:
        (folder / "manifest.json").unlink(missing_ok=True)
        for left in folder.glob(".*.parquet.*"):
            left.unlink()
        counts = tables.merge(parts, folder)
        _write_reproducers(folder)
        return _close(folder, settings, groups, counts, interrupted)
    except OSError as error:
        raise journal.unwritable(folder, error) from None


def _close(
    folder: Path,
    settings: Settings,
    groups: list[Group],
    counts: dict[str, int],
    interrupted: bool,
) -> dict[str, Any]:
    """Write the manifest."""
    hellos = [hello for group in groups for hello in group.hellos]
    jobs = [job for group in groups for job in group.jobs]
    timings = [timing for group in groups for timing in group.timings]
    manifest: dict[str, Any] = {
        "schema_version": tables.SCHEMA_VERSION,
        "status": "interrupted" if interrupted else "complete",
        "run": folder.name,
        "stages": settings.stages,
        "rows": counts,
        "lost": sum(group.lost for group in groups),
        "refused": [group.refused for group in groups if group.refused],
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
        name = file_name(f"{row['tokenizer']}-{row['builder']}-{row['name']}")
        (folder / "reproducers").mkdir(exist_ok=True)
        for suffix, text in (("yaml", row["suite_file"]), ("md", row["report"])):
            (folder / "reproducers" / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    for row in tables.read(folder, "engine_findings").iter_rows(named=True):
        what = (row["tokenizer"], "engine", row["engine"], row["verdict"], row["kind"])
        (folder / "reproducers").mkdir(exist_ok=True)
        name = file_name("-".join(what))
        (folder / "reproducers" / f"{name}.md").write_text(row["report"], encoding="utf-8")


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
    log = settings.folder / "parts" / f"{file_name(f'{model.name}--{name}--{label}')}.log"
    target = settings.target.ref(log)
    if target.remote and "generate" not in settings.stages:
        raise ConfigError("A server's token table is not seen: audit goes with target=inprocess.")
    strings = settings.audit.strings_suite
    return Job(
        model=_text(model.name),
        tokenizer=_text(name),
        weights=None,
        tokens=None,
        prefix_scheme=settings.tokenizer.prefix_scheme,
        seed=model.seed,
        cache=str(sources.cache_dir()),
        builders=(target.label,) if target.remote else tuple(settings.builder.use),
        suites=tuple(SuiteRef(str(suite.path), suite.cases, suite.name) for suite in chosen),
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
        case_limit=settings.engine.case_limit,
        memory_limit=int((settings.runtime.memory_limit or 0) * 2**30),
        engines=tuple(settings.audit.engines),
        engines_suite=str(_dataset(settings.audit.engines_suite)),
        outside=settings.builder.outside(),
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


def _text(name: str) -> str:
    """A name that tables can hold: a file's may be no UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()


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


def _identity(settings: Settings, job: Job) -> dict[str, str]:
    """All that a group's rows depend on, by the names people know it by; see `resume.same`."""
    found = dict(provenance.versions()) | {"commit": provenance.commit() or "none"}
    values = asdict(settings)
    for key in ("run", "results_dir"):
        del values[key]
    found |= _flat(values)
    for path in (*(suite.path for suite in job.suites), job.walks_suite, job.strings_suite):
        if path is not None:
            found[f"suite file {path}"] = provenance.file_sha256(Path(path))[:16]
    return found


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as `engine.max_tokens` → text."""
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flat(cast(dict[str, Any], value), f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = json.dumps(value)
    return found


def _discard(group: Group) -> None:
    """Take back a group that holds nothing, and the run folder if nothing else is in it."""
    group.path.unlink(missing_ok=True)
    parts = group.path.parent
    if not list(parts.glob("*.jsonl")):
        journal.release(parts.parent)
        shutil.rmtree(parts)
        with contextlib.suppress(OSError):
            parts.parent.rmdir()


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
