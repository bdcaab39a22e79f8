"""The independent checkers: what they accept, why they reject, and that they never raise."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.grammars.checkers import (
    Check,
    Json,
    JsonValue,
    Literal,
    Pattern,
    check,
    fault,
    format_valid,
    strict_json,
)

COUNT = Json(
    {
        "type": "object",
        "properties": {"colour": {"enum": ["cerulean", "São"]}, "count": {"maximum": 20}},
        "required": ["colour"],
        "additionalProperties": False,
    }
)
ANY = Json({})

# ── text ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wanted", "output", "reason"),
    [
        (b"abc", b"abc", None),
        (b"The cat", b"The at", "byte 4: got 'a', want 'c' (0x63)"),
        (b"abcd", b"abc d", "byte 3: got ' ', want 'd' (0x64)"),
        (b"abc", b"ab", "byte 2: got the end, want 'c' (0x63)"),
        (b"abc", b"", "byte 0: got the end, want 'a' (0x61)"),
        (b"abc", b"abc\n", "byte 3: got 0x0A, want the end"),
        (b"a\tb", b"a b", "byte 1: got ' ', want 0x09"),
        ("é".encode(), "e\u0301".encode(), "byte 0: got 'e', want 0xC3"),
        ("é".encode(), b"\xc3\xff", "byte 1: got 0xFF, want 0xA9"),
        (b"a'b", b'a"b', "byte 1: got '\"', want \"'\" (0x27)"),
    ],
)
def test_literal(wanted: bytes, output: bytes, reason: str | None) -> None:
    assert check(Literal(wanted), output) == reason


@pytest.mark.parametrize(
    ("source", "output", "reason"),
    [
        (r"BEGIN\[[a-z]{3}\] END", b"BEGIN[abc] END", None),
        (
            r"BEGIN\[[a-z]{3}\] END",
            b"BEG IN[iqr] END",
            r"pattern: 'BEG IN[iqr] END' does not match BEGIN\[[a-z]{3}\] END",
        ),
        ("ab", b"ab\n", r"byte 2: the pattern ends, but the output continues with '\n'"),
        ("ab$", b"ab\n", r"byte 2: the pattern ends, but the output continues with '\n'"),
        ("a|ab", b"ab", None),
        ("(?:é|è){2}", "éè".encode(), None),
        ("é", "é".encode("latin-1"), r"pattern: '\xe9' does not match é"),
        ("..", "é".encode(), None),  # a dot is a byte
        ("x*", b"y" * 99, f"pattern: '{'y' * 60}'... does not match x*"),
    ],
)
def test_pattern(source: str, output: bytes, reason: str | None) -> None:
    assert check(Pattern(source), output) == reason


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ('{"colour":"cerulean","count":3}', None),
        ('{"count":3,"colour":"São"}', None),  # keys may come in any order
        ('{"count":3}', "schema: 'colour' is a required property"),
        (
            '{"colour":"cerulean","count":30}',
            "schema: /count: 30 is greater than the maximum of 20",
        ),
        ('{"colour":" cerulean"}', "schema: /colour: ' cerulean' is not one of ['cerulean', 'São"),
        ('{"colour":"cerulean","count ":3}', "schema: Additional properties are not allowed ('co"),
        ('{"colour": "cerulean"}', "layout: byte 10: got ' ', want '\"' (0x22)"),
        (' {"colour":"cerulean"}', "layout: byte 0: got ' ', want '{' (0x7B)"),
        ('{"colour":"cerulean"}\n', "layout: byte 21: got 0x0A, want the end"),
        ('{"colour":"S\\u00e3o"}', "layout: byte 12: got '\\\\', want 0xC3"),
        ('{"colour":"cerulean","count":1e1}', "layout: byte 30: got 'e', want '0' (0x30)"),
        ('{"colour":"cerulean","count":-0}', "layout: byte 29: got '-', want '0' (0x30)"),
        ("[]", "schema: [] is not of type 'object'"),
    ],
)
def test_json_layout_and_schema(output: str, reason: str | None) -> None:
    said = check(COUNT, output.encode())
    assert said is None if reason is None else (said or "").startswith(reason)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (b"", "not JSON: the output is empty"),
        (b" ", "not JSON: expecting value at byte 1"),
        (b"{", "not JSON: expecting property name enclosed in double quotes at byte 1"),
        (b"{'a':1}", "not JSON: expecting property name enclosed in double quotes at byte 1"),
        (b'{"count":1,"count":2}', "not JSON: duplicate key 'count'"),
        (b'[{"a":{"b":1,"b":1}}]', "not JSON: duplicate key 'b'"),
        (b'{"a":1,"\\u0061":1}', "not JSON: duplicate key 'a'"),
        (b"NaN", "not JSON: NaN is not a JSON number"),
        (b"[Infinity]", "not JSON: Infinity is not a JSON number"),
        (b"[-Infinity]", "not JSON: -Infinity is not a JSON number"),
        (b"1e999", "layout: byte 0: got '1', want 'I' (0x49)"),
        (b"{}{}", "not JSON: extra data at byte 2"),
        (b"{}x", "not JSON: extra data at byte 2"),
        ('"é" x'.encode(), "not JSON: extra data at byte 5"),
        (b"[1,]", "not JSON: expecting value at byte 3"),
        (b"01", "not JSON: extra data at byte 1"),
        (b"+1", "not JSON: expecting value at byte 0"),
        (b"True", "not JSON: expecting value at byte 0"),
        (b'"a\nb"', "not JSON: invalid control character at byte 2"),
        (b'"\\x"', "not JSON: invalid \\escape at byte 1"),
        (b'"\xff"', "not JSON: invalid UTF-8 at byte 1"),
        (b'"\xc0\x80"', "not JSON: invalid UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "not JSON: invalid UTF-8 at byte 1"),
        (b'\xef\xbb\xbf"a"', "not JSON: unexpected UTF-8 BOM (decode using utf-8-sig) at byte 0"),
        ('"a"'.encode("utf-16"), "not JSON: invalid UTF-8 at byte 0"),
        (b'"\\ud800"', "not JSON: an escape is half of a surrogate pair, which is not a character"),
        (b'{"\\udfff":1}', "not JSON: an escape is half of a surrogate pair, which is not a char"),
        (b"9" * 5000, "not JSON: Exceeds the limit (4300 digits) for integer string conversion"),
        (b"[" * 100_000, "not JSON: nested too deeply to be read"),
        (b'{"a":' * 100_000, "not JSON: nested too deeply to be read"),
        (b"[" * 100_000 + b"]" * 100_000, "not JSON: nested too deeply to be read"),
    ],
)
def test_json_is_strict(output: bytes, reason: str) -> None:
    said = check(ANY, output)
    assert said is not None
    assert said.startswith(reason)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"const": "http://e.com/p"}, ['"http://e.com/p"'], ['"http:\\/\\/e.com\\/p"']),
        ({"type": "string", "pattern": r"^\d+$"}, ['"42"'], ['"4 2"', '"\\\\d"', '""']),
        ({"type": "string", "pattern": r"^https:\/\/x$"}, ['"https://x"'], ['"https:\\/\\/x"']),
        (
            {"enum": ['a"b', "a\\b", "a\nb"]},
            ['"a\\"b"', '"a\\\\b"', '"a\\nb"'],
            ['"a"b"', '"a\\b"', '"a\nb"', '"a\\u000ab"'],
        ),
        ({"enum": ["公司"]}, ['"公司"'], ['"\\u516c\\u53f8"', '"公 司"']),
        ({"enum": [True, None, 42]}, ["true", "null", "42", "42.0"], ["1", "True", '"42"']),
        ({"enum": [1, 0]}, ["1", "0"], ["true", "false"]),
        ({"enum": ["São Paulo", "😀 ok"]}, ['"São Paulo"', '"😀 ok"'], ['"Sa\u0303o Paulo"']),
        ({"type": "string", "pattern": "a\r\nb"}, ['"a\\r\\nb"', '"xa\\r\\nby"'], ['"a\\nb"']),
    ],
)
def test_escapes_are_judged_by_meaning_and_spelling(
    schema: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    """Known faults of public engines: an escape in a const, an enum or a pattern."""
    assert [check(Json(schema), text.encode()) for text in right] == [None] * len(right)
    assert None not in [check(Json(schema), text.encode()) for text in wrong]


@pytest.mark.parametrize(
    ("schema", "output", "reason"),
    [
        ({"$ref": "#"}, b"1", "schema: cannot be applied to this value: RecursionError"),
        ({"multipleOf": 0.5}, b"9" * 400, "schema: cannot be applied to this value: Overflow"),
        ({"items": {"$ref": "urn:none"}}, b"[1]", "schema: cannot be applied to this value: "),
    ],
)
def test_schema_that_cannot_be_applied_is_a_reason(
    schema: dict[str, Any], output: bytes, reason: str
) -> None:
    said = check(Json(schema), output)
    assert said is not None
    assert said.startswith(reason)


# ── what holds for every output ─────────────────────────────────────────────────────────────────

CHECKERS: list[Check] = [
    Literal(b"a b"),
    Literal("é\n".encode()),
    Pattern(r"[a-z ]{1,4}é?x"),
    ANY,
    COUNT,
    Json({"type": "array", "uniqueItems": True, "items": {"multipleOf": 0.1}}),
    Json({"anyOf": [{"pattern": "^a"}, {"type": "object", "unevaluatedProperties": False}]}),
]
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
OUTPUTS = st.binary() | st.text().map(str.encode) | VALUES.map(lambda v: json.dumps(v).encode())


@settings(deadline=None)
@given(st.sampled_from(CHECKERS), OUTPUTS)
def test_never_raises_and_answers_one_printable_line(checker: Check, output: bytes) -> None:
    reason = check(checker, output)
    if reason is not None:
        assert 0 < len(reason) <= 200
        assert reason.isprintable()
        reason.encode()


@settings(deadline=None)
@given(st.binary(min_size=1), st.binary())
def test_literal_is_equality(wanted: bytes, output: bytes) -> None:
    assert (check(Literal(wanted), output) is None) == (wanted == output)
    assert check(Literal(wanted), wanted) is None


@settings(deadline=None)
@given(st.binary())
def test_pattern_is_fullmatch(output: bytes) -> None:
    source = r"(?s:.){0,3}|[a-z ]*"
    assert (check(Pattern(source), output) is None) == bool(re.fullmatch(source.encode(), output))


@settings(deadline=None)
@given(VALUES)
def test_compact_json_passes_and_one_space_more_does_not(value: Any) -> None:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    assert strict_json(text) == value
    assert check(ANY, text) is None
    for spaced in (b" " + text, text + b" "):
        assert (check(ANY, spaced) or "").startswith("layout: byte ")


# ── whether a checker can judge ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "source", ["a", "(?:é|è)+", "é", r"\[é]", r"\xc3[\xa0-\xaf]", "é(a)*", r"[\]]é"]
)
def test_patterns_that_mean_what_they_say(source: str) -> None:
    assert fault(Pattern(source)) is None


@pytest.mark.parametrize(
    "source", ["(", "*", r"\q", "(?u)a", "a{99999999999}", "[é]", "é?", "é{2}"]
)
def test_patterns_that_do_not(source: str) -> None:
    reason = fault(Pattern(source))
    assert reason is not None
    assert repr(source) in reason


def test_faults_of_the_other_kinds() -> None:
    assert fault(Literal(b"a")) is None
    assert fault(COUNT) is None
    assert (fault(Json({"type": 5})) or "").startswith("is not a valid JSON Schema (Draft 2020-12)")


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"$ref": "#/$defs/x"}},
        {"$ref": "http://localhost/schema"},
        {"$ref": "http://[bad"},
        {"$ref": "#/title", "title": "no schema"},
        {"$ref": "#/minimum/x", "minimum": 3},
        {"$ref": "#/enum/0", "enum": [{"type": 5}]},
        {"$ref": "#/enum/0", "enum": [{"$ref": "#/enum/1"}]},
    ],
)
def test_reference_that_leads_to_no_schema(schema: dict[str, Any]) -> None:
    assert "does not lead to a schema" in (fault(Json(schema)) or "")


@pytest.mark.parametrize(
    "source",
    ["[éè]", "é{2}", "é+", "[]é]", "[^]é]", r"[\]é]", "(?i:é)", "(?i)é", "(?x) é +", r"\é+"],
)
def test_a_character_that_would_be_read_as_single_bytes_is_refused(source: str) -> None:
    """Once `[]é]` and `(?i:é)` were read over bytes, without a word."""
    assert "non-ASCII" in (fault(Pattern(source)) or "")


@pytest.mark.parametrize("source", ["[a[]é", "(?:é|è)+", "é[a]+", "(?i:a)[]]", r"\[é\]", "(?s:é)"])
def test_a_character_that_means_its_bytes_in_order_is_not(source: str) -> None:
    assert fault(Pattern(source)) is None


@pytest.mark.parametrize(
    ("schema", "text", "fits"),
    [
        ({"format": "ipv4"}, b'"127.0.0.1"', True),
        ({"format": "ipv4"}, b'"300.0.0.1"', False),
        ({"properties": {"d": {"format": "date"}}}, b'{"d": "2026-13-01"}', False),
        ({"properties": {"d": {"format": "date"}}}, b'{"d": "2026-12-01"}', True),
        ({"type": "string"}, b'"a"', None),
        ({"format": "date"}, b"no JSON", None),
        ({"format": "date", "type": "strong"}, b'"2026-12-01"', None),
    ],
)
def test_formats_are_checked_apart_and_change_no_verdict(
    schema: dict[str, Any], text: bytes, fits: bool | None
) -> None:
    assert format_valid(JsonValue(schema), text) is fits
    if fits is False:
        assert check(JsonValue(schema), text) is None
