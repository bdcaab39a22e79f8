"""Which suite detects which broken builder, with the functions of every suite run on each builder.

A suite detects a broken builder if it reports a fault that it does not report for `fixed` on the
same vocabulary. The faults are read from the rows that the product's stages send.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from pipeline.audit import special_tokens
from pipeline.audit import walks as audit_walks
from pipeline.audit.controls import Found, Shown
from pipeline.audit.masks import FAULTS
from pipeline.audit.walks import Walker
from pipeline.engines import builders
from pipeline.engines.llguidance import Llguidance
from pipeline.engines.protocol import Engine
from pipeline.engines.table import Builder, TokenTable
from pipeline.generation.in_process import Decoding, InProcess
from pipeline.generation.judge_transcript import evaluate
from pipeline.generation.request import Request
from pipeline.generation.settings import EngineSettings
from pipeline.grammars import suites
from pipeline.grammars.case import Case
from pipeline.grammars.languages import Languages
from pipeline.model.names import Row
from pipeline.model.verdicts import Cause, Control, Standing, Strategy, Verdict
from pipeline.native import llama
from pipeline.results.standing import standings
from pipeline.results.tables import parquet
from pipeline.runs.worker import token_tables, walks
from pipeline.runs.worker.channel import Channel
from pipeline.runs.worker.judge import Judge
from pipeline.runs.worker.session import Session
from pipeline.runs.worker.tables import Tables
from pipeline.system.clock import UNTIMED
from pipeline.vocab.files import forge, source
from pipeline.vocab.vocabulary import read
from support import laws
from support.audits import Collector
from support.broken_builders import BROKEN, BrokenBuilder
from support.command import ROOT
from support.laws import Subject
from support.vocabularies import vocabulary_file
from support.workers import job as audit_of

VOCABULARIES = ("llama_spm", "llama_bpe")
GENERATED = ("forced_literal", "enum", "half_free")
AUDITS = ("token_table", "exactness", "position_0", "specials")
SUITES = (*AUDITS, "standing", "walks", "strings", *GENERATED, "laws")

N_WALKS = 17
"""One walk per grammar of `walks.yaml`, with alternating strategies."""
EVERY = 2
"""Every N-th grammar of `strings.yaml` is replayed."""
_HARMLESS = {Verdict.OK, Verdict.TRUNCATED, Verdict.IMPOSSIBLE}

Faults = frozenset[Hashable]


@dataclass
class Detector:
    """One vocabulary with a forged tiny model; the faults of `fixed` are computed once."""

    name: str
    model: llama.Model
    file: Path
    stack: ExitStack

    @staticmethod
    def open(name: str, stack: ExitStack) -> Detector:
        """Load a vocabulary of `conf/tokenizer`; closing the stack frees it."""
        llama.start()
        file = forge.forge_model(vocabulary_file(name), 0, source.cache_dir())
        model = stack.enter_context(closing(llama.Model(file, vocab_only=False)))
        return Detector(name, model, file, stack)

    @cached_property
    def session(self) -> Session:
        """The product's session, whose engine and plan are changed from builder to builder."""
        job = audit_of(
            self.file,
            tokenizer=self.name,
            engine=EngineSettings(oracle="off", oracle_budget=1e9),
            builders=(),
        )
        return Session(
            job=job,
            channel=cast(Channel, Collector()),
            clock=UNTIMED,
            model=self.model,
            weights="",
            file=self.file,
            engine=Llguidance(),
            device="cpu",
            vocabulary=read(self.model),
            languages={},
        )

    @cached_property
    def judge(self) -> Judge:
        """One for all builders: it keeps what is legal after each prefix."""
        return Judge(self.session)

    @cached_property
    def languages(self) -> dict[Case, Languages]:
        """Made once for all builders: the judge's cache knows them by identity."""
        cases = [*self._walked(), *special_tokens.cases(self.session.vocabulary)]
        cases += [case for suite in GENERATED for case in _cases(suite)]
        return {case: Languages.of(case) for case in cases}

    @cached_property
    def fixed(self) -> dict[str, Faults]:
        """The faults that every suite reports for `fixed`."""
        return {
            suite: frozenset(found)
            for suite, found in self._reports(builders.get("fixed"), Llguidance())
        }

    def row(self, broken: BrokenBuilder) -> dict[str, bool] | None:
        """Whether each suite detects it; None where this vocabulary has nothing to break."""
        if not broken.breaks(self.session.material):
            return None
        # A separate engine: native tokenizers are shared by hash, which a broken builder may fake.
        reports = self._reports(broken, broken.wrap(Llguidance()))
        return {
            suite: any(fault not in self.fixed[suite] for fault in found)
            for suite, found in reports
        }

    def _reports(
        self, builder: Builder, engine: Engine
    ) -> Iterator[tuple[str, Iterator[Hashable]]]:
        """(suite, its faults) of every suite; the faults are computed lazily."""
        with closing(engine):
            material = self.session.material
            table = builder.build(material)
            self.session.engine = cast(Llguidance, engine)
            self.session.job = self.session.job.planned(builders=(builder.name,))
            self.session.__dict__.pop("pending", None)  # of the builder before
            self.session.channel = cast(Channel, collector := Collector())
            token_tables.run(self.session, Tables({builder.name: table}), self.judge)
            for suite in AUDITS:
                yield suite, _audit_faults(suite, table, collector.kept)
            yield "walks", self._walk_faults(table, engine)
            yield "strings", self._string_faults(table)
            for suite in GENERATED:
                yield suite, self._generation_faults(suite, builder.name, table, engine)
            yield "standing", _standing(collector.kept)
            subject = Subject(builder, material, cast(Llguidance, engine))
            yield "laws", iter(sorted(laws.broken(subject)))

    def _walked(self) -> list[Case]:
        return list(_cases("walks"))

    def _walk_faults(self, table: TokenTable, engine: Engine) -> Iterator[Hashable]:
        """Walks as the stage plans them, with the spellings of special tokens at the end."""
        vocabulary = self.session.vocabulary
        walker = Walker(
            vocabulary=vocabulary,
            table=table,
            judge=self.judge.masks,
            compile=lambda case: engine.compile(table, *case.grammar.engine_text()),
        )
        plan = [
            *audit_walks.plan(self._walked(), [], N_WALKS, 0),
            *((c, Strategy.UNIFORM, c.id) for c in special_tokens.cases(vocabulary)),
        ]
        for case, strategy, seed in plan:
            walk = walker.walk(case, self.languages[case], strategy, seed)
            for step, finding in enumerate(walk.findings):
                if finding.verdict in FAULTS:
                    before = [vocabulary.rendered[token] for token in walk.tokens[:step]]
                    yield case.id, b"".join(before), finding.verdict
            verdict = walks._walk_verdict(walk)  # pyright: ignore[reportPrivateUsage]
            if verdict in ("checker_disagrees", "not_accepting"):
                yield case.id, walk.text, verdict

    def _string_faults(self, table: TokenTable) -> Iterator[Hashable]:
        chosen = suites.load_strings(ROOT / "datasets" / "strings.yaml").grammars[::EVERY]
        rows = walks._string_rows(  # pyright: ignore[reportPrivateUsage]
            self.session, self.judge, table, "broken", chosen
        )
        for row in rows:
            if row["verdict"] != "ok":
                yield row["grammar"], row["string"], row["split"], row["verdict"]

    def _generation_faults(
        self, suite: str, name: str, table: TokenTable, engine: Engine
    ) -> Iterator[Hashable]:
        vocabulary = self.session.vocabulary
        target = InProcess(
            self.model,
            vocabulary,
            {name: table},
            engine,
            Decoding(device="cpu", n_seq=8, n_threads=1),
        )
        requests = [Request(case.id, case, name, case.max_tokens) for case in _cases(suite)]
        for request, transcript in target.generate(requests):
            judged = evaluate(
                request.case,
                transcript,
                vocabulary,
                table,
                self.languages[request.case].grammar,
                self.judge.oracle,
                _no_experiment,
            )
            if judged.verdict not in _HARMLESS:
                yield request.key, judged.verdict


def _no_experiment(_: Shown) -> Found:
    return Found(Cause.UNKNOWN, Control.FACTS)


def _standing(kept: dict[str, list[Row]]) -> Iterator[Hashable]:
    """The standing after the audit of the table and its tokenization, without walks."""
    tables = {name: parquet.frame(name, rows) for name, rows in kept.items()}
    for row in standings.of(tables, {"status": "complete"}).iter_rows(named=True):
        if row["standing"] != Standing.SAFE:
            yield row["standing"]


def _cases(suite: str) -> tuple[Case, ...]:
    return suites.load_named(suite, ROOT / "datasets").cases


def _token_faults(row: Row, _: TokenTable) -> Iterator[Hashable]:
    yield row["token"], row["damage"]


def _exactness_faults(row: Row, table: TokenTable) -> Iterator[Hashable]:
    """A different split is a fault only if the table claims to return the runtime's split."""
    claims_canonical = table.tokenize_mode == "llama_tokenize"
    if row["verdict"] in ("inexact", "thrown") or (
        row["verdict"] == "non_canonical" and claims_canonical
    ):
        yield row["probe"], row["verdict"]


def _end_faults(row: Row, _: TokenTable) -> Iterator[Hashable]:
    if row["end_is_wrong"]:
        yield "end", row["claimed_end"]


def _mask_faults(row: Row, _: TokenTable) -> Iterator[Hashable]:
    if row["n_missing"]:
        yield row["probe"], row["n_missing"]
    yield from ((row["probe"], token) for token in cast(list[int], row["bad_ids"]))
    if row["engine_error"]:
        yield row["probe"], row["engine_error"]


def _special_faults(row: Row, _: TokenTable) -> Iterator[Hashable]:
    if row["verdict"] != "ok":
        yield row["token"], row["verdict"]


_READERS: dict[str, dict[str, Callable[[Row, TokenTable], Iterator[Hashable]]]] = {
    "token_table": {"tokens": _token_faults, "tokenizers": _end_faults},
    "exactness": {"exactness": _exactness_faults},
    "position_0": {"masks": _mask_faults},
    "specials": {"specials": _special_faults},
}
"""suite → table that it fills → function that yields the faults of a row."""


def _audit_faults(suite: str, table: TokenTable, kept: dict[str, list[Row]]) -> Iterator[Hashable]:
    for name, faults in _READERS[suite].items():
        for row in kept.get(name, []):
            yield from faults(row, table)


def matrix(names: Sequence[str] = VOCABULARIES) -> dict[str, dict[str, dict[str, bool] | None]]:
    """vocabulary → broken builder → suite → detected; None if the fault does not exist there."""
    found: dict[str, dict[str, dict[str, bool] | None]] = {}
    for name in names:
        with ExitStack() as stack:
            detector = Detector.open(name, stack)
            found[name] = {broken.name: detector.row(broken) for broken in BROKEN}
    return found
