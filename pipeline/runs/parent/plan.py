"""Turns settings into a job: chooses suites, collections, their items, and the shard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...audit.settings import AuditSettings
from ...generation import targets
from ...generation.target import Target
from ...grammars import importers, suites
from ...grammars.importers import Item
from ...grammars.settings import SuiteSettings
from ...model.errors import ConfigError
from ...model.names import SENTINEL
from ...system import provenance
from ...system.rerun import file_name, quoted
from ...system.resources import data_folder
from ...vocab.files import resolve
from ...vocab.files.source import Source, cache_dir
from .. import units
from ..protocol import CollectionRef, FileRef, Job, Plan, SuiteRef
from .settings import STAGES, Settings


@dataclass(frozen=True)
class Chosen:
    """The chosen suites and collections with their items."""

    suites: tuple[SuiteRef, ...]
    collections: tuple[CollectionRef, ...]
    costs: tuple[tuple[int, ...], ...]
    """Estimated cost of each item, used to balance shards."""
    hashes: dict[str, str]
    """Content hashes by display name."""


def chosen(settings: Settings) -> Chosen:
    """The chosen suites and collections, each with only its chosen cases.

    Raises ConfigError for settings that choose nothing usable.
    """
    grammar = settings.grammar
    refs: list[SuiteRef] = []
    collections: list[CollectionRef] = []
    costs: list[tuple[int, ...]] = []
    hashes: dict[str, str] = {}
    known: set[str] = set()
    target = targets.get(settings.target.name)
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
    if not target.shows_tables and not any(suite.cases for suite in refs):
        raise ConfigError(
            f"target={target.name} accepts JSON Schemas only, and no chosen case has one. Choose "
            "another suite, such as grammar=enum."
        )
    if missing := sorted(set(grammar.cases) - known):
        raise ConfigError(f"grammar.cases: no chosen suite has a case {', '.join(missing)}.")
    if grammar.constraint is not None:
        hashes[f"constraint {grammar.constraint}"] = _file_hash(Path(grammar.constraint))
    names = [suite.name for suite in refs]
    if len(set(names)) < len(names):
        raise ConfigError(f"two of the chosen suite files have the same name: {', '.join(names)}.")
    if not target.shows_tables:
        refs = [suite for suite in refs if suite.name != SENTINEL]
        refs.append(_sentinel(settings, target))
        hashes[f"suite file {refs[-1].path}"] = provenance.file_sha256(Path(refs[-1].path))[:16]
    return Chosen(tuple(refs), tuple(collections), tuple(costs), hashes)


def _sentinel(settings: Settings, target: Target) -> SuiteRef:
    """The cases that show whether a server enforces anything; `limit` and `sample` do not apply."""
    path = _dataset(settings.target.sentinel)
    cases = [c.id for c in suites.load(path).cases if target.carries(c.grammar.kind)]
    return SuiteRef(str(path), tuple(cases), SENTINEL)


def _path(name: str, suite: SuiteSettings) -> Path:
    if not suite.file:
        what = "FILE.yaml" if suite.layout is None else "FOLDER"
        raise ConfigError(f"grammar={name} needs a path: add grammar.path={what}.")
    own = name == "path" or suite.layout is not None
    return (Path(suite.file) if own else _dataset(suite.file)).absolute()


def _generates(settings: Settings, layout: str) -> bool:
    """Whether cells are generated from a collection. Otherwise it is only replayed, which no server
    can do."""
    if settings.stages is None:
        return importers.get(layout).prompted or not targets.get(settings.target.name).shows_tables
    return "generate" in settings.stages


def _file_hash(constraint: Path) -> str:
    if not constraint.is_file() or constraint.suffix not in (".json", ".lark", ".gbnf"):
        raise ConfigError(
            f"grammar.constraint={constraint} is not a grammar file: give a JSON Schema "
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
    """The part of a job for one shard; all parts together are the whole job."""
    if count == 1:
        return whole
    kept = set(units.balance([cost for one in chosen.costs for cost in one], count, index))
    mine: dict[str, tuple[str, ...]] = {}
    at = 0
    for collection in chosen.collections:
        ids = (name for n, name in enumerate(collection.ids, start=at) if n in kept)
        mine[collection.name] = tuple(ids)
        at += len(collection.ids)
    suites = whole.plan.suites
    dealt = whole.planned(suites=tuple(one for one in suites if one.layout is None))
    return whole.planned(
        collections=tuple(replace(one, ids=mine[one.name]) for one in whole.plan.collections),
        suites=tuple(
            one if one.layout is None else replace(one, cases=mine[one.name]) for one in suites
        ),
        others=units.others(dealt, count, index),
    )


def job(settings: Settings, chosen: Chosen) -> Job:
    """The whole job; its files are not resolved yet. Raises ConfigError for settings that do not
    fit together."""
    model, tokenizer = settings.model, settings.tokenizer
    forged = model.kind == "forge" and model.path is None
    own = tokenizer.kind == "own" and tokenizer.path is None
    if forged and own:
        raise ConfigError(
            f"model={model.label} has no tokenizer of its own; it is forged around one. "
            "Choose a tokenizer, such as tokenizer=mistral_v1."
        )
    if not forged and not own:
        raise ConfigError(
            f"the weights of model={model.label} fit only its own tokenizer. Leave out "
            f"tokenizer={tokenizer.label}, or use that tokenizer with model=tiny."
        )
    if not settings.builder.use:
        raise ConfigError("builder=[] chooses no builder. Choose at least one.")
    target = targets.get(settings.target.name)
    name = model.label if own else tokenizer.label
    return Job(
        model=_text(model.label),
        tokenizer=_text(name),
        plan=_plan(settings, chosen, target),
        cache=str(cache_dir()),
        log=None if target.shows_tables else str(_log(settings, name)),
        named=_named("model", model) if own else _named("tokenizer", tokenizer),
        model_source=model,
        tokenizer_source=tokenizer,
        grammar=replace(
            settings.grammar, constraint=_absolute(settings.grammar.constraint), suites={}
        ),
        builder=settings.builder.located(),
        runtime=settings.runtime,
        target=settings.target,
        engine=settings.engine,
        sampling=settings.sampling,
        repeats=settings.repeats,
        audit=_audit(settings.audit),
    )


def _plan(settings: Settings, chosen: Chosen, target: Target) -> Plan:
    """The plan of a job. A server only generates, and its label takes the place of a builder."""
    if target.shows_tables:
        return Plan(
            builders=tuple(settings.builder.use),
            stages=_stages(settings, chosen),
            suites=chosen.suites,
            collections=chosen.collections,
        )
    if "generate" not in (settings.stages or STAGES):
        raise ConfigError(
            "A server's token table cannot be seen. Use target=inprocess to audit or replay."
        )
    return Plan((target.label(settings.target),), ("generate",), chosen.suites)


def _log(settings: Settings, tokenizer: str) -> Path:
    """The file for the log of a server that is started for the run."""
    of = f"{settings.model.label}--{tokenizer}--{settings.target.label or settings.target.name}"
    return (settings.folder / "parts" / f"{file_name(of)}.log").absolute()


def _audit(settings: AuditSettings) -> AuditSettings:
    """The settings with absolute paths of their suites."""
    strings = settings.strings_suite
    return replace(
        settings,
        walks_suite=str(_dataset(settings.walks_suite)),
        strings_suite=str(_dataset(strings)) if strings else None,
        engines_suite=str(_dataset(settings.engines_suite)),
    )


def _named(group: str, source: Source) -> tuple[str, ...]:
    """The overrides that select a source; a path is shortened to its file name."""
    if source.path is None:
        return (f"{group}={quoted(source.label)}",)
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
            f"stages={settings.stages}: no suite or collection is chosen for these stages. replay "
            "needs collections, such as grammar=maskbench grammar.path=FOLDER."
        )
    return stages


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def _text(name: str) -> str:
    """The name as valid UTF-8; a file name may be invalid."""
    return name.encode("utf-8", "backslashreplace").decode()


def with_files(job: Job, settings: Settings) -> Job:
    """The job with its files found, fetched and checked. Raises SourceError if one is missing."""
    model, tokenizer = settings.model, settings.tokenizer
    weights = tokens = None
    if model.kind != "forge" or model.path is not None:
        found = resolve.resolve(model, role="model")
        weights = FileRef(str(found.path), found.sha256)
    else:
        found = resolve.resolve(tokenizer, role="tokenizer")
        tokens = FileRef(str(found.path), found.sha256, found.format)
    return replace(job, weights=weights, tokens=tokens)
