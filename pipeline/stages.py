"""What a worker does with its job: check the suites, load, audit, generate, judge.

Every stage sends its rows as soon as it has them. An input that cannot be used is sent as
`refused` and ends the job; a builder that refuses a vocabulary ends only its own cells.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pipeline import audit, builders, forge, llama, llguidance_abi, provenance, suites, vocabulary
from pipeline.builders import Material, TokenTable, bridge
from pipeline.constraint import Llguidance
from pipeline.decode import Transcript
from pipeline.errors import BuilderRefused, LoadRefused, PipelineError
from pipeline.evaluate import evaluate
from pipeline.oracle import ByteGrammar, TokenOracle
from pipeline.suites import Case
from pipeline.targets import Request
from pipeline.targets.inprocess import InProcess
from pipeline.verdict import Cause, End
from pipeline.vocabulary import Vocabulary, attr_name
from pipeline.worker import Channel, FileRef, Job, Row

_SMALL_FILE = 256 * 2**20
"""Bytes up to which a model decodes on one thread: its steps are shorter than a spin barrier."""

_NO_GPU = (
    "runtime=gpu was asked for, but llama.cpp was built without a GPU backend or finds no GPU. "
    "Install a CUDA build with `CMAKE_ARGS=-DGGML_CUDA=on pip install --force-reinstall "
    "--no-binary llama-cpp-python llama-cpp-python`, or use runtime=cpu."
)


def run_job(job: Job, channel: Channel) -> None:
    """Do a job from end to end; refusals go out as messages, faults as exceptions."""
    llama.start()
    try:
        device = _device(job.device)
        channel.send("hello", **_facts(), device=device)
        cases = _cases(job)
        weights, file = _files(job)
    except (PipelineError, LoadRefused) as refusal:
        channel.send("refused", message=str(refusal))
        return
    with ExitStack() as stack:
        try:
            model = llama.Model(
                file,
                vocab_only="generate" not in job.stages,
                n_gpu_layers=-1 if device == "gpu" else 0,
            )
        except LoadRefused as refusal:
            channel.send("refused", message=f"llama.cpp refused {file.name}: {refusal}")
            return
        stack.enter_context(closing(model))
        engine = stack.enter_context(closing(Llguidance()))
        work = _Work(job, channel, model, weights, file, engine, device, vocabulary.read(model))
        work.build()
        if "audit" in job.stages:
            work.audit()
        if "generate" in job.stages:
            work.generate(cases)
    channel.send("end")


def survives(file: Path, data: bytes) -> bool:
    """Whether `llama_tokenize` of these bytes returns, tried in a process that may die of it."""
    child = subprocess.run(
        [sys.executable, "-m", "pipeline.worker", "tokenize", os.fspath(file), data.hex()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=120,
    )
    return child.returncode == 0


def tokenize_once(file: str, data: bytes) -> None:
    """What the child of `survives` does."""
    llama.start()
    with closing(llama.Model(Path(file), vocab_only=True)) as model:
        model.vocab.tokenize(data, add_special=False, parse_special=True)


def _device(wanted: str) -> str:
    if wanted == "gpu" and not llama.can_offload():
        raise PipelineError(_NO_GPU)
    return "gpu" if wanted != "cpu" and llama.can_offload() else "cpu"


def _facts() -> dict[str, object]:
    return {
        "versions": provenance.versions(),
        "engine": llguidance_abi.version(),
        "llama_cpp": llama.system_info(),
        "libraries": {
            "llama": provenance.file_sha256(llama.library_path()),
            "llguidance": provenance.file_sha256(llguidance_abi.library_path()),
        },
    }


def _cases(job: Job) -> list[Case]:
    """The wanted cases; a Lark grammar or schema that must compile is compiled over bytes."""
    chosen: list[Case] = []
    for reference in job.suites:
        suite = suites.load(Path(reference.path))
        wanted = set(reference.cases)
        chosen += [case for case in suite.cases if case.id in wanted]
    for case in chosen:
        error = ByteGrammar(case.grammar.engine_text()[1]).error
        if error is not None and not case.invalid_grammar:
            raise PipelineError(
                f"suite {case.suite}, case {case.id}: the grammar does not compile: "
                f"{' '.join(error.split())[:400]}. Mend it, or mark the case "
                "`invalid_grammar: true` if that is its point."
            )
        if error is None and case.invalid_grammar:
            raise PipelineError(
                f"suite {case.suite}, case {case.id} is marked `invalid_grammar: true`, but its "
                "grammar compiles. Remove the mark."
            )
    return chosen


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


@dataclass
class _Work:
    """A loaded model and the tables its builders make."""

    job: Job
    channel: Channel
    model: llama.Model
    weights: str
    """sha256 of the model's file."""
    file: Path
    engine: Llguidance
    device: str
    vocabulary: Vocabulary
    tables: dict[str, TokenTable] = field(default_factory=dict[str, TokenTable])
    refusals: dict[str, str] = field(default_factory=dict[str, str])

    @cached_property
    def material(self) -> Material:
        doubtful = self.vocabulary.tokenize_can_throw
        return Material(
            vocabulary=self.vocabulary,
            vocab=self.model.vocab,
            survives=(lambda data: survives(self.file, data)) if doubtful else lambda data: True,
        )

    def build(self) -> None:
        """Let every builder make its table; a refusal is kept for its rows."""
        for name in self.job.builders:
            try:
                table = builders.get(name).build(self.material)
                self.engine.tokenizer(table)
                self.tables[name] = table
            except BuilderRefused as refusal:
                self.refusals[name] = str(refusal)

    def audit(self) -> None:
        """Send `tokenizers`, `tokens` and `masks` of every builder."""
        for name in self.job.builders:
            whose: Row = {"tokenizer": self.job.tokenizer, "builder": name}
            table = self.tables.get(name)
            if table is None:
                self.channel.rows("tokenizers", [self._refused_row(whose)])
                continue
            wrong = list(audit.wrong_tokens(self.vocabulary, table))
            mode = audit.tokenize_mode(table, self.material)
            facts = audit.table_row(self.vocabulary, table, wrong, mode)
            self.channel.rows(
                "tokenizers",
                [whose | self._vocabulary_facts() | {"status": "ok", "reason": ""} | facts],
            )
            self.channel.rows("tokens", [whose | row for row in wrong])
            masks = audit.mask_rows(self.vocabulary, table, self.engine)
            self.channel.rows("masks", [whose | row for row in masks])

    def generate(self, cases: list[Case]) -> None:
        """Send `cells` and `steps` of every case under every builder."""
        target = InProcess(
            self.model,
            self.vocabulary,
            self.tables,
            self.engine,
            device=self.device,
            n_seq=self.job.n_seq,
            n_threads=self._n_threads(),
            drop_on_error=self.job.on_error == "drop",
        )
        grammars = {id(case): ByteGrammar(case.grammar.engine_text()[1]) for case in cases}
        oracle = TokenOracle(self.vocabulary.rendered)
        requests = list(self._requests(target.name, cases))
        refused = [request for request in requests if request.builder in self.refusals]
        for request in refused:
            self.channel.rows(
                "cells",
                [
                    self._cell_row(target.name, request)
                    | {
                        "verdict": End.BUILDER_REFUSED.value,
                        "cause": Cause.UNKNOWN.value,
                        "reason": self.refusals[request.builder],
                        "ended": End.BUILDER_REFUSED.value,
                    }
                ],
            )
        able = [request for request in requests if request.builder in self.tables]
        for request, transcript in target.generate(able):
            table = self.tables[request.builder]
            judged = evaluate(
                request.case,
                transcript,
                self.vocabulary,
                table,
                grammars[id(request.case)],
                oracle,
                lambda request=request, transcript=transcript: self._control(request, transcript),
            )
            loss = transcript.loss
            row = self._cell_row(target.name, request) | {
                "verdict": judged.verdict.value,
                "cause": judged.cause.value,
                "text_valid": judged.text_valid,
                "output": judged.output,
                "n_tokens": len(transcript.steps),
                "ended": transcript.end.value,
                "lost_at_step": loss.step if loss else None,
                "culprit_step": judged.culprit,
                "n_legal_bytes": judged.n_legal,
                "engine_error": loss.message if loss else None,
                "reason": judged.reason,
                "prompt_ids": list(transcript.prompt),
            }
            self.channel.rows("steps", self._step_rows(request, transcript, table))
            self.channel.rows("cells", [row])

    def _control(self, request: Request, transcript: Transcript) -> bool:
        """See `evaluate.Control`: the same tokens over true bytes, tokenized greedily."""
        claimed, special = bridge.piece_entries(self.material)
        table = TokenTable(claimed, special, bridge.end_token(self.material), None, "greedy")
        with closing(self.engine.compile(table, *request.case.grammar.engine_text())) as matcher:
            before = transcript.steps[: transcript.loss.step if transcript.loss else 0]
            return all(matcher.consume(s.token) for s in before) and matcher.mask() is not None

    def _requests(self, target: str, cases: list[Case]) -> Iterator[Request]:
        for case in cases:
            for builder in self.job.builders:
                yield Request(
                    key=self._key(target, builder, case),
                    case=case,
                    builder=builder,
                    max_tokens=self.job.max_tokens or case.max_tokens,
                )

    def _key(self, target: str, builder: str, case: Case) -> str:
        return "/".join((target, self.job.model, self.job.tokenizer, builder, case.suite, case.id))

    def _cell_row(self, target: str, request: Request) -> Row:
        """The columns that say which cell it is and what made it; the outcome's are None."""
        case, table = request.case, self.tables.get(request.builder)
        grammar_hash = provenance.digest(*case.grammar.engine_text())
        made_by: Row = {
            "model_sha256": self.weights,
            "vocab_hash": self.vocabulary.hash,
            "table_hash": table.hash if table else None,
            "grammar_hash": grammar_hash,
            "engine": self.engine.version,
            "llama_cpp": provenance.versions()["llama-cpp-python"],
            "seed": self.job.seed,
        }
        return {
            "target": target,
            "model": self.job.model,
            "tokenizer": self.job.tokenizer,
            "vocab_type": self.vocabulary.type.value,
            "builder": request.builder,
            "suite": case.suite,
            "case": case.id,
            "cell_key": request.key,
            "case_hash": case.hash,
            "cell_hash": provenance.digest(
                made_by,
                case.prompt,
                request.max_tokens,
                self.job.on_error,
                builders.get(request.builder).version,
            ),
            "verdict": None,
            "cause": None,
            "text_valid": False,
            "output": None,
            "n_tokens": None,
            "ended": None,
            "lost_at_step": None,
            "culprit_step": None,
            "n_legal_bytes": None,
            "engine_error": None,
            "reason": None,
            "tokenize": table.tokenize_mode if table else None,
            "prompt_ids": None,
            **made_by,
            "device": self.device,
        }

    def _step_rows(
        self, request: Request, transcript: Transcript, table: TokenTable
    ) -> Iterator[Row]:
        vocabulary = self.vocabulary
        for i, step in enumerate(transcript.steps):
            yield {
                "model": self.job.model,
                "tokenizer": self.job.tokenizer,
                "builder": request.builder,
                "suite": request.case.suite,
                "case": request.case.id,
                "cell_key": request.key,
                "step": i,
                "token": step.token,
                "attribute": attr_name(int(vocabulary.attrs[step.token])),
                "claimed": table.claimed[step.token],
                "true": vocabulary.true_bytes[step.token],
                "rendered": vocabulary.rendered[step.token],
                "n_allowed": step.n_allowed,
                "origin": step.origin.value,
            }

    def _vocabulary_facts(self) -> Row:
        vocabulary = self.vocabulary
        return {
            "vocab_type": vocabulary.type.value,
            "n_disagreements": len(vocabulary.disagreements),
            "add_space_prefix": vocabulary.add_space_prefix,
            "clean_spaces": vocabulary.clean_spaces,
            "eos": vocabulary.eos,
            "eot": vocabulary.eot,
            "end_ids": sorted(vocabulary.end_ids),
            "vocab_hash": vocabulary.hash,
        }

    def _refused_row(self, whose: Row) -> Row:
        return (
            whose
            | self._vocabulary_facts()
            | {
                "status": End.BUILDER_REFUSED.value,
                "reason": self.refusals[str(whose["builder"])],
                "n_tokens": self.vocabulary.n_tokens,
            }
            | dict.fromkeys(audit.COUNTS)
        )

    def _n_threads(self) -> int:
        if self.job.n_threads:
            return self.job.n_threads
        small = self.file.stat().st_size < _SMALL_FILE
        return 1 if small else os.cpu_count() or 1
