"""Causes by experiment: what mends a fault names its cause, and the engine is the last suspect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from pipeline.engines.llguidance import Llguidance
from pipeline.engines.table import TokenTable
from pipeline.generation.judgement import Judged
from pipeline.grammars.case import Case, Grammar
from pipeline.grammars.checkers import Json, Pattern
from pipeline.model.verdicts import Cause, Control, Verdict
from pipeline.vocab.token_types import Attr
from support.toy import BYTES, Bench, bench_of, case_of, longest_first, made_of, table_of
from support.vocabularies import Opened

Open = Callable[[str], Opened]
END = 256
WORDS = (b'{"', b'":', b': "', b'"}', b"name", b" ", b"hello", b" world", b"!")
PIECES = [*BYTES, b"</s>", *WORDS]


@pytest.fixture(scope="module")
def engine() -> Iterator[Llguidance]:
    with closing(Llguidance()) as made:
        yield made


def generated(engine: Llguidance, text: str, **changes: object) -> Judged:
    """A cell with one literal over the toy vocabulary, whose table is changed."""
    vocabulary = made_of(PIECES, {END: Attr.CONTROL}, ends=[END])
    right = table_of(vocabulary, tokenize=longest_first([p for p in PIECES if p != b"</s>"]))
    table: TokenTable = replace(right, **changes)  # pyright: ignore[reportArgumentType]
    return Bench(vocabulary, table, engine).generate(case_of(f'start: "{text}"'))


def tokenizing(change: Callable[[bytes], bytes]) -> Callable[[bytes], list[int]]:
    pieces = [b"" if piece == b"</s>" else piece for piece in PIECES]
    right = longest_first(pieces)
    return lambda data: right(change(data))


def _drops_a_space(data: bytes) -> bytes:
    return data.replace(b": ", b":")


def _ends_on_an_exclamation_mark(data: bytes) -> bytes:
    return data + b"!"


def _reverses(data: bytes) -> bytes:
    return data[::-1]


def _forgets(_: bytes) -> bytes:
    return b""


@pytest.mark.parametrize(
    "change", [_drops_a_space, _ends_on_an_exclamation_mark, _reverses, _forgets]
)
def test_a_wrong_tokenization_is_never_the_engines_fault(
    engine: Llguidance, change: Callable[[bytes], bytes]
) -> None:
    """All of them were `unenforced (engine)`."""
    judged = generated(engine, "name: hello world", tokenize=tokenizing(change))
    assert judged.cause is not Cause.ENGINE, judged
    if judged.verdict is not Verdict.OK:
        assert judged.cause is Cause.TOKENIZE, judged


def test_a_tokenization_that_raises_is_the_cause_with_its_words(engine: Llguidance) -> None:
    def raising(data: bytes) -> list[int]:
        raise ValueError("no accents here")

    judged = generated(engine, "hello world", tokenize=raising)
    if judged.verdict is not Verdict.OK:
        assert judged.cause is Cause.TOKENIZE
        assert "no accents here" in judged.reason


def test_a_failed_mask_names_the_legal_ids_that_were_lost(engine: Llguidance) -> None:
    """Byte tokens claimed as U+FFFD: an innocent token was named, taken after the mask was lost."""
    vocabulary = made_of([*BYTES, b"</s>", b"caf"], {END: Attr.CONTROL}, ends=[END])
    claimed = [piece.decode("utf-8", "replace").encode() for piece in vocabulary.true_bytes]
    bench = Bench(vocabulary, table_of(vocabulary, claimed), engine)
    judged = bench.generate(case_of('start: "caf\\u00e9"'))
    assert judged.verdict in {Verdict.UNENFORCED, Verdict.DEAD_END}
    assert judged.cause is Cause.BYTES
    assert judged.cause_by in {Control.TRUE_BYTES, Control.TRUE_TABLE}
    claim = repr("\ufffd".encode())[1:]
    assert f"no mask at step 1: the legal id 195 is claimed as {claim}" in judged.reason
    assert judged.culprit is None, "no token was taken with that mask"


def test_the_end_that_the_grammar_itself_asks_for(open_vocabulary: Open) -> None:
    """`<|end|> "\\n x"` on phi3 was `silent_corruption (unknown)` under every builder."""
    case = case_of('start: <|end|> "\\n x"', Pattern(r"\n x"))
    judged = bench_of(open_vocabulary("phi3"), "fixed").generate(case)
    assert (judged.verdict, judged.cause) == (Verdict.EARLY_STOP, Cause.GRAMMAR)
    assert "the grammar itself asks for this token" in judged.reason


@pytest.mark.parametrize("schema", ["false", '{"not": {}}'])
def test_a_schema_that_allows_nothing_is_impossible(engine: Llguidance, schema: str) -> None:
    """It was `unenforced (engine)`."""
    vocabulary = made_of([*BYTES, b"</s>"], {END: Attr.CONTROL}, ends=[END])
    check = Json(False if schema == "false" else {"not": {}})  # pyright: ignore[reportArgumentType]
    case = Case("s", "c", "Hello", Grammar("json", schema), check, 8, imported=True)
    judged = Bench(vocabulary, table_of(vocabulary), engine).generate(case)
    assert (judged.verdict, judged.cause) == (Verdict.IMPOSSIBLE, Cause.GRAMMAR)
