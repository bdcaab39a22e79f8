"""Field cases D and E: masks; from a schema to a grammar."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from pipeline.audit import token_table
from pipeline.engines.llguidance import Llguidance
from pipeline.engines.table import TokenTable
from pipeline.grammars.checkers import Json
from pipeline.grammars.languages import ByteGrammar
from pipeline.model.verdicts import MaskVerdict
from pipeline.vocab.files import gguf
from pipeline.vocab.token_types import Attr
from support import damaged_ggufs as faults
from support import field_cases
from support.command import pipeline
from support.field_cases import Open, audited, special_rows
from support.toy import (
    BYTES,
    Bench,
    bench_of,
    case_of,
    longest_first,
    made_of,
    schema_case,
    table_of,
)
from support.vocabularies import vocabulary_file

engine = field_cases.engine

# --- D. masks -------------------------------------------------------------------------------------


def test_u21_only_the_canonical_split_is_incomplete_by_design(engine: Llguidance) -> None:
    """guidance #1352: for `test` only the longest token is allowed. It is forced: no violation."""
    pieces = [b"t", b"te", b"tes", b"test", b"t", b"e", b"s", b"</s>"]
    vocabulary = made_of(pieces, {7: Attr.CONTROL}, ends=[7])
    tokenize = longest_first(pieces[:-1])
    forced = Bench(vocabulary, table_of(vocabulary, tokenize=tokenize), engine)
    found = forced.state("start: /test/")
    assert (found.verdict, found.ids) == (MaskVerdict.INCOMPLETE_FORCED, (3,))
    assert (found.n_incomplete, found.n_incomplete_forced) == (0, 4)
    greedy = Bench(vocabulary, table_of(vocabulary), engine)
    assert greedy.state("start: /test/").verdict is MaskVerdict.EXACT
    assert greedy.allowed("start: /test/") == [0, 1, 2, 3, 4]


def test_u21_two_equal_ids_of_a_forced_text(engine: Llguidance) -> None:
    """For the literal `yes`, one of two equal ids is allowed. For a choice, all legal ids are."""
    pieces = [*BYTES, b"yes", b"yes", b"no", b"</s>"]
    vocabulary = made_of(pieces, {259: Attr.CONTROL}, ends=[259])
    table = table_of(vocabulary, tokenize=longest_first(pieces[:-1]))
    bench = Bench(vocabulary, table, engine)
    assert bench.allowed("start: /yes/") == [256]
    assert bench.state("start: /yes/").verdict is MaskVerdict.INCOMPLETE_FORCED
    assert len(bench.allowed("start: /(yes|no)/")) == 5
    assert bench.state("start: /(yes|no)/").verdict is MaskVerdict.EXACT


# Other tests have the rest of U-22. Refused files: merges removed, scores too short, a file cut in
# half, wrong magic (test_supervise.test_refused_file_is_a_message_and_not_a_death). Duplicate token
# text: test_crash_becomes_a_row_and_the_sweep_continues. Token types removed, an invalid end id, an
# empty token text: test_silent_damage_loads_and_shows_in_the_rows, and
# test_vocabulary.test_silent_damage_is_in_the_true_bytes.


def test_u22_the_other_rows_of_faulty_metadata(tmp_path: Path) -> None:
    """ollama #10930, #7038; unsloth #1947, #1062; 1bit-MONSTER #1606; llama.cpp #3732 and others.

    One sweep over the faulty files and a sound one: each file has its own row.

    In reality removed scores change only the vocabulary's hash. The bytes of every token are the
    same; only the tokenization, which uses the scores, is different.
    """
    spm, bpe = vocabulary_file("llama_spm"), vocabulary_file("gpt2")
    pre, types = "tokenizer.ggml.pre", faults.TYPES
    cut = tmp_path / "cut.gguf"
    whole = faults.rewrite(spm, tmp_path / "whole.gguf", {})
    cut.write_bytes(whole.read_bytes()[:-1])
    made = [
        faults.rewrite(bpe, tmp_path / "pre.gguf", {pre: gguf.text(pre, "no-such-pre")}),
        faults.rewrite(spm, tmp_path / "types.gguf", {types: short_types(types)}),
        cut,
        faults.rewrite(spm, tmp_path / "scores.gguf", {faults.SCORES: None}),
        whole,
    ]
    found = audited(tmp_path, *made, code=2)
    status = {name: row["status"] for name, row in found.items()}
    assert status == {
        "pre": "load_refused",
        "types": "load_refused",
        "cut": "load_refused",
        "scores": "ok",
        "whole": "ok",
    }
    assert found["scores"]["vocab_hash"] != found["whole"]["vocab_hash"]
    assert found["scores"]["n_wrong"] == 0


def short_types(key: str) -> bytes:
    """Ten types for all tokens."""
    values = np.ones(10, np.int32).tobytes()
    head = gguf.I32.to_bytes(4, "little") + (10).to_bytes(8, "little")
    return gguf.key_value(key, gguf.ARRAY, head + values)


def test_u22_wrong_model_key_crashes_at_the_first_tokenization(tmp_path: Path) -> None:
    """A byte-level vocabulary that is named SentencePiece loads, and aborts when it tokenizes.

    In reality an audit under `fixed` survives: calls that may crash run in a child process.
    Generation has to tokenize a prompt, so its worker crashes; the run continues.
    """
    model = "tokenizer.ggml.model"
    changes = {model: gguf.text(model, "llama")}
    bad = faults.rewrite(vocabulary_file("gpt2"), tmp_path / "model.gguf", changes)
    done = pipeline(
        tmp_path,
        "run",
        "tokenizer=path",
        f"tokenizer.path={bad}",
        "builder=[fixed]",
        "grammar=[forced_literal]",
        "grammar.limit=1",
        "stages=[generate]",
    )
    assert done.code == 1, done.err
    assert done.table("cells")["verdict"].to_list() == ["crashed"]


@pytest.mark.parametrize("n_vocab", [320, 259])
def test_u23_padding_ids_are_never_allowed(engine: Llguidance, n_vocab: int) -> None:
    """mlc-llm PR 2651, xgrammar PR 11, transformers-CFG PR 126: ids beyond the last token.

    A mask has ceil(n_vocab / 32) words; no padding id is allowed in it. If a builder enters the
    name of a padding id as text, the mask allows that id, and is unsound.
    """
    pieces = [*BYTES, b"<unk>", b"</s>"]
    padded = [*pieces, *[b""] * (n_vocab - len(pieces))]
    attrs = {256: Attr.UNKNOWN, 257: Attr.CONTROL} | dict.fromkeys(range(258, n_vocab), Attr.UNUSED)
    vocabulary = made_of(padded, attrs, ends=[257])
    bench = Bench(vocabulary, table_of(vocabulary), engine)
    anything = "start: /(.|\\n)*/"
    with closing(bench.compile(case_of(anything))) as matcher:
        mask = matcher.mask()
        assert mask is not None
        assert len(mask) == -(-n_vocab // 32)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        assert not bits[258:].any()
    assert bench.state(anything).verdict is MaskVerdict.EXACT
    assert not [row for row in special_rows(bench).values() if row["verdict"] != "ok"]
    named = [piece or b"[PAD%d]" % token for token, piece in enumerate(padded)]
    spelt = Bench(vocabulary, table_of(vocabulary, named), engine)
    found = spelt.state(anything)
    assert (found.verdict, found.n_unsound) == (MaskVerdict.UNSOUND, n_vocab - 258)
    assert found.ids[0] == 258


def test_u23_a_table_shorter_than_the_vocabulary(engine: Llguidance) -> None:
    """A wrapper that ignores `n_vocab` gives a mask of 36 bytes; 40 are needed.

    The size of a mask follows from the table's length and is checked before the mask is used. A law
    (`laws.one_entry_per_id`) checks that the table has an entry for each id.
    """
    vocabulary = made_of([*BYTES, b"<unk>", b"</s>", *[b""] * 62], {257: Attr.CONTROL}, ends=[257])
    short = TokenTable(vocabulary.true_bytes[:258], [False] * 258, 257, None, "greedy")
    with closing(engine.compile(short, "lark", "%llguidance {}\nstart: /(.|\\n)*/")) as matcher:
        mask = matcher.mask()
    assert mask is not None
    assert mask.nbytes == 36
    assert -(-vocabulary.n_tokens // 32) * 4 == 40
    with pytest.raises(ValueError, match="shorter"):
        list(token_table.wrong_tokens(vocabulary, short))


def test_u23_phi3_has_empty_pieces_that_no_mask_allows(open_vocabulary: Open) -> None:
    """53 ids of Phi-3 are not control tokens and have no rendered bytes.

    In reality they are padding and some others, typed UNKNOWN. llama.cpp does not render these.
    Each has a text and is entered as a special token, so no mask of free text allows it.
    """
    opened = open_vocabulary("phi3")
    vocabulary = opened.vocabulary
    empty = [
        token
        for token, piece in enumerate(vocabulary.rendered)
        if not piece and not vocabulary.attrs[token] & Attr.CONTROL
    ]
    assert len(empty) == 53
    assert all(vocabulary.attrs[token] & Attr.UNKNOWN for token in empty)
    assert b"[PAD32063]" in [vocabulary.texts[token] for token in empty]
    assert not {*empty} & {*bench_of(opened, "fixed").allowed("start: /(.|\\n)*/")}


HALVES = [b"\xf0\x9f", b"\x98\x80", b"\x98", b"\x80", b"a", b"x", b'"', b"</s>"]


@pytest.mark.parametrize(
    ("grammar", "taken", "allowed"),
    [
        ("start: /😀/", [], [b"\xf0\x9f"]),
        ("start: /😀/", [0], [b"\x98\x80", b"\x98"]),
        ("start: /😀/", [0, 2], [b"\x80"]),
        ("start: /[😀-🙏]/", [0], [b"\x98\x80", b"\x98"]),
        ("start: /./", [0], [b"\x98\x80", b"\x98", b"\x80"]),
        ("start: /(😀|x)/", [], [b"\xf0\x9f", b"x"]),
        ("start: /(😀|x)/", [0], [b"\x98\x80", b"\x98"]),
    ],
)
def test_u24_after_half_a_character_only_its_other_half(
    engine: Llguidance, grammar: str, taken: list[int], allowed: list[bytes]
) -> None:
    """llama.cpp #2501, PR 2553; outlines #725; TensorSharp PR 129: after a half, all was allowed.

    `test_token_oracle` tests the byte oracle. Here the engine's mask after each half is exact.
    """
    vocabulary = made_of(HALVES, {7: Attr.CONTROL}, ends=[7])
    bench = Bench(vocabulary, table_of(vocabulary), engine)
    case = case_of(grammar)
    assert [HALVES[token] for token in bench.allowed(case, taken)] == allowed
    assert bench.state(case, taken).verdict is MaskVerdict.EXACT


# --- E. schema to grammar -------------------------------------------------------------------------

ESCAPES: list[tuple[str, dict[str, Any], list[tuple[str, bool, bool]]]] = [
    (
        "const_slash",
        {"const": "http://e.com/p"},
        [('"http://e.com/p"', True, True), ('"http:\\/\\/e.com\\/p"', False, True)],
    ),
    (
        "digits",
        {"type": "string", "pattern": "^\\d+$"},
        [('"12"', True, True), ('"1x"', False, False)],
    ),
    (
        "escaped_slash",
        {"type": "string", "pattern": "^https:\\/\\/x$"},
        [
            ('"https://x"', True, True),
            ('"https:\\/\\/x"', False, True),
            ('"https:x"', False, False),
        ],
    ),
    (
        "quote_backslash_newline",
        {"enum": ['a"b', "a\\b", "a\nb"]},
        [
            ('"a\\"b"', True, True),
            ('"a\\\\b"', True, True),
            ('"a\\nb"', True, True),
            ('"a\\u000ab"', True, True),
            ('"a b"', False, False),
        ],
    ),
    (
        "ascii_escapes",
        json.loads('{"enum": ["\\u516c\\u53f8"]}'),
        [('"公司"', True, True), ('"\\u516c\\u53f8"', False, True), ('"??"', False, False)],
    ),
    (
        "scalars",
        {"enum": [True, None, 42, 1.0]},
        [
            ("true", True, True),
            ("null", True, True),
            ("42", True, True),
            ("1", True, True),
            ("1.0", False, True),
            ("True", False, False),
            ('"true"', False, False),
        ],
    ),
    (
        "spaces_and_emoji",
        {"enum": ["São Paulo", "a b", "😀 ok"]},
        [
            ('"São Paulo"', True, True),
            ('"a b"', True, True),
            ('"😀 ok"', True, True),
            ('"S\\u00e3o Paulo"', False, True),
            ('"ab"', False, False),
        ],
    ),
    (
        "carriage_return",
        {"type": "string", "pattern": "a\r\nb"},
        [
            ('"a\\r\\nb"', True, True),
            ('"xa\\r\\nby"', True, True),
            ('"a\r\nb"', False, False),
            ('"ab"', False, False),
        ],
    ),
]


@pytest.mark.parametrize(
    ("schema", "text", "grammar_accepts", "validator_accepts"),
    [
        pytest.param(schema, *row, id=f"{name}-{i}")
        for name, schema, rows in ESCAPES
        for i, row in enumerate(rows)
    ],
)
def test_u25_escapes_in_enum_const_and_pattern(
    schema: dict[str, Any], text: str, grammar_accepts: bool, validator_accepts: bool
) -> None:
    """xgrammar PR 626; llama.cpp #27580, #27397, #27597; lm-format-enforcer #183; imp #1563 …

    Two columns: whether the grammar accepts the text, and whether a validator accepts the parsed
    value. An accepted invalid text would be a corruption. A refused valid text is only a note: the
    grammar is over-constrained.

    In reality llguidance accepts a second spelling for control characters only: `\\u000a` and
    `\\n`. Letters have one spelling.
    """
    written = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    kind, source = schema_case(written, Json(schema)).grammar.engine_text()
    assert kind == "lark"
    grammar = ByteGrammar(source)
    assert grammar.error is None
    accepted = grammar.match(text.encode()).complete
    validator: Any = jsonschema.Draft202012Validator(schema)
    try:
        valid = validator.is_valid(json.loads(text))
    except json.JSONDecodeError:
        valid = False
    assert (accepted, valid) == (grammar_accepts, validator_accepts)
    assert not (accepted and not valid)


def test_u25_what_is_not_expressible_is_refused_with_a_reason() -> None:
    """Look-ahead, `not`, an unknown `format` and a broken `$ref` are compile errors."""
    for schema in (
        {"type": "string", "pattern": "(?=a)a"},
        {"not": {"type": "string"}},
        {"type": "string", "format": "no-such-format"},
        {"$ref": "#/$defs/nowhere"},
    ):
        source = schema_case(json.dumps(schema), Json({})).grammar.engine_text()[1]
        assert ByteGrammar(source).error, schema
