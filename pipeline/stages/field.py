"""The engine stage: released engines' own masks along seeded walks, beside llguidance's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from pipeline import suites, walks
from pipeline.engine_probe import Found, Key, Kinds, Recorder, expressed, report
from pipeline.errors import BuilderRefused
from pipeline.foreign_engine import ForeignEngine
from pipeline.masks import MaskVerdict
from pipeline.stages.workbench import Workbench
from pipeline.suites import Case
from pipeline.walks import Languages, Walk, Walker
from pipeline.worker import Row

_KEPT_IDS = 20


def run(bench: Workbench) -> None:
    """Send `engines` and `engine_findings` of every engine that is asked for."""
    languages = cache(partial(_languages, bench))
    for name in bench.job.engines:
        if not bench.begin("engine", name):
            continue
        try:
            engine = ForeignEngine(name, bench.material)
        except BuilderRefused as refusal:
            bench.channel.rows("engines", [_row(bench, name, reason=str(refusal))])
        else:
            _Probing(bench, engine, languages()).run()
        bench.channel.done("engine", name)


def _languages(bench: Workbench) -> dict[Case, Languages]:
    return {case: Languages.of(case) for case in suites.load(Path(bench.job.engines_suite)).cases}


class _Probing:
    """One engine over all cases."""

    def __init__(
        self, bench: Workbench, engine: ForeignEngine, languages: dict[Case, Languages]
    ) -> None:
        self._bench, self._engine, self._languages = bench, engine, languages
        self._kinds = Kinds(bench.vocabulary, engine.table.claimed)
        self._found: dict[Key, Found] = {}
        self._recorder: Recorder | None = None

    def run(self) -> None:
        bench = self._bench
        walker = Walker(bench.vocabulary, self._engine.table, bench.judge, self._compile)
        plan = walks.plan([*self._languages], [], bench.job.walks, bench.job.audit_seed)
        for i, (case, strategy, seed) in enumerate(plan):
            walk = walker.walk(case, self._languages[case], strategy, seed)
            bench.channel.rows("engines", self._rows(walk, f"{i:04d}-{strategy}"))
        bench.channel.rows("engine_findings", self._findings())

    def _compile(self, case: Case) -> Recorder:
        engine = self._engine
        self._recorder = Recorder(engine.compile(engine.table, *expressed(case)))
        return self._recorder

    def _rows(self, walk: Walk, name: str) -> Iterator[Row]:
        assert self._recorder is not None
        bench, recorder = self._bench, self._recorder
        masks = recorder.masks or [None]
        for step, (finding, mask) in enumerate(zip(walk.findings, masks, strict=False)):
            taken = walk.tokens[:step]
            prefix = b"".join(bench.vocabulary.rendered[token] for token in taken)
            truth = bench.judge.legal(self._languages[walk.case].grammar, prefix)
            if mask is not None and truth is not None:
                for key, ids in self._kinds.of(walk.case, prefix, mask, truth):
                    self._found.setdefault(key, Found()).take(walk.case, taken, ids)
            verdict = finding.verdict.value if mask is not None else "grammar_error"
            yield _row(bench, self._engine.name) | {
                "made_by": self._engine.version,
                "grammar": f"{walk.case.suite}/{walk.case.id}",
                "walk": name,
                "step": step,
                "verdict": verdict,
                "n_allowed": finding.n_allowed,
                "n_unsound": finding.n_unsound,
                "n_incomplete": finding.n_incomplete,
                "engine_free": finding.engine_free or None,
                "reason": (recorder.error or "") if mask is None else finding.reason,
            }
            if finding.verdict is MaskVerdict.REFUSED_BY_CONSUME:
                key = finding.verdict, "refused"
                self._found.setdefault(key, Found()).take(walk.case, taken, finding.ids)

    def _findings(self) -> Iterator[Row]:
        bench, engine = self._bench, self._engine
        for key, found in sorted(self._found.items()):
            assert found.case is not None
            yield {
                "tokenizer": bench.job.tokenizer,
                "engine": engine.name,
                "made_by": engine.version,
                "verdict": key[0].value,
                "kind": key[1],
                "n_states": found.n_states,
                "n_ids": len(found.ids),
                "grammar": expressed(found.case)[1],
                "tokens": list(found.taken),
                "ids": list(found.shown[:_KEPT_IDS]),
                "report": report(
                    key,
                    found,
                    bench.vocabulary,
                    engine.table.claimed,
                    engine.version,
                    bench.job.tokenizer,
                ),
            }


def _row(bench: Workbench, engine: str, reason: str = "") -> Row:
    """A row of `engines` for an engine that was refused; the others fill it in."""
    return {
        "tokenizer": bench.job.tokenizer,
        "engine": engine,
        "made_by": None,
        "grammar": "",
        "walk": "",
        "step": 0,
        "verdict": "builder_refused",
        "n_allowed": None,
        "n_unsound": None,
        "n_incomplete": None,
        "engine_free": None,
        "reason": reason,
    }
