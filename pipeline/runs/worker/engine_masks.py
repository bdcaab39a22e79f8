"""The engine stage: masks of released engines along walks.

Two kinds of cases are walked: grammars that every engine supports, with seeded walks, and chosen
cases that list their tokens, as reproducers do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

from ...audit import walks
from ...audit.engine_mask_kinds import Key, Kinds
from ...audit.engine_masks import (
    FaultSummary,
    Recorder,
    fault,
    portable_grammar,
    property_orders,
    smaller_cases,
)
from ...audit.token_oracle import Legal
from ...audit.upstream import FaultSource, fault_texts
from ...audit.walks import Walk, Walker
from ...engines.libraries.engine import ForeignEngine
from ...engines.protocol import Matcher
from ...grammars import suites
from ...grammars.case import Case
from ...grammars.languages import Languages
from ...model.errors import BuilderRefused, SuiteError
from ...model.names import Row
from ...model.verdicts import MaskKind, MaskVerdict, Status, Strategy
from ...system import rerun
from ..protocol import Job
from .judge import Judge
from .session import Session

_KEPT_IDS = 20


def run(session: Session, judge: Judge) -> None:
    """Send `engines` and `engine_findings` of every engine in `audit.engines`."""
    planned = cache(partial(_plan, session))
    for name in session.job.audit.engines:
        if not session.start_if_pending("engine", name):
            continue
        try:
            engine = ForeignEngine(name, session.material)
        except BuilderRefused as refusal:
            session.channel.rows("engines", [_row(session, name, refusal)])
        else:
            languages, plan = planned()  # within a unit: compiling may crash the process
            _Probing(session, judge, engine, languages).run(plan)
        session.channel.done("engine", name)


def _plan(session: Session) -> tuple[dict[Case, Languages], list[tuple[Case, Strategy, str]]]:
    """The languages of the cases that are walked, and (case, strategy, seed) of each walk."""
    cases = known_to_all(session.job)
    chosen = [case for case in session.languages if case.tokens and portable_grammar(case)]
    seed = session.job.audit.seed
    plan = [*walks.given_walks(chosen, seed), *walks.plan(cases, [], session.job.audit.walks, seed)]
    return {case: Languages.of(case) for case in (*chosen, *cases)}, plan


def known_to_all(job: Job) -> list[Case]:
    """The cases for every engine. Raises `SuiteError` for a case that some do not support."""
    cases = list(suites.load(Path(job.audit.engines_suite)).cases)
    for case in cases:
        if portable_grammar(case) is None:
            raise SuiteError(
                f"{job.audit.engines_suite}: case {case.id!r}: some engines cannot use it; "
                "write a JSON Schema, or lark: 'start: /R/' with check: {regex: 'R'}."
            )
    return cases


class _Probing:
    """One engine over all cases."""

    def __init__(
        self,
        session: Session,
        judge: Judge,
        engine: ForeignEngine,
        languages: dict[Case, Languages],
    ) -> None:
        self._session, self._masks = session, judge.masks
        self._engine, self._languages = engine, languages
        self._kinds = Kinds(session.vocabulary, engine.table.claimed)
        self._orders = {case: list(property_orders(case)) for case in languages}
        self._found: dict[Key, FaultSummary] = {}
        self._recorder: Recorder | None = None

    def run(self, plan: list[tuple[Case, Strategy, str]]) -> None:
        """Walk as planned and send the findings."""
        session = self._session
        walker = Walker(session.vocabulary, self._engine.table, self._masks, self._compile)
        for i, (case, strategy, seed) in enumerate(plan):
            walk = walker.walk(case, self._languages[case], strategy, seed)
            session.channel.rows("engines", self._rows(walk, f"{i:04d}-{strategy}"))
        session.channel.rows("engine_findings", self._findings())

    def _compile(self, case: Case) -> Recorder:
        self._recorder = Recorder(self._start(case))
        return self._recorder

    def _start(self, case: Case) -> Matcher:
        text = portable_grammar(case)
        assert text is not None
        return self._engine.compile(self._engine.table, *text)

    def _rows(self, walk: Walk, name: str) -> Iterator[Row]:
        assert self._recorder is not None
        session, recorder = self._session, self._recorder
        masks = recorder.masks or [None]
        for step, (finding, mask) in enumerate(zip(walk.findings, masks, strict=False)):
            taken = walk.tokens[:step]
            prefix = b"".join(session.vocabulary.rendered[token] for token in taken)
            truth = self._masks.legal(self._languages[walk.case].grammar, prefix)
            if mask is not None and truth is not None:
                order = self._in_other_order(walk.case, prefix)
                for key, ids in self._kinds.of(walk.case, taken, mask, truth, order):
                    self._found.setdefault(key, FaultSummary()).add(walk.case, taken, ids)
            compiled = mask is not None or step > 0  # some engines compile at the first mask
            yield _row(session, self._engine.name) | {
                "made_by": self._engine.version,
                "grammar": f"{walk.case.suite}/{walk.case.id}",
                "walk": name,
                "step": step,
                "verdict": finding.verdict.value if compiled else None,
                "status": (Status.OK if compiled else Status.GRAMMAR_ERROR).value,
                "n_allowed": finding.n_allowed,
                "n_unsound": finding.n_unsound,
                "n_incomplete": finding.n_incomplete,
                "engine_free": finding.engine_free or None,
                "reason": (recorder.error or "") if mask is None else finding.reason,
            }
            if finding.verdict is MaskVerdict.REFUSED_BY_CONSUME:
                key = finding.verdict, MaskKind.CONSUME
                self._found.setdefault(key, FaultSummary()).add(walk.case, taken, finding.ids)

    def _in_other_order(self, case: Case, prefix: bytes) -> Legal | None:
        """The ids that are legal after a prefix with properties in another order, or None."""
        legal: Legal | None = None
        for grammar in self._orders[case]:
            truth = self._masks.legal(grammar, prefix)
            if truth is not None:
                legal = truth[0] if legal is None else legal | truth[0]
        return legal

    def _minimise(self, key: Key, found: FaultSummary) -> None:
        """Replace the walk by the smallest proposed case that shows the same kind of fault."""
        vocabulary = self._session.vocabulary
        for case, taken in smaller_cases(key, found, vocabulary, self._engine.table.claimed):
            with closing(self._start(case)) as matcher:
                mask = matcher.mask() if all(matcher.consume(token) for token in taken) else None
            prefix = b"".join(vocabulary.rendered[token] for token in taken)
            truth = self._masks.with_own_cache().legal(Languages.of(case).grammar, prefix)
            if mask is None or truth is None:
                continue
            ids = dict(self._kinds.of(case, taken, mask, truth)).get(key)
            if ids:
                found.case, found.taken, found.shown = case, taken, tuple(ids)
                return

    def _findings(self) -> Iterator[Row]:
        engine, tokenizer = self._engine, self._session.job.tokenizer
        source = FaultSource(
            tokenizer=tokenizer,
            vocabulary=self._session.vocabulary,
            claimed=engine.table.claimed,
            name=engine.version,
            report_name=engine.version,
            file=("engine", engine.name, rerun.release(engine.version)),
            vocabulary_overrides=self._session.job.named,
            overrides=["builder=fixed", f"audit.engines=[{engine.name}]"],
            versions=engine.version,
        )
        for key, found in sorted(self._found.items()):
            if key[0] is not MaskVerdict.REFUSED_BY_CONSUME:
                self._minimise(key, found)
            shown = fault(key, found)
            yield {
                "tokenizer": tokenizer,
                "engine": engine.name,
                "made_by": engine.version,
                "verdict": shown.verdict.value,
                "kind": shown.kind,
                "n_states": found.n_states,
                "n_ids": len(found.ids),
                "grammar": shown.grammar[1],
                "tokens": list(shown.tokens),
                "ids": list(shown.ids[:_KEPT_IDS]),
                **asdict(fault_texts(source, shown)),
            }


def _row(session: Session, engine: str, refusal: BuilderRefused | None = None) -> Row:
    """A row of `engines` for a refused engine; other rows overwrite its values."""
    return {
        "tokenizer": session.job.tokenizer,
        "engine": engine,
        "made_by": (refusal and refusal.made_by) or None,
        "grammar": None,
        "walk": None,
        "step": None,
        "verdict": None,
        "status": Status.BUILDER_REFUSED.value,
        "n_allowed": None,
        "n_unsound": None,
        "n_incomplete": None,
        "engine_free": None,
        "reason": str(refusal or ""),
    }
