"""The replay stage: checks instances of imported schemas against every builder's masks.

Each of several threads works on one schema at a time, under all its builders. Almost all the time
is spent in the engine, which releases the GIL.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...audit.acceptance import Meter, WalkResult, judge, walk
from ...engines.builders import bridge
from ...engines.protocol import Matcher
from ...engines.table import TokenTable
from ...grammars import checkers, importers, label_witness
from ...grammars.checkers import JsonValue
from ...grammars.importers import Entry, Instance, Item
from ...grammars.languages import ByteGrammar
from ...model.errors import SuiteError
from ...model.names import Row
from ...model.verdicts import Cause, InstanceEnd, InstanceVerdict, Split
from ...native import llguidance
from ...system import provenance
from ...system.clock import Clock
from ...vocab.spelling import Splits
from ..protocol import CollectionRef, Spent
from .judge import Judge
from .session import Session
from .tables import Tables


@dataclass(frozen=True)
class _Task:
    """One schema, and the builders whose replay is still to do."""

    collection: CollectionRef
    item: Item
    builders: list[str]


def run(session: Session, tables: Tables, judge: Judge) -> None:
    """Send `replay` and `replay_times` of every schema and builder."""
    splits = Splits(session.vocabulary, judge.spelling, bridge.raw_tokenize(session.material.vocab))
    tasks, turn = _tasks(session), threading.Lock()
    truth = bridge.true_table(session.material)
    session.engine.tokenizer(truth)  # cached here, so that threads only look it up

    def work() -> int:
        """Do tasks until none is left. Returns the time spent in the engine, in nanoseconds."""
        clock, engine = session.clock.restarted(), 0
        while True:
            with turn:
                task = next(tasks, None)
            if task is None:
                return engine
            engine += _Replayer(session, tables, splits, truth, clock, task).run()

    n_threads = 1 if session.job.plan.apart else session.job.runtime.n_threads or _processors()
    with ThreadPoolExecutor(n_threads) as pool:
        engine = sum(done.result() for done in [pool.submit(work) for _ in range(n_threads)])
    engine += session.engine.building
    session.channel.send(Spent(engine, time.process_time_ns()))


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _tasks(session: Session) -> Iterator[_Task]:
    for collection in session.job.plan.collections:
        found = importers.find(collection.layout, Path(collection.path))
        items = {item.id: item for item in found}
        for name in collection.ids:
            units = {b: ("replay", b, collection.name, name) for b in session.job.plan.builders}
            builders = [builder for builder, unit in units.items() if unit in session.pending]
            if builders and name in items:
                yield _Task(collection, items[name], builders)


@dataclass
class _Replayer:
    """One schema under its builders."""

    session: Session
    tables: Tables
    splits: Splits
    truth: TokenTable
    clock: Clock
    task: _Task

    @cached_property
    def entry(self) -> Entry:
        layout = self.task.collection.layout
        return importers.read(layout, self.task.item, self.session.job.grammar.constraint)

    @cached_property
    def grammar(self) -> tuple[str, str]:
        """The schema as the engine takes it; raises SuiteError."""
        assert self.entry.grammar is not None
        return self.entry.grammar.engine_text()

    @cached_property
    def language(self) -> ByteGrammar:
        """The grammar over bytes; used only if a builder and the collection disagree."""
        return ByteGrammar(self.grammar[1])

    @cached_property
    def spelt(self) -> list[tuple[Instance, Split, list[int]]]:
        """(instance, kind of split, ids) of every instance and split; the same for all builders."""
        seed = f"{self.session.job.audit.seed}/{self.task.item.id}"
        return [
            (instance, split, ids)
            for instance in self.entry.instances
            for split, ids in self.splits.of(instance.text, f"{seed}/{instance.id}")
        ]

    @cached_property
    def formats(self) -> dict[str, bool | None]:
        """Whether each instance fits the schema's `format`s; see `checkers.format_valid`."""
        grammar = self.entry.grammar
        if grammar is None or grammar.kind != "json" or '"format"' not in grammar.text:
            return {}
        check = JsonValue(json.loads(grammar.text))
        return {one.id: checkers.format_valid(check, one.text) for one in self.entry.instances}

    @cached_property
    def controls(self) -> dict[tuple[int, ...], bool]:
        """Whether the true table accepts a token prefix, for prefixes that were tried."""
        return {}

    def run(self) -> int:
        """Replay the schema under each builder. Returns the nanoseconds spent in the engine."""
        engine = 0
        for builder in self.task.builders:
            unit = ("replay", builder, self.task.collection.name, self.task.item.id)
            self.session.channel.started(*unit)
            meter = Meter()
            with self.clock.count(unit):
                rows = self._rows(builder, meter)
            engine += meter.engine
            self.session.channel.finish(
                unit, {"replay": rows, "replay_times": [self._times(builder, meter)]}
            )
        return engine

    def _rows(self, builder: str, meter: Meter) -> list[Row]:
        table = self.tables.made.get(builder)
        if table is None:
            reason = str(self.tables.refused[builder])
            return [
                self._row(builder, InstanceVerdict.BUILDER_REFUSED, Cause.BUILDER, reason=reason)
            ]
        try:
            text = self.grammar
        except SuiteError as error:
            return [self._row(builder, InstanceVerdict.UNREADABLE, Cause.NONE, reason=str(error))]
        with meter.engine_time():
            start = self.session.engine.compile(table, *text)
        with closing(start):
            made_of: Row = {"grammar_hash": provenance.digest(*text), "table_hash": table.hash}
            return [row | made_of for row in self._compiled(builder, table, start, meter)]

    def _compiled(
        self, builder: str, table: TokenTable, start: llguidance.Matcher, meter: Meter
    ) -> Iterator[Row]:
        """A row for each instance and split; a single row if the grammar gives no first mask."""
        if start.error is not None:
            cause = Cause.ENGINE if self._true_start_fails() else Cause.BUILDER
            yield self._row(builder, InstanceVerdict.GRAMMAR_ERROR, cause, reason=start.error)
            return
        with meter.engine_time():
            matcher = start.clone()
            begins = matcher.mask() is not None
        meter.first = meter.engine
        with closing(matcher):
            if not begins:
                why = matcher.error or ""
                yield self._row(builder, InstanceVerdict.LIMIT, Cause.ENGINE, reason=why)
                return
        if not self.entry.instances:
            yield self._row(builder, InstanceVerdict.OK, Cause.NONE)
        deadline = time.monotonic() + (self.session.job.engine.case_limit or math.inf)
        for instance, split, ids in self.spelt:
            with meter.engine_time():
                matcher = start.clone()
            with closing(matcher):
                walked = walk(matcher, ids, instance.text, self.session.vocabulary, meter, deadline)
                error = matcher.error
            verdict, cause = self._judge(instance, walked, ids, table, meter)
            yield self._row(builder, verdict, cause) | {
                "instance": instance.id,
                "split": split.value,
                "valid": instance.valid,
                "format_valid": self.formats.get(instance.id),
                "n_tokens": len(ids),
                "failed_at": walked.step,
                "reason": _reason(instance, verdict, cause, walked, error),
                **self._culprit(table, ids, walked, cause),
            }

    def _judge(
        self,
        instance: Instance,
        walked: WalkResult,
        ids: list[int],
        table: TokenTable,
        meter: Meter,
    ) -> tuple[InstanceVerdict, Cause]:
        verdict, cause = judge(instance.valid, walked, by_bytes=False, by_truth=False)
        if verdict not in {InstanceVerdict.VALID_REFUSED, InstanceVerdict.INVALID_ACCEPTED}:
            return verdict, cause
        with meter.engine_time():
            by_bytes = self.language.match(instance.text).complete
        by_truth = (
            by_bytes and instance.valid and self._true_table_accepts(ids, walked, table, meter)
        )
        grammar = self.entry.grammar
        by_validator = (
            label_witness.is_instance(grammar.text, instance.text)
            if grammar is not None and grammar.kind == "json" and by_bytes != instance.valid
            else None
        )
        return judge(instance.valid, walked, by_bytes, by_truth, by_validator)

    def _true_table_accepts(
        self, ids: list[int], walked: WalkResult, table: TokenTable, meter: Meter
    ) -> bool:
        """Whether the true table accepts where the builder's table failed: a token, or the end.

        Always False if the builder's table is the true one. See `acceptance.judge`.
        """
        if table.identity == self.truth.identity:
            return False
        taken = tuple(ids[: len(ids) if walked.step is None else walked.step + 1])
        if taken not in self.controls:
            with meter.engine_time(), closing(self._true_matcher()) as matcher:
                good = matcher.error is None and all(matcher.consume(token) for token in taken)
                if walked.end is InstanceEnd.NOT_ACCEPTING:
                    good = good and matcher.accepting()
                self.controls[taken] = good
        return self.controls[taken]

    def _true_matcher(self) -> Matcher:
        return self.session.engine.compile(self.truth, *self.grammar)

    def _true_start_fails(self) -> bool:
        with closing(self._true_matcher()) as matcher:
            return matcher.error is not None

    def _culprit(self, table: TokenTable, ids: list[int], walked: WalkResult, cause: Cause) -> Row:
        """Columns of the first token with wrong claimed bytes, or else of the refused token."""
        if cause is not Cause.BUILDER:
            return {}
        true = self.session.vocabulary.rendered
        reached = ids if walked.step is None else ids[: walked.step + 1]
        wrong = (n for n, token in enumerate(reached) if table.claimed[token] != true[token])
        step = next(wrong, len(reached) - 1)
        if step < 0:
            return {}
        token = reached[step]
        return {
            "culprit_step": step,
            "culprit": token,
            "claimed": table.claimed[token],
            "true": true[token],
        }

    def _row(self, builder: str, verdict: InstanceVerdict, cause: Cause, reason: str = "") -> Row:
        return {
            "tokenizer": self.session.job.tokenizer,
            "builder": builder,
            "collection": self.task.collection.name,
            "schema": self.task.item.id,
            "instance": None,
            "split": None,
            "valid": None,
            "format_valid": None,
            "verdict": verdict.value,
            "cause": cause.value,
            "n_tokens": None,
            "failed_at": None,
            "culprit_step": None,
            "culprit": None,
            "claimed": None,
            "true": None,
            "reason": reason,
            "grammar_hash": None,
            "table_hash": None,
        }

    def _times(self, builder: str, meter: Meter) -> Row:
        def us(value: int | None) -> int | None:
            return None if value is None else value // 1000

        return {
            "tokenizer": self.session.job.tokenizer,
            "builder": builder,
            "collection": self.task.collection.name,
            "schema": self.task.item.id,
            "n_bytes": self.task.item.size,
            "n_masks": len(meter.masks),
            "first_mask_us": us(meter.first or None),
            "mask_p50_us": us(meter.percentile(0.5)),
            "mask_p90_us": us(meter.percentile(0.9)),
            "mask_p99_us": us(meter.percentile(0.99)),
            "mask_max_us": us(max(meter.masks, default=None)),
            "engine_us": us(meter.engine),
        }


def _reason(
    instance: Instance,
    verdict: InstanceVerdict,
    cause: Cause,
    walked: WalkResult,
    error: str | None,
) -> str:
    """The reason of a walk's verdict; empty for `ok`."""
    if cause is Cause.CHECKER:
        label, answer = ("valid", "refuse") if instance.valid else ("invalid", "accept")
        return f"the file labels it {label}, but the grammar and jsonschema both {answer} it"
    return error or ("" if verdict is InstanceVerdict.OK else walked.end.value)
