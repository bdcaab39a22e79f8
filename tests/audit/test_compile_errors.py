"""A grammar that does not compile is told as that, in the tables of walks and of strings."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.model.verdicts import Cause, InstanceVerdict, Status
from support.command import pipeline

NAMES_A_TOKEN = {"lark": 'start: <|no_such|> "a" | "b"'}
"""Right over bytes as far as anybody can say; this vocabulary has no such token."""


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
    assert set(rows["verdict"]) == {InstanceVerdict.GRAMMAR_ERROR}, "refused, or right to refuse"
    assert set(rows["cause"]) == {Cause.GRAMMAR}
    assert set(rows["wanted"]) == {True, False}
    assert rows["accepted"].null_count() == rows["failed_at"].null_count() == rows.height
    assert all("no_such" in reason for reason in rows["reason"])
    said = [line for line in done.out.splitlines() if "along w/one: grammar_error:" in line]
    assert len(said) == 1
