"""Plain audits of builders in this process, with the stages and the channel of a worker."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import cast

from pipeline.engines.builders import register
from pipeline.engines.llguidance import Llguidance
from pipeline.engines.table import Builder
from pipeline.generation.settings import EngineSettings
from pipeline.model.names import Row
from pipeline.native import llama
from pipeline.runs.worker import tables as worker_tables
from pipeline.runs.worker import token_tables, walks
from pipeline.runs.worker.channel import Channel
from pipeline.runs.worker.judge import Judge
from pipeline.runs.worker.session import Session
from pipeline.system.clock import UNTIMED
from pipeline.vocab.vocabulary import read
from support import workers
from support.command import ROOT
from support.vocabularies import vocabulary_file

N_WALKS = 8
"""Fewer than an audit's default: most of the time goes into judging their masks."""

_registered: set[str] = set()


@dataclass
class Collector:
    """A channel that keeps the rows of each table, as they arrive in the parent."""

    kept: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])

    def rows(self, table: str, rows: Sequence[Row] | Iterator[Row]) -> None:
        self.kept.setdefault(table, []).extend(map(_received, rows))

    def started(self, *unit: str) -> None: ...

    def done(self, *unit: str) -> None: ...


def _received(row: Row) -> Row:
    """A row as JSON carries it; bytes as Latin-1 text."""
    as_text = {k: v.decode("latin-1") if isinstance(v, bytes) else v for k, v in row.items()}
    received: Row = json.loads(json.dumps(as_text))
    return received


@dataclass
class Auditor:
    """One vocabulary, and the judge that all its audits share."""

    name: str
    model: llama.Model
    file: Path
    walks: int = N_WALKS
    strings: bool = True

    @staticmethod
    def open(name: str, stack: ExitStack, walks: int = N_WALKS, *, strings: bool = True) -> Auditor:
        """Load a vocabulary of `conf/tokenizer`; closing the stack frees it."""
        llama.start()
        file = vocabulary_file(name)
        model = stack.enter_context(closing(llama.Model(file, vocab_only=True)))
        return Auditor(name, model, file, walks, strings)

    @cached_property
    def session(self) -> Session:
        """A session whose engine, plan and channel change from audit to audit."""
        strings = str(ROOT / "datasets" / "strings.yaml") if self.strings else None
        job = workers.job(
            self.file,
            tokenizer=self.name,
            engine=EngineSettings(oracle="off", oracle_budget=1e9),
            audit=workers.audit(walks=self.walks, strings_suite=strings),
            builders=(),
        )
        return Session(
            job=job,
            channel=cast(Channel, Collector()),
            clock=UNTIMED,
            model=self.model,
            file=self.file,
            weights="",
            device="cpu",
            engine=Llguidance(),
            vocabulary=read(self.model),
            languages={},
        )

    @cached_property
    def judge(self) -> Judge:
        """It keeps what is legal after each prefix."""
        return Judge(self.session)

    def audit(self, of: Sequence[Builder]) -> dict[str, list[Row]]:
        """The rows of an audit of these builders, in this order, in one worker."""
        for builder in of:
            if builder.name not in _registered and not _shipped(builder):
                register(cast(type[Builder], partial(_same, builder)))
                _registered.add(builder.name)
        session = self.session
        session.job = session.job.planned(builders=tuple(builder.name for builder in of))
        session.__dict__.pop("pending", None)
        session.channel = cast(Channel, collector := Collector())
        with closing(Llguidance()) as engine:
            session.engine = engine
            made = worker_tables.Tables.of(session)
            token_tables.run(session, made, self.judge)
            walks.run(session, made, self.judge)
        return collector.kept


def _same(builder: Builder) -> Builder:
    return builder


def _shipped(builder: Builder) -> bool:
    return type(builder).__module__.startswith("pipeline.")
