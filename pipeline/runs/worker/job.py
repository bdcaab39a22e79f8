"""Runs a job: checks its suites, loads the model, builds tables, and runs each stage.

Every stage sends its rows as soon as it has them. An input that cannot be used is sent as
`refused` and ends the job; a builder that refuses a vocabulary ends only its own cells.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ...engines import builders, libraries
from ...engines.libraries import package
from ...engines.llguidance import Llguidance
from ...generation import targets
from ...grammars import importers, suites
from ...grammars.case import Case
from ...grammars.checkers import Unchecked
from ...grammars.importers import cases
from ...grammars.languages import Languages
from ...model.errors import LoadRefused, PipelineError, SuiteError
from ...native import llama, llguidance
from ...system import provenance
from ...system.clock import Clock
from ...vocab.files import forge, gguf
from ...vocab.vocabulary import read
from .. import units
from ..protocol import End, FileRef, Hello, Job, Over, Refused, SuiteRef
from . import engine_masks, generate, prefix, replay, token_tables, walks
from .channel import Channel
from .judge import Judge
from .session import Session
from .tables import Tables

_NO_GPU = (
    "runtime=gpu is set, but llama.cpp was built without a GPU backend or finds no GPU. "
    "Install a CUDA build with `CMAKE_ARGS=-DGGML_CUDA=on pip install --force-reinstall "
    "--no-binary llama-cpp-python llama-cpp-python`, or use runtime=cpu."
)


def run_job(job: Job, channel: Channel) -> None:
    """Run a whole job. Refusals are sent as messages; faults raise."""
    llama.start()
    clock = Clock(job.engine.case_limit, lambda unit: channel.send(Over(unit)))
    try:
        device = _device(job.runtime.device)
        channel.send(_hello(device))
        if not job.builder.python and not job.remote:
            package.require(builders.get(name) for name in job.plan.builders)
            package.require(libraries.engines.get(name) for name in job.audit.engines)
        if job.audit.engines:
            engine_masks.known_to_all(job)  # raises early for an unsuitable suite
        languages = _cases(job, channel, clock)
        weights, file = _files(job)
    except (PipelineError, LoadRefused) as refusal:
        channel.send(Refused(str(refusal)))
        return
    _name_twins(file)
    with ExitStack() as stack:
        try:
            model = llama.Model(
                file,
                vocab_only="generate" not in job.plan.stages or job.remote,
                n_gpu_layers=-1 if device == "gpu" else 0,
            )
        except LoadRefused as refusal:
            channel.send(Refused(f"llama.cpp refused {file.name}: {refusal}"))
            return
        stack.enter_context(closing(model))
        engine = stack.enter_context(closing(Llguidance()))
        session = Session(
            job=job,
            channel=channel,
            clock=clock,
            model=model,
            file=file,
            weights=weights,
            device=device,
            engine=engine,
            vocabulary=read(model),
            languages=languages,
        )
        try:
            _work(session)
        except PipelineError as refusal:
            channel.send(Refused(str(refusal)))
            return
    channel.send(End())


def _work(session: Session) -> None:
    """Run the stages. Raises PipelineError for input that a user must correct."""
    stages, judge = session.job.plan.stages, Judge(session)
    if session.job.remote:
        generate.run(session, Tables(), judge)
        return
    if "audit" in stages:
        prefix.run(session)
    tables = Tables.of(session)
    if "audit" in stages:
        token_tables.run(session, tables, judge)
        walks.run(session, tables, judge)
        engine_masks.run(session, judge)
    if "generate" in stages:
        generate.run(session, tables, judge)
    if "replay" in stages:
        replay.run(session, tables, judge)


def _name_twins(file: Path) -> None:
    """Print the first token text that occurs twice. llama.cpp aborts on it without naming it."""
    try:
        tokens = gguf.scan(file).tokens()
    except LoadRefused:
        return  # llama.cpp reports a broken header itself
    seen: dict[bytes, int] = {}
    for token, text in enumerate(tokens):
        first = seen.setdefault(text, token)
        if first != token:
            print(f"{file.name}: ids {first} and {token} have the text {text!r}", file=sys.stderr)
            return


def _device(wanted: str) -> Literal["cpu", "gpu"]:
    if wanted == "gpu" and not llama.can_offload():
        raise PipelineError(_NO_GPU)
    return "gpu" if wanted != "cpu" and llama.can_offload() else "cpu"


def _hello(device: Literal["cpu", "gpu"]) -> Hello:
    return Hello(
        versions=provenance.versions(),
        engine=llguidance.version(),
        llama_cpp=llama.system_info(),
        build=llama.build(),
        libraries={
            "llama": provenance.file_sha256(llama.library_path()),
            "llguidance": provenance.file_sha256(llguidance.library_path()),
        },
        device=device,
    )


def _cases(job: Job, channel: Channel, clock: Clock) -> dict[Case, Languages]:
    """The chosen cases, each with its grammar compiled over bytes.

    Raises PipelineError if a suite's grammar does not compile, or if it compiles although its case
    is marked `invalid_grammar`. Grammars of imported and of stress cases need not compile.
    """
    chosen: list[Case] = []
    compiled: dict[Case, Languages] = {}
    left = {unit[2:4] for unit in units.pending(job) if unit[0] == "cell"}
    for reference in job.plan.suites:
        if reference.layout is not None:
            ids = [name for name in reference.cases if (reference.name, name) in left]
            chosen += _imported(job, reference, reference.layout, ids)
            continue
        suite = suites.load(Path(reference.path))
        wanted = set(reference.cases)
        chosen += [case for case in suite.cases if case.id in wanted]
    for case in chosen:
        unit = ("case", case.suite, case.id)
        channel.started(*unit)
        with clock.count(unit):
            languages = Languages.of(case)
        channel.done(*unit)
        if case.imported:
            compiled[_judgeable(case, languages)] = languages
            continue
        compiled[case] = languages
        error = compiled[case].grammar.error
        if error is not None and not (case.invalid_grammar or case.stress):
            raise PipelineError(
                f"suite {case.suite}, case {case.id}: the grammar does not compile: "
                f"{' '.join(error.split())[:400]}. Correct it, or mark the case "
                "`invalid_grammar: true` if that is intended."
            )
        if compiled[case].grammar.no_oracle is None and case.invalid_grammar:
            raise PipelineError(
                f"suite {case.suite}, case {case.id} is marked `invalid_grammar: true`, but its "
                "grammar compiles. Remove the mark."
            )
    return compiled


def _imported(job: Job, reference: SuiteRef, layout: str, ids: Sequence[str]) -> Iterator[Case]:
    """Items of a collection as cases. A case that cannot be generated has `refused`, a reason."""
    items = {item.id: item for item in importers.find(layout, Path(reference.path))}
    for name in ids:
        try:
            if name not in items:
                raise SuiteError(f"{reference.path}: {name} no longer exists.")
            entry = importers.read(layout, items[name], job.grammar.constraint)
            case = cases.case(reference.name, items[name], entry, job.grammar.prompt)
        except SuiteError as error:
            case = cases.refused(reference.name, name, str(error))
        if not case.refused and not targets.get(job.target.name).carries(case.grammar.kind):
            reason = f"target={job.target.name} accepts JSON Schemas only"
            case = cases.refused(reference.name, name, reason)
        yield case


def _judgeable(case: Case, languages: Languages) -> Case:
    """The imported case; refused if it has no checker and its grammar cannot judge bytes."""
    grammar = languages.grammar
    if isinstance(case.check, Unchecked) and grammar.no_oracle and grammar.error is None:
        return replace(case, refused=f"its output cannot be judged: {grammar.no_oracle}")
    return case


def _files(job: Job) -> tuple[str, Path]:
    """(sha256 of the file that decides the weights, path of the GGUF to load; it may be forged)."""
    cache = Path(job.cache)
    if job.weights is not None:
        return job.weights.sha256, Path(job.weights.path)
    assert job.tokens is not None
    tokens = _vocabulary_file(job.tokens, cache)
    if "generate" not in job.plan.stages:
        return job.tokens.sha256, tokens
    forged = forge.forge_model(tokens, job.model_source.seed, cache)
    return provenance.file_sha256(forged), forged


def _vocabulary_file(tokens: FileRef, cache: Path) -> Path:
    path = Path(tokens.path)
    return forge.vocabulary_of(path, cache) if tokens.format == "sentencepiece" else path
