"""Where the checker and the grammar disagree, the outcome says which of them is the odd one."""

from __future__ import annotations

from typing import Any

from pipeline.generation.judgement import Evidence, Judged, Text
from pipeline.grammars.case import Case, Grammar
from pipeline.grammars.checkers import Check, Json, Pattern
from pipeline.grammars.languages import ByteGrammar
from pipeline.model.verdicts import Cause, Control, End, Lost, Verdict


class _Plain(Evidence):
    no_error, continued = "no error was seen", "generation continued"

    @property
    def stuck(self) -> str:
        return "the start"

    @property
    def n_tokens(self) -> int | None:
        return None

    def own_cause(self) -> tuple[Cause, Control | None]:
        return Cause.UNKNOWN, None

    def own_reason(self, verdict: Verdict) -> str:
        return verdict.value


def judged(check: Check, output: bytes) -> Judged:
    """A finished output of a grammar that accepts it."""
    grammar = Grammar("lark", r'start: "{\"a\":" / ?/ /[0-9]/ "}"')
    case = Case("s", "c", "p", grammar, check, 9)
    text = Text.of(case, ByteGrammar(grammar.engine_text()[1]), output, None)
    facts: dict[str, Any] = {"end": End.STOP_ID, "lost": Lost.NO, "nothing_fits": None}
    return _Plain(case=case, text=text, stop_allowed=True, **facts).judged()


def test_a_layout_that_only_the_checker_wants_is_the_checkers_fault() -> None:
    """Once the engine was blamed for a space after a colon."""
    spaced = judged(Json({}), b'{"a": 1}')
    assert (spaced.verdict, spaced.cause) == (Verdict.CHECKER_DISAGREES, Cause.CHECKER)
    assert "valid by its meaning" in spaced.reason
    assert judged(Json({}), b'{"a":1}').verdict is Verdict.OK


def test_a_value_that_the_schema_refuses_is_not() -> None:
    schema = {"properties": {"a": {"maximum": 0}}}
    for check in (Json(schema), Pattern("x")):
        refused = judged(check, b'{"a": 1}')
        assert (refused.verdict, refused.cause) == (Verdict.CHECKER_DISAGREES, Cause.ENGINE)
