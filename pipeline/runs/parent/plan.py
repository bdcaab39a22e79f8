"""From settings to a job: which suites and collections, which of their items, which shard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...generation.target import TargetRef
from ...grammars import importers, suites
from ...grammars.importers import Item
from ...model.errors import ConfigError
from ...model.names import IN_PROCESS, SENTINEL
from ...system import provenance
from ...system.rerun import file_name, quoted
from ...system.resources import data_folder
from ...vocab.files import resolve
from ...vocab.files.source import Source, cache_dir
from .. import units
from ..protocol import CollectionRef, FileRef, Job, SuiteRef
from .settings import STAGES, Settings, SuiteConfig


@dataclass(frozen=True)
class Chosen:
    """What is wanted of the suites and of the collections."""

    suites: tuple[SuiteRef, ...]
    collections: tuple[CollectionRef, ...]
    costs: tuple[tuple[int, ...], ...]
    """Estimated cost of each item, used to balance shards."""
    hashes: dict[str, str]
    """Content hashes by display name."""


def chosen(settings: Settings) -> Chosen:
    """The chosen suites and collections, each with only its chosen cases."""
    grammar = settings.grammar
    refs: list[SuiteRef] = []
    collections: list[CollectionRef] = []
    costs: list[tuple[int, ...]] = []
    hashes: dict[str, str] = {}
    known: set[str] = set()
    target = settings.target.ref(settings.folder)
    for name, suite in grammar.suites.items():
        path = _path(name, suite)
        if suite.layout is None:
            loaded = suites.load(path)
            ids = [case.id for case in loaded.cases]
            fit = [case.id for case in loaded.cases if target.carries(case.grammar.kind)]
            cases = tuple(importers.choose(_wanted(settings, fit), *_how_many(settings)))
            refs.append(SuiteRef(str(path), cases, loaded.name))
            hashes[f"suite file {path}"] = provenance.file_sha256(path)[:16]
        else:
            found = {item.id: item for item in importers.find(suite.layout, path)}
            ids = [*found]
            items = _items(settings, found)
            names = tuple(item.id for item in items)
            collections.append(CollectionRef(name, suite.layout, str(path), names))
            costs.append(tuple(item.size for item in items))
            if _generates(settings, suite.layout):
                refs.append(SuiteRef(str(path), names, name, suite.layout))
            hashes[f"collection {name}"] = importers.content_hash(items)[:16]
        known |= {*ids}
    if target.remote and not any(suite.cases for suite in refs):
        raise ConfigError(
            f"target={target.name} carries JSON Schemas only, and no chosen case has one: "
            "grammar=enum does."
        )
    if missing := sorted(set(grammar.cases) - known):
        raise ConfigError(f"grammar.cases: no chosen suite has a case {', '.join(missing)}.")
    if grammar.constraint is not None:
        hashes[f"constraint {grammar.constraint}"] = _file_hash(Path(grammar.constraint))
    names = [suite.name for suite in refs]
    if len(set(names)) < len(names):
        raise ConfigError(f"two of the chosen suite files are named alike: {', '.join(names)}.")
    if target.remote:
        refs = [suite for suite in refs if suite.name != SENTINEL]
        refs.append(_sentinel(settings, target))
        hashes[f"suite file {refs[-1].path}"] = provenance.file_sha256(Path(refs[-1].path))[:16]
    return Chosen(tuple(refs), tuple(collections), tuple(costs), hashes)


def _sentinel(settings: Settings, target: TargetRef) -> SuiteRef:
    """The cases that show whether a server enforces anything; never narrowed."""
    path = _dataset(settings.target.sentinel)
    cases = [c.id for c in suites.load(path).cases if target.carries(c.grammar.kind)]
    return SuiteRef(str(path), tuple(cases), SENTINEL)


def _path(name: str, suite: SuiteConfig) -> Path:
    if not suite.file:
        what = "FILE.yaml" if suite.layout is None else "FOLDER"
        raise ConfigError(f"grammar={name} needs a place: add grammar.path={what}.")
    own = name == "path" or suite.layout is not None
    return (Path(suite.file) if own else _dataset(suite.file)).absolute()


def _generates(settings: Settings, layout: str) -> bool:
    """Whether a collection is generated from, and not only replayed, which no server can be."""
    if settings.stages is None:
        return importers.get(layout).prompted or settings.target.name != IN_PROCESS
    return "generate" in settings.stages


def _file_hash(constraint: Path) -> str:
    if not constraint.is_file() or constraint.suffix not in (".json", ".lark", ".gbnf"):
        raise ConfigError(
            f"grammar.constraint={constraint} is no file with a grammar: give a JSON Schema "
            "(.json), a Lark (.lark) or a GBNF (.gbnf) file."
        )
    return provenance.file_sha256(constraint)[:16]


def _how_many(settings: Settings) -> tuple[int | None, int | None, int]:
    return settings.grammar.limit, settings.grammar.sample, settings.grammar.seed


def _wanted(settings: Settings, ids: list[str]) -> list[str]:
    wanted = set(settings.grammar.cases)
    return [one for one in ids if not wanted or one in wanted]


def _items(settings: Settings, found: dict[str, Item]) -> list[Item]:
    ids = importers.choose(_wanted(settings, [*found]), *_how_many(settings))
    return [found[one] for one in ids]


def _dataset(file: str) -> Path:
    """A file of `datasets/`; an absolute path stays as it is."""
    return (data_folder("datasets") / file).absolute()


def shard(whole: Job, chosen: Chosen, count: int, index: int) -> Job:
    """The part of a job that falls to a shard; all parts together are the job."""
    if count == 1:
        return whole
    kept = set(units.even([cost for one in chosen.costs for cost in one], count, index))
    mine: dict[str, tuple[str, ...]] = {}
    at = 0
    for collection in chosen.collections:
        ids = (name for n, name in enumerate(collection.ids, start=at) if n in kept)
        mine[collection.name] = tuple(ids)
        at += len(collection.ids)
    dealt = replace(whole, suites=tuple(one for one in whole.suites if one.layout is None))
    return replace(
        whole,
        collections=tuple(replace(one, ids=mine[one.name]) for one in whole.collections),
        suites=tuple(
            one if one.layout is None else replace(one, cases=mine[one.name])
            for one in whole.suites
        ),
        others=units.others(dealt, count, index),
    )


def job(settings: Settings, chosen: Chosen) -> Job:
    """The whole job, its files not yet found."""
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
    if target.remote and "generate" not in (settings.stages or STAGES):
        raise ConfigError("A server's token table is not seen: audit goes with target=inprocess.")
    strings = settings.audit.strings_suite
    return Job(
        model=_text(model.name),
        tokenizer=_text(name),
        weights=None,
        tokens=None,
        prefix_scheme=settings.tokenizer.prefix_scheme,
        seed=model.seed,
        cache=str(cache_dir()),
        builders=(target.label,) if target.remote else tuple(settings.builder.use),
        suites=chosen.suites,
        collections=() if target.remote else chosen.collections,
        stages=("generate",) if target.remote else _stages(settings, chosen),
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
        prompt=settings.grammar.prompt,
        constraint=_absolute(settings.grammar.constraint),
        named=_named("model", model) if own else _named("tokenizer", tokenizer),
    )


def _named(group: str, source: Source) -> tuple[str, ...]:
    """How the command line chooses a source; of a path only the file's name, which tables hold."""
    if source.path is None:
        return (f"{group}={quoted(source.name)}",)
    return f"{group}=path", f"{group}.path={quoted(_text(Path(source.path).name))}"


def _stages(settings: Settings, chosen: Chosen) -> tuple[str, ...]:
    """The stages that have something to work on."""
    idle = {
        stage
        for stage, some in (("generate", chosen.suites), ("replay", chosen.collections))
        if not some
    }
    stages = tuple(stage for stage in settings.stages or STAGES if stage not in idle)
    if not stages:
        raise ConfigError(
            f"stages={settings.stages}: nothing is chosen for it. replay takes collections, such "
            "as grammar=maskbench grammar.path=FOLDER."
        )
    return stages


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def _text(name: str) -> str:
    """A name that tables can hold: a file's may be no UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()


def with_files(job: Job, settings: Settings) -> Job:
    """The job with its files found, fetched and checked."""
    model, tokenizer = settings.model.source(), settings.tokenizer.source()
    weights = tokens = None
    if model.kind != "forge" or model.path is not None:
        found = resolve.resolve(model, role="model")
        weights = FileRef(str(found.path), found.sha256)
    else:
        found = resolve.resolve(tokenizer, role="tokenizer")
        tokens = FileRef(str(found.path), found.sha256, found.format)
    return replace(job, weights=weights, tokens=tokens)
