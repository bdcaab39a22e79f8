"""The shipped suites: their grammars and checkers agree."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import llguidance
import pytest
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator

from pipeline.grammars.case import Case, Grammar, Suite
from pipeline.grammars.checkers import check
from pipeline.grammars.suites import Literal, Pattern, load_named
from support.suite_files import DATASETS, SHIPPED

BYTES = llguidance.LLTokenizer("byte")
"""A vocabulary of the 256 bytes and a few specials, so that walks need no token table."""


def shipped() -> list[Any]:
    cases = [case for name in SHIPPED for case in load_named(name, DATASETS).cases]
    return [pytest.param(case, id=f"{case.suite}-{case.id}") for case in cases]


def matcher(case: Case) -> llguidance.LLMatcher:
    built = llguidance.LLMatcher(BYTES, case.grammar.engine_text()[1])
    assert not built.is_error(), built.get_error()
    return built


def walk(case: Case, seed: int) -> bytes:
    """A complete text of the case's grammar; each byte is drawn from the mask."""
    draw, state, text = random.Random(seed), matcher(case), bytearray()
    while True:
        mask = state.compute_bitmask()
        allowed = [i for i in range(BYTES.vocab_size) if mask[i >> 3] >> (i & 7) & 1]
        token = draw.choice(allowed)
        if token == BYTES.eos_token:
            return bytes(text)
        text.append(token)
        assert state.consume_token(token)


def engine_accepts(case: Case, text: bytes) -> bool:
    state = matcher(case)
    return state.try_consume_tokens(list(text)) == len(text) and state.is_accepting()


def mutations(text: bytes) -> Iterator[bytes]:
    """Texts as wrong token bytes damage them: with one space added or removed."""
    for at in range(len(text) + 1):
        yield text[:at] + b" " + text[at:]
        if text[at : at + 1] == b" ":
            yield text[:at] + text[at + 1 :]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_suite_loads(name: str) -> None:
    suite: Suite = load_named(name, DATASETS)
    assert len(suite.cases) >= 8
    assert suite.cases[0].id == "founding"
    assert len({case.prompt for case in suite.cases}) < len(suite.cases), "prompts can be shared"
    for case in suite.cases:
        assert not case.invalid_grammar
        if name == "enum":
            schema = json.loads(case.grammar.text)
            kinds = [next(iter(part)) for part in schema["properties"].values()]
            assert kinds == ["enum", "type"], "an enum and a bounded integer"
            assert schema["x-guidance"] == {"whitespace_flexible": False}


@pytest.mark.parametrize("case", shipped())
def test_checker_accepts_what_the_grammar_makes(case: Case) -> None:
    """Each text also fits in max_tokens with an end token, even at one byte per token."""
    for seed in range(60):
        text = walk(case, seed)
        assert check(case.check, text) is None, text
        assert len(text) < case.max_tokens
        if isinstance(case.check, Literal):
            assert case.check.text == text
        if case.grammar.kind == "json":
            schema = json.loads(case.grammar.text)
            assert cast(Validator, Draft202012Validator(schema)).is_valid(json.loads(text))


@pytest.mark.parametrize("case", shipped())
def test_checker_refuses_damaged_texts(case: Case) -> None:
    """With one space added or removed, checker and grammar agree, and reject most texts."""
    refused = total = 0
    for seed in range(5):
        for damaged in mutations(walk(case, seed)):
            reason = check(case.check, damaged)
            assert (reason is None) == engine_accepts(case, damaged), (damaged, reason)
            refused += reason is not None
            total += 1
    assert refused > total / 2
    if isinstance(case.check, Literal):
        assert refused == total


@pytest.mark.parametrize(
    ("suite", "seen"),
    [
        ("forced_literal", b" The quicker you can do this, the more points you will earn..."),
        ("enum", b' { "colo ur": "c h artreu se", "count":10 }'),
        ("enum", b'{"col our":"cer ulean ","count ":3}'),
        ("half_free", b" BEG IN[iqr] END"),
    ],
)
def test_outputs_of_the_founding_document_are_refused(suite: str, seen: bytes) -> None:
    """Real answers of servers with a wrong token table."""
    founding = load_named(suite, DATASETS).cases[0]
    assert check(founding.check, seen) is not None


def test_a_case_is_known_by_all_that_defines_it() -> None:
    """Any part changes the hash of a case; a field at its default does not."""
    case = Case("s", "x", "Hi", Grammar("lark", 'start: "a"'), Literal(b"a"), 64)
    others = [
        replace(case, prompt="Ho"),
        replace(case, grammar=Grammar("lark", 'start: "b"')),
        replace(case, check=Literal(b"b")),
        replace(case, check=Pattern("a")),
        replace(case, max_tokens=65),
        replace(case, invalid_grammar=True),
    ]
    assert len({case.hash, *(other.hash for other in others)}) == 7
    assert replace(case, invalid_grammar=False).hash == case.hash
