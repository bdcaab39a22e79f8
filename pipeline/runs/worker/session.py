"""A loaded model, its vocabulary, and the tables that the job's builders make of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ...audit.masks import Finding, MaskJudge
from ...audit.token_oracle import TokenOracle
from ...engines import builders
from ...engines.builders import bridge
from ...engines.llguidance import Llguidance
from ...engines.table import Material, Tokenize, TokenTable
from ...grammars.case import Case
from ...grammars.languages import Languages
from ...model.errors import BuilderRefused, PipelineError
from ...model.names import Row, Unit
from ...native import llama
from ...system.clock import Clock
from ...vocab.prefix_schemes import AUTO, SpmPrefixScheme, declared
from ...vocab.sentencepiece.encoder import SpmEncoder
from ...vocab.spelling import Spelling
from ...vocab.token_types import VocabType
from ...vocab.vocabulary import Vocabulary
from .. import units
from ..protocol import Job
from .channel import Channel
from .survival import Survival

_SMALL_FILE = 256 * 2**20
"""Bytes up to which a model decodes on one thread: its steps are shorter than a spin barrier."""
_SMALL_VOCABULARY = 65536
"""Tokens up to which `engine.oracle=auto` judges every mask."""


@dataclass
class Workbench:
    """What the stages of one job share."""

    job: Job
    channel: Channel
    model: llama.Model
    weights: str
    """sha256 of the model's file."""
    file: Path
    engine: Llguidance
    device: str
    vocabulary: Vocabulary
    languages: dict[Case, Languages]
    """The chosen cases, each with its grammar over bytes."""
    clock: Clock = field(default_factory=lambda: Clock(0, lambda _: None))
    """How long the work on each case has taken."""
    tables: dict[str, TokenTable] = field(default_factory=dict[str, TokenTable])
    refusals: dict[str, BuilderRefused] = field(default_factory=dict[str, BuilderRefused])
    """Builders that refused this vocabulary, with their reasons."""

    @cached_property
    def material(self) -> Material:
        """What builders may look at."""
        return Material(self.vocabulary, self.model.vocab, self.survival, self.job.outside)

    @cached_property
    def survival(self) -> Survival:
        """Which bytes `llama_tokenize` survives; doubtful ones are tried in a child."""
        return Survival(self.file, self.vocabulary)

    @cached_property
    def oracle(self) -> TokenOracle:
        """The true next tokens of the vocabulary."""
        return TokenOracle(self.vocabulary.rendered)

    @cached_property
    def judge(self) -> MaskJudge:
        """The judge of every mask of this job, with one cache and one budget."""
        return MaskJudge(self.vocabulary, self.oracle, self.job.oracle_budget)

    @cached_property
    def spelling(self) -> Spelling:
        """Byte-exact token sequences of the vocabulary."""
        return Spelling(self.vocabulary)

    @cached_property
    def exact_runtime(self) -> bool:
        """Whether `llama_tokenize` itself gives the founding probes back to the byte."""
        return bridge.probed_tokenize(self.material) is not None

    def state_row(self, builder: str, case: Case, walk: str, step: int, finding: Finding) -> Row:
        """A row of `states`."""
        return {
            "tokenizer": self.job.tokenizer,
            "builder": builder,
            "grammar": f"{case.suite}/{case.id}",
            "walk": walk,
            "step": step,
            "verdict": finding.verdict.value,
            "n_allowed": finding.n_allowed,
            "n_unsound": finding.n_unsound,
            "n_incomplete": finding.n_incomplete,
            "n_incomplete_forced": finding.n_incomplete_forced,
            "ids": list(finding.ids),
            "engine_free": finding.engine_free or None,
            "reason": finding.reason,
        }

    @cached_property
    def scheme(self) -> SpmPrefixScheme | None:
        """The prefix scheme of a SentencePiece vocabulary; None for any other.

        Raises `PipelineError` where one is declared for a vocabulary that has no prefix to place.
        """
        tokens, wanted = self.job.tokens, self.job.prefix_scheme
        if self.vocabulary.type is not VocabType.SPM:
            if wanted not in (AUTO, SpmPrefixScheme.NONE):
                raise PipelineError(
                    f"tokenizer.prefix_scheme={wanted}: the vocabulary of {self.job.tokenizer} is "
                    f"of type {self.vocabulary.type}, which has no such prefix. Leave it out."
                )
            return None
        return declared(
            wanted,
            adds_prefix=self.vocabulary.add_space_prefix,
            is_gguf=tokens is None or tokens.format == "gguf",
            sha256=tokens.sha256 if tokens else None,
        )

    @cached_property
    def native_scheme(self) -> SpmPrefixScheme | None:
        """The scheme that llama.cpp itself follows."""
        if self.vocabulary.type is not VocabType.SPM:
            return None
        return declared(AUTO, adds_prefix=self.vocabulary.add_space_prefix, is_gguf=True)

    @cached_property
    def prompt_encoder(self) -> SpmEncoder | None:
        """What encodes prompts; None where llama.cpp does.

        Raises `PipelineError` for a damaged vocabulary that has no such encoder.
        """
        if self.scheme is None or self.scheme is self.native_scheme:
            return None
        try:
            return SpmEncoder(self.vocabulary, self.scheme)
        except ValueError as error:
            raise PipelineError(
                f"tokenizer.prefix_scheme={self.scheme}: {self.job.tokenizer} cannot be encoded "
                f"under it: {error}. Leave it to llama.cpp with tokenizer.prefix_scheme=auto, or "
                "mend the file."
            ) from None

    @cached_property
    def canonical(self) -> Tokenize | None:
        """The split that a model was trained on, byte-exact; None where there is none.

        SentencePiece without its prefix, or `llama_tokenize` where it gives the probes back.
        """
        if self.vocabulary.type is VocabType.SPM and not self.vocabulary.tokenize_can_throw:
            with suppress(ValueError):  # a damaged file: a byte without a token, a score of NaN
                return SpmEncoder.lossless(self.vocabulary).encode
        return bridge.raw_tokenize(self.model.vocab) if self.exact_runtime else None

    def canonical_pieces(self, text: bytes) -> list[bytes]:
        """The canonical split of a text, else the longest token at each place."""
        if self.canonical is not None and (
            self.vocabulary.type is VocabType.SPM or not self.vocabulary.may_throw(text)
        ):
            pieces = [self.vocabulary.true_bytes[token] for token in self.canonical(text)]
            if b"".join(pieces) == text:
                return pieces
        return self.spelling.longest(text)

    @property
    def judged_masks(self) -> str:
        """Which masks of generation are judged: `off`, `first` or `every`."""
        if self.job.oracle != "auto":
            return self.job.oracle
        return "every" if self.vocabulary.n_tokens <= _SMALL_VOCABULARY else "first"

    @property
    def n_threads(self) -> int:
        """Threads for decoding."""
        if self.job.n_threads:
            return self.job.n_threads
        return 1 if self.file.stat().st_size < _SMALL_FILE else os.cpu_count() or 1

    def build(self) -> None:
        """Let every builder make its table; a refusal is kept for its rows."""
        self.tables, self.refusals = tables_of(
            self.job.builders,
            self.material,
            self.engine,
            started=lambda name: self.channel.started("build", name),
            done=lambda name: self.channel.done("build", name),
            apart=self.job.apart,
        )

    @cached_property
    def wanted(self) -> set[Unit]:
        """The units that are this job's and not yet done."""
        return units.pending(self.job)

    def start_if_pending(self, *unit: str) -> bool:
        """Announce a unit as started; False if it is already done."""
        missing = unit in self.wanted
        if missing:
            self.channel.started(*unit)
        return missing


def _unsaid(_: str) -> None:
    pass


def tables_of(
    names: Iterable[str],
    material: Material,
    engine: Llguidance,
    *,
    started: Callable[[str], None] = _unsaid,
    done: Callable[[str], None] = _unsaid,
    apart: bool = False,
) -> tuple[dict[str, TokenTable], dict[str, BuilderRefused]]:
    """The tables of builders, native tokenizers made; of those that refused, the reasons.

    Native tokenizers take most of the time: those of unlike tables are made side by side, or,
    where a death is to have one suspect, one after the other (`apart`).
    """
    tables: dict[str, TokenTable] = {}
    refusals: dict[str, BuilderRefused] = {}
    made: dict[str, Future[object]] = {}

    def finish(name: str) -> None:
        try:
            if name in tables:
                made[tables[name].hash].result()
        except BuilderRefused as refusal:
            refusals[name] = refusal
            del tables[name]
        done(name)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        begun: list[str] = []
        for name in names:
            started(name)
            begun.append(name)
            try:
                table = tables[name] = builders.get(name).build(material)
                if table.hash not in made:
                    made[table.hash] = pool.submit(engine.tokenizer, table)
            except BuilderRefused as refusal:
                refusals[name] = refusal
            if apart:
                finish(begun.pop())
        for name in begun:
            finish(name)
    return tables, refusals
