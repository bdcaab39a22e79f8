"""What a worker does with its job: check the suites, load, build, audit, walk, generate, replay.

Every stage sends its rows as soon as it has them. An input that cannot be used is sent as
`refused` and ends the job; a builder that refuses a vocabulary ends only its own cells.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from ...engines import builders
from ...engines.libraries import package
from ...engines.llguidance import Llguidance
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
from ..protocol import FileRef, Job, SuiteRef
from . import engine_masks, generate, prefix, replay, servers, token_tables, walks
from .channel import Channel
from .session import Workbench

_NO_GPU = (
    "runtime=gpu was asked for, but llama.cpp was built without a GPU backend or finds no GPU. "
    "Install a CUDA build with `CMAKE_ARGS=-DGGML_CUDA=on pip install --force-reinstall "
    "--no-binary llama-cpp-python llama-cpp-python`, or use runtime=cpu."
)


def run_job(job: Job, channel: Channel) -> None:
    """Do a job from end to end; refusals go out as messages, faults as exceptions."""
    llama.start()
    clock = Clock(job.case_limit, lambda unit: channel.send("over", unit=unit))
    try:
        device = _device(job.device)
        channel.send("hello", **_facts(), device=device)
        if not job.outside.python and not job.target.remote:
            package.require(builders.get(name) for name in job.builders)
            package.require(package.engines.get(name) for name in job.engines)
        if job.engines:
            engine_masks.known_to_all(job)  # looked at once more where it is needed
        languages = _cases(job, channel, clock)
        weights, file = _files(job)
    except (PipelineError, LoadRefused) as refusal:
        channel.send("refused", message=str(refusal))
        return
    _name_twins(file)
    with ExitStack() as stack:
        try:
            model = llama.Model(
                file,
                vocab_only="generate" not in job.stages or job.target.remote,
                n_gpu_layers=-1 if device == "gpu" else 0,
            )
        except LoadRefused as refusal:
            channel.send("refused", message=f"llama.cpp refused {file.name}: {refusal}")
            return
        stack.enter_context(closing(model))
        engine = stack.enter_context(closing(Llguidance()))
        bench = Workbench(
            job, channel, model, weights, file, engine, device, read(model), languages, clock
        )
        try:
            _work(bench)
        except PipelineError as refusal:
            channel.send("refused", message=str(refusal))
            return
    channel.send("end")


def _work(bench: Workbench) -> None:
    """The stages; what a user has declared wrongly is met in the first of them."""
    stages = bench.job.stages
    if bench.job.target.remote:
        servers.run(bench)
        return
    if "audit" in stages:
        prefix.run(bench)
    bench.build()
    if "audit" in stages:
        token_tables.run(bench)
        walks.run(bench)
        engine_masks.run(bench)
    if "generate" in stages:
        generate.run(bench)
    if "replay" in stages:
        replay.run(bench)


def _name_twins(file: Path) -> None:
    """Name a token text that stands twice: llama.cpp aborts on it and does not say which."""
    try:
        tokens = gguf.scan(file).tokens()
    except LoadRefused:
        return  # llama.cpp has its own words for a broken header
    seen: dict[bytes, int] = {}
    for token, text in enumerate(tokens):
        first = seen.setdefault(text, token)
        if first != token:
            print(f"{file.name}: ids {first} and {token} have the text {text!r}", file=sys.stderr)
            return


def _device(wanted: str) -> str:
    if wanted == "gpu" and not llama.can_offload():
        raise PipelineError(_NO_GPU)
    return "gpu" if wanted != "cpu" and llama.can_offload() else "cpu"


def _facts() -> dict[str, object]:
    return {
        "versions": provenance.versions(),
        "engine": llguidance.version(),
        "llama_cpp": llama.system_info(),
        "libraries": {
            "llama": provenance.file_sha256(llama.library_path()),
            "llguidance": provenance.file_sha256(llguidance.library_path()),
        },
    }


def _cases(job: Job, channel: Channel, clock: Clock) -> dict[Case, Languages]:
    """The wanted cases, each compiled over bytes, as it must where it does not say otherwise."""
    chosen: list[Case] = []
    compiled: dict[Case, Languages] = {}
    left = {unit[2:4] for unit in units.pending(job) if unit[0] == "cell"}
    for reference in job.suites:
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
        with clock.on(unit):
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
                f"{' '.join(error.split())[:400]}. Mend it, or mark the case "
                "`invalid_grammar: true` if that is its point."
            )
        if compiled[case].grammar.no_oracle is None and case.invalid_grammar:
            raise PipelineError(
                f"suite {case.suite}, case {case.id} is marked `invalid_grammar: true`, but its "
                "grammar compiles. Remove the mark."
            )
    return compiled


def _imported(job: Job, reference: SuiteRef, layout: str, ids: Sequence[str]) -> Iterator[Case]:
    """These items of a collection as cases; one that cannot be tried says why."""
    items = {item.id: item for item in importers.find(layout, Path(reference.path))}
    for name in ids:
        try:
            if name not in items:
                raise SuiteError(f"{reference.path}: {name} is not there any more.")
            entry = importers.read(layout, items[name], job.constraint)
            case = cases.case(reference.name, items[name], entry, job.prompt)
        except SuiteError as error:
            case = cases.refused(reference.name, name, str(error))
        if not case.refused and not job.target.carries(case.grammar.kind):
            reason = f"target={job.target.name} carries JSON Schemas only"
            case = cases.refused(reference.name, name, reason)
        yield case


def _judgeable(case: Case, languages: Languages) -> Case:
    """An imported case, refused where its grammar is all there is to judge it by, and cannot."""
    grammar = languages.grammar
    if isinstance(case.check, Unchecked) and grammar.no_oracle and grammar.error is None:
        return replace(case, refused=f"nothing can judge it over bytes: {grammar.no_oracle}")
    return case


def _files(job: Job) -> tuple[str, Path]:
    """(sha256 of what decides the weights, the GGUF to load), forged where that is asked for."""
    cache = Path(job.cache)
    if job.weights is not None:
        return job.weights.sha256, Path(job.weights.path)
    assert job.tokens is not None
    tokens = _vocabulary_file(job.tokens, cache)
    if "generate" not in job.stages:
        return job.tokens.sha256, tokens
    forged = forge.forged(tokens, job.seed, cache)
    return provenance.file_sha256(forged), forged


def _vocabulary_file(tokens: FileRef, cache: Path) -> Path:
    path = Path(tokens.path)
    return forge.vocabulary_of(path, cache) if tokens.format == "sentencepiece" else path
