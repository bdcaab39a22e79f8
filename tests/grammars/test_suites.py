"""Suite files: what loads, what is refused, and the error messages."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.grammars.case import Case, Grammar
from pipeline.grammars.checkers import JsonValue, check
from pipeline.grammars.suites import Literal, Pattern, load, load_named
from pipeline.model.errors import SuiteError
from support.command import ROOT
from support.suite_files import SCHEMA, a_case, refusal, write

# ── what loads ──────────────────────────────────────────────────────────────────────────────────


def test_yaml_file_becomes_cases(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        """
        suite: x
        about: three kinds of checker
        cases:
          - id: text
            prompt: "Hello"
            grammar: {lark: 'start: "é\\n"'}
            check: {literal: "é\\n"}
          - id: regex
            prompt: "Hello"
            grammar: {lark: 'start: /on|off/'}
            check: {regex: on|off}
            max_tokens: 7
            invalid_grammar: true
          - id: json
            prompt: "Hello"
            grammar: {json: {type: object, properties: {b: {enum: [on, 12:30]}, a: {}}}}
            check: {json: true}
        """
    )
    suite = load(path)
    assert (suite.name, suite.about) == ("x", "three kinds of checker")
    schema = {"type": "object", "properties": {"b": {"enum": ["on", "12:30"]}, "a": {}}}
    text = '{"type":"object","properties":{"b":{"enum":["on","12:30"]},"a":{}}}'
    assert suite.cases == (
        Case("x", "text", "Hello", Grammar("lark", 'start: "é\\n"'), Literal(b"\xc3\xa9\n"), 64),
        Case("x", "regex", "Hello", Grammar("lark", "start: /on|off/"), Pattern("on|off"), 7, True),
        Case("x", "json", "Hello", Grammar("json", text), JsonValue(schema), 64),
    )
    assert len(set(suite.cases)) == 3, "cases can be kept in sets"


def test_json_is_judged_by_meaning_unless_a_layout_is_wanted(tmp_path: Path) -> None:
    """A space after a colon was a fault of the engine."""
    entry = a_case(grammar={"json": SCHEMA}, check={"json": True})
    exact = entry | {"id": "exact", "layout": "compact"}
    meaning, layout = load(write(tmp_path, entry, exact)).cases
    assert check(meaning.check, b'{ "a": 1 }') is None
    assert "layout" in (check(layout.check, b'{ "a": 1 }') or "")
    assert check(layout.check, b'{"a":1}') is None
    assert meaning.hash != layout.hash
    message = refusal(write(tmp_path, a_case(layout="compact")))
    assert "layout: only check.json has a layout" in message


def test_engine_text_is_what_the_bridge_sends() -> None:
    assert Grammar("lark", 'start: "a"').engine_text() == ("lark", '%llguidance {}\nstart: "a"')
    assert Grammar("json", '{"a":1}').engine_text() == (
        "lark",
        '%llguidance {}\nstart: %json {"a":1}',
    )
    own_head = '%llguidance {"no_forcing":true}\nstart: "a"'
    assert Grammar("lark", own_head).engine_text() == ("lark", own_head)


def test_schema_text_keeps_key_order_and_characters(tmp_path: Path) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"é": {}, "a": {}}}
    suite = load(write(tmp_path, a_case(grammar={"json": schema}, check={"json": True})))
    assert suite.cases[0].grammar.text == '{"type":"object","properties":{"é":{},"a":{}}}'


def test_hash_is_of_the_cases_alone(tmp_path: Path) -> None:
    def hash_of(*cases: Any, **top: Any) -> str:
        return load(write(tmp_path, *cases, **top)).hash

    first = hash_of(a_case())
    assert first == hash_of(a_case(max_tokens=64, invalid_grammar=False), about="other words")
    by_json = {"grammar": {"json": SCHEMA}, "check": {"json": True}}
    assert hash_of(a_case(**by_json)) == hash_of(a_case(**by_json | {"check": {"json": SCHEMA}}))
    swapped: dict[str, Any] = {"type": "object", "properties": {"a": {}, "b": {}}}
    others = [
        hash_of(a_case(id="two")),
        hash_of(a_case(prompt="Bye")),
        hash_of(a_case(grammar={"lark": 'start: "b"'})),
        hash_of(a_case(check={"literal": "b"})),
        hash_of(a_case(check={"regex": "a"})),
        hash_of(a_case(max_tokens=65)),
        hash_of(a_case(invalid_grammar=True)),
        hash_of(a_case(), a_case(id="two")),
        hash_of(a_case(**by_json)),
        hash_of(a_case(grammar={"json": swapped}, check={"json": SCHEMA})),
    ]
    assert len({first, *others}) == 1 + len(others)


def test_invalid_grammar_may_be_a_broken_schema(tmp_path: Path) -> None:
    broken = {"type": "objekt"}
    case = a_case(grammar={"json": broken}, check={"literal": "a"}, invalid_grammar=True)
    assert load(write(tmp_path, case)).cases[0].invalid_grammar
    message = refusal(write(tmp_path, case | {"check": {"json": True}}))
    assert "check.json: is true, but there is no valid grammar.json" in message


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},  # circular: the engine refuses it, not the suite loader
        {"$defs": {"c": {"enum": ["a"]}}, "properties": {"c": {"$ref": "#/$defs/c"}}},
        {"$defs": {"c": {"$anchor": "here"}}, "items": {"$ref": "#here"}},
        {"$id": "urn:x", "$defs": {"c": {"$id": "urn:y"}}, "items": {"$ref": "urn:y"}},
        {"enum": [{"$ref": "#/nowhere"}]},  # data, not a reference
        {"properties": {"$ref": {"type": "string"}}},
    ],
)
def test_schemas_that_stand_by_themselves_load(tmp_path: Path, schema: Any) -> None:
    load(write(tmp_path, a_case(grammar={"json": schema}, check={"json": True})))


# ── what is refused ─────────────────────────────────────────────────────────────────────────────

LARK_OR_JSON = "it must be a mapping with exactly one of lark, json."
ONE_CHECK = "it must be a mapping with exactly one of literal, regex, json."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"check": None}, f"check is missing; {ONE_CHECK}"),
        ({"check": {}}, f"check: has no key; {ONE_CHECK}"),
        ({"check": {"literal": "a", "regex": "a"}}, f"check: has literal and regex; {ONE_CHECK}"),
        ({"check": {"text": "a"}}, f"check: unknown key 'text'; {ONE_CHECK}"),
        ({"check": "a"}, f'check: is "a"; {ONE_CHECK}'),
        ({"check": {"literal": ""}}, 'check.literal: is ""; it must be text, not empty.'),
        ({"check": {"literal": 5}}, "check.literal: is 5; it must be text, not empty."),
        ({"check": {"regex": "("}}, "check.regex: '(' is not a Python regex: missing ), "),
        ({"check": {"regex": "[éè]x"}}, "check.regex: '[éè]x' has a non-ASCII character in [...]"),
        ({"check": {"regex": "é+"}}, "write (?:é|è)+ in place of [éè]+."),
        ({"check": {"json": False}}, "check.json: is false; it must be a JSON Schema, written as"),
        ({"check": {"json": True}}, "check.json: is true, but there is no valid grammar.json to"),
        ({"check": {"json": {"minimum": "a"}}}, "check.json: is not a valid JSON Schema (Draft 20"),
        ({"grammar": None}, f"grammar is missing; {LARK_OR_JSON}"),
        ({"grammar": {}}, f"grammar: has no key; {LARK_OR_JSON}"),
        ({"grammar": {"gbnf": "a"}}, f"grammar: unknown key 'gbnf'; {LARK_OR_JSON}"),
        ({"grammar": {"lark": 1}}, "grammar.lark: is 1; it must be text, not empty."),
        (
            {"grammar": {"json": "{}"}},
            'grammar.json: is "{}"; it must be a JSON Schema, written as a mapping.',
        ),
        (
            {"grammar": {"json": {"properties": {"a": {"type": "objekt"}}}}},
            "grammar.json: is not a valid JSON Schema (Draft 2020-12): at /properties/a/type: ",
        ),
        ({"grammar": {"json": {"pattern": "("}}}, "at /pattern: '(' is not a 'regex'."),
        ({"grammar": {"json": {"$ref": "#/x"}}}, "grammar.json: $ref '#/x' does not lead to a "),
        ({"grammar": {"json": {"items": {"$ref": "http://localhost/s"}}}}, "does not lead"),
        ({"prompt": None}, "prompt is missing; it must be text, not empty."),
        ({"prompt": ["a"]}, 'prompt: is ["a"]; it must be text, not empty.'),
        ({"max_tokens": 0}, "max_tokens: is 0; it must be a whole number, 1 to 4096."),
        ({"max_tokens": 9999}, "max_tokens: is 9999; it must be a whole number, 1 to 4096."),
        ({"max_tokens": "64"}, 'max_tokens: is "64"; it must be a whole number, 1 to 4096.'),
        ({"max_tokens": True}, "max_tokens: is true; it must be a whole number, 1 to 4096."),
        ({"invalid_grammar": "yes"}, 'invalid_grammar: is "yes"; it must be true or false.'),
        (
            {"chek": {}},
            "unknown key 'chek'; it must be a mapping with id, prompt, grammar, check, layout, "
            "max_tokens, invalid_grammar, stress, tokens.",
        ),
    ],
)
def test_bad_case_names_case_field_and_what_is_allowed(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    said = refusal(write(tmp_path, a_case(id="fine"), a_case(**changes)))
    assert said.startswith("case 'one' (number 2)")
    assert message in said


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (a_case(id=None), "case number 1: id is missing; it must be text of a-z, 0-9 and _ only."),
        (a_case(id="A b"), "case 'A b' (number 1), id: is \"A b\"; it must be text of a-z, 0-9"),
        (a_case(id="one\n"), 'id: is "one\\n"; it must be text of a-z, 0-9 and _ only.'),
        (a_case(id=7), "case number 1, id: is 7; it must be text of a-z, 0-9 and _ only."),
        ("founding", 'case number 1: is "founding"; it must be a mapping with id, prompt, '),
        ("x" * 99, f'case number 1: is "{"x" * 56}...; it must be a mapping with id, prompt, '),
    ],
)
def test_bad_case_without_a_good_id_is_named_by_number(
    tmp_path: Path, case: Any, message: str
) -> None:
    assert message in refusal(write(tmp_path, case))


def test_duplicate_id(tmp_path: Path) -> None:
    said = refusal(write(tmp_path, a_case(), a_case(id="two"), a_case()))
    assert said == "case 'one' (number 3), id: an earlier case has the same id; ids must be unique."


@pytest.mark.parametrize(
    ("top", "message"),
    [
        ({"cases": []}, "cases: is []; it must be a list of at least one case."),
        ({"cases": {}}, "cases: is {}; it must be a list of at least one case."),
        ({"cases": None}, "cases is missing; it must be a list of at least one case."),
        ({"suite": "A-b"}, 'suite: is "A-b"; it must be text of a-z, 0-9 and _ only.'),
        ({"about": None}, "about is missing; it must be text, not empty."),
        ({"seed": 1}, "unknown key 'seed'; it must be a mapping with suite, about, cases."),
    ],
)
def test_bad_top_of_file(tmp_path: Path, top: dict[str, Any], message: str) -> None:
    assert refusal(write(tmp_path, **{"cases": [a_case()]} | top)) == message


HEAD = b"suite: a\nabout: b\ncases:\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is null; it must be a mapping with suite, about, cases."),
        (b"just text", 'is "just text"; it must be a mapping with suite, about, cases.'),
        (b"suite: [", "line 1, column 9: expected the node content, but found '<stream end>'."),
        (b"suite: a\nsuite: b", "line 2, column 1: duplicate key 'suite'."),
        (b"1: a", "line 1, column 1: a key must be text; put it in quotes."),
        (b"[a]: b", "line 1, column 1: a key must be text; put it in quotes."),
        (b"a: &x [1]\nb: *x", "line 2, column 4: aliases (*name) and tags (!name) are not "),
        (b"a: !!python/object:os.system x", "line 1, column 4: aliases (*name) and tags (!name)"),
        (b"a: !!bool x", "line 1, column 4: aliases (*name) and tags (!name) are not allowed; "),
        (b"a: b\n---\nc: d", "but found another document."),
        (b"a: \xff", "is not UTF-8 (byte 3); save it as UTF-8."),
        (b"a: \x07", "is not valid YAML: unacceptable character #x0007: "),
        (b'a: "\\ud83d"', "has half of a surrogate pair (\\ud800 to \\udfff); write the "),
        (b"a: 1e999", "is not valid YAML: Out of range float values are not JSON "),
        (b"a: " + b"9" * 5000, "is not valid YAML: Exceeds the limit "),
        (b"[" * 5000, "is nested too deeply to be read; make it flatter."),
        (HEAD + b"  - id: True", "case 'True' (number 1): prompt is missing; "),
        (HEAD + b"  - {id: on, prompt: 2001-01-01}", "case 'on' (number 1): grammar is missing; "),
    ],
)
def test_bad_yaml(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(data)
    assert message in refusal(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not valid JSON: expecting value at byte 0."),
        (b'{"a": 1, "a": 2}', "is not valid JSON: duplicate key 'a'."),
        (b'{"a": NaN}', "is not valid JSON: NaN is not a JSON number."),
        (b'{"a": "\\ud83d"}', "has half of a surrogate pair (\\ud800 to \\udfff); write the "),
        (b'{"a": "\xff"}', "is not valid JSON: invalid UTF-8 at byte 7."),
        (b"[" * 100_000, "is nested too deeply to be read; make it flatter."),
    ],
)
def test_bad_json_file(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    assert message in refusal(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot be read: " in refusal(tmp_path / "missing.yaml")
    assert refusal(tmp_path) == "is not a file; a suite is one .yaml or .json file."
    assert "cannot be read: " in refusal(Path("nul\0byte.yaml"))
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (4 * 1024 * 1024 + 1))
    assert refusal(large) == "is larger than 4 MiB; split the suite."


def test_load_named(tmp_path: Path) -> None:
    write(tmp_path, a_case())
    assert load_named("some", tmp_path).cases[0].id == "one"
    for name in ("sme", "../some", "some.json", ""):
        with pytest.raises(SuiteError, match=r"^No suite .* known suites: some\.$"):
            load_named(name, tmp_path)
    with pytest.raises(SuiteError, match=r"known suites: none\.$"):
        load_named("some", tmp_path / "nowhere")
    write(tmp_path, a_case(), suite="other")
    with pytest.raises(SuiteError, match=r"suite: is 'other', but the file is named 'some'; give"):
        load_named("some", tmp_path)


def test_suites_and_checkers_load_no_engine() -> None:
    """Law 2: the judge of an engine must not use the engine."""
    code = (
        "import sys, pipeline.grammars.suites, pipeline.grammars.checkers;"
        "sys.exit(bool({'llguidance', 'llama_cpp', 'polars', 'hydra'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
