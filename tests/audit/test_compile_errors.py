"""A grammar that does not compile is a `grammar_error`; a mask that fails later is a mask fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipeline.engines import builders
from pipeline.engines.protocol import Mask, Matcher
from pipeline.engines.table import Material, TokenTable
from pipeline.grammars.case import Case, Grammar
from pipeline.grammars.checkers import Pattern
from pipeline.grammars.languages import Languages
from pipeline.model.names import Row
from pipeline.model.verdicts import Cause, InstanceVerdict, MaskVerdict, Status, Strategy
from pipeline.runs.worker import engine_masks
from support.command import pipeline
from support.vocabularies import Opened

NAMES_A_TOKEN = {"lark": 'start: <|no_such|> "a" | "b"'}
"""It cannot be judged over bytes, and this vocabulary has no such token."""


def test_nothing_is_said_of_a_grammar_that_does_not_compile(tmp_path: Path) -> None:
    case = {"id": "one", "prompt": "x", "check": {"literal": "b"}, "grammar": NAMES_A_TOKEN}
    texts = {"accept": ["b"], "reject": ["c"], "regex": "b", "grammar": NAMES_A_TOKEN}
    (tmp_path / "w.json").write_text(json.dumps({"suite": "w", "about": "w", "cases": [case]}))
    strings = {"suite": "s", "about": "s", "grammars": [texts | {"id": "two"}]}
    (tmp_path / "s.json").write_text(json.dumps(strings))
    done = pipeline(
        tmp_path,
        *("audit", "builder=fixed", "audit.walks=2", f"audit.walks_suite={tmp_path}/w.json"),
        f"audit.strings_suite={tmp_path}/s.json",
    )
    assert done.code == 0, done.err
    walks = done.table("walks").filter(grammar="w/one")
    assert set(walks["status"]) == {Status.GRAMMAR_ERROR}
    for column in ("ended", "verdict", "accepting"):
        assert walks[column].null_count() == walks.height > 0, column
    assert all("no_such" in reason for reason in walks["reason"])
    rows = done.table("strings")
    assert set(rows["verdict"]) == {InstanceVerdict.GRAMMAR_ERROR}, (
        "also for a text that must be rejected"
    )
    assert set(rows["cause"]) == {Cause.GRAMMAR}
    assert set(rows["wanted"]) == {True, False}
    assert rows["accepted"].null_count() == rows["failed_at"].null_count() == rows.height
    assert all("no_such" in reason for reason in rows["reason"])
    said = [line for line in done.out.splitlines() if "along w/one: grammar_error:" in line]
    assert len(said) == 1


class FailsAt:
    """A matcher whose masks fail from some step on."""

    def __init__(self, inner: Matcher, step: int) -> None:
        self._inner, self._step, self._asked, self.error = inner, step, 0, cast(str | None, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def mask(self) -> Mask | None:
        self._asked += 1
        if self._asked > self._step:
            self.error = "a limit of the engine"
            return None
        return self._inner.mask()


@pytest.mark.parametrize("step", [0, 2])
def test_an_engine_that_gave_masks_has_compiled(
    open_vocabulary: Callable[[str], Opened], step: int
) -> None:
    """Some engines compile at their first mask; a later failure is not a grammar error."""
    opened = open_vocabulary("mistral_v1")
    material = Material(opened.vocabulary, opened.model.vocab, lambda _: True)
    table = builders.get("fixed").build(material)
    case = Case("x", "y", "p", Grammar("lark", "start: /a{9}/"), Pattern("a{9}"), 9)
    sent: dict[str, list[Row]] = {}

    def fails(table: TokenTable, _: str, text: str) -> FailsAt:
        return FailsAt(opened.engine.compile(table, "lark", f"start: /{text}/"), step)

    def keep(name: str, rows: Iterable[Row]) -> None:
        sent[name] = [*rows]

    engine = SimpleNamespace(name="e", version="e 1", table=table, compile=fails)
    session = SimpleNamespace(
        vocabulary=opened.vocabulary,
        job=SimpleNamespace(tokenizer="t", named=()),
        channel=SimpleNamespace(rows=keep),
    )
    probing = engine_masks._Probing(  # pyright: ignore[reportPrivateUsage]
        cast(Any, session),
        cast(Any, SimpleNamespace(masks=opened.judge)),
        cast(Any, engine),
        {case: Languages.of(case)},
    )
    probing.run([(case, Strategy.SHORTEST, "0")])
    *_, last = sent["engines"]
    assert (last["step"], last["reason"]) == (step, "a limit of the engine")
    compiled = (Status.OK, MaskVerdict.EMPTY)
    assert (last["status"], last["verdict"]) == (compiled if step else (Status.GRAMMAR_ERROR, None))
