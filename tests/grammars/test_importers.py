"""Importers: each layout is read in place; ids, samples and hashes are stable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.grammars import importers
from pipeline.grammars.case import Grammar
from pipeline.grammars.importers import Entry
from pipeline.grammars.languages import ByteGrammar
from pipeline.model.errors import PipelineError, SuiteError

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TESTS = [{"valid": True, "data": {"n": 1}}, {"valid": False, "data": {"n": "é"}, "description": ""}]


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
    return path


def entries(layout: str, root: Path) -> dict[str, Entry]:
    return {item.id: importers.get(layout).entry(item) for item in importers.find(layout, root)}


def test_maskbench_is_a_schema_with_instances_a_file(tmp_path: Path) -> None:
    write(tmp_path / "b" / "two.json", {"schema": SCHEMA, "tests": TESTS, "meta": {}})
    write(tmp_path / "a.json", {"schema": SCHEMA, "tests": []})
    write(tmp_path / "README.md", "no schema")
    found = entries("maskbench", tmp_path)
    assert [*found] == ["a", "b/two"]
    assert found["a"].instances == ()
    assert [(i.id, i.text, i.valid) for i in found["b/two"].instances] == [
        ("0", b'{"n": 1}', True),
        ("1", '{"n": "é"}'.encode(), False),
    ]
    grammar = found["b/two"].grammar
    assert grammar is not None
    language = ByteGrammar(grammar.engine_text()[1])
    assert [language.match(i.text).complete for i in found["b/two"].instances] == [True, False]


def test_json_schema_test_suite_is_several_groups_a_file_and_any_schema(tmp_path: Path) -> None:
    groups = [{"schema": False, "tests": TESTS}, {"schema": SCHEMA, "tests": TESTS}]
    write(tmp_path / "draft7" / "some.json", groups)
    found = entries("json_schema_test_suite", tmp_path)
    assert [*found] == ["draft7/some#0", "draft7/some#1"]
    assert found["draft7/some#0"].grammar == Grammar("json", "false")
    assert len(found["draft7/some#1"].instances) == 2


def test_schemas_and_grammars_have_no_instances(tmp_path: Path) -> None:
    write(tmp_path / "s.json", SCHEMA)
    write(tmp_path / "g.lark", 'start: "a"')
    write(tmp_path / "g.gbnf", 'root ::= "a" [0-9]+')
    assert [*entries("json_schemas", tmp_path)] == ["s"]
    found = entries("grammars", tmp_path)
    assert [*found] == ["g.gbnf", "g.lark"]
    for name, text in (("g.lark", b"a"), ("g.gbnf", b"a12")):
        assert found[name].instances == ()
        grammar = found[name].grammar
        assert grammar is not None
        assert ByteGrammar(grammar.engine_text()[1]).match(text).complete


LINES = [
    {"id": "ada", "prompt": "Ada: ", "json_schema": SCHEMA, "max_tokens": 7, "instances": TESTS},
    {"prompt": "Say a/b. ", "regex": "a/b|c\\/d|\n", "other": 1},
    {"prompt": "One: ", "gbnf": 'root ::= "1"', "instances": [{"valid": True, "text": "1"}]},
    {"prompt": "More: ", "lark": 'start: "é"+', "id": 12},
    {"prompt": "Bare: "},
]


def jsonl(path: Path, *lines: Any) -> Path:
    """Write a `jsonl` file; a line that is not text is written as JSON."""
    return write(path, "\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))


def test_jsonl_is_a_prompt_with_its_grammar_a_line(tmp_path: Path) -> None:
    found = entries("jsonl", jsonl(tmp_path / "p.jsonl", *LINES).parent)
    assert [*found] == ["p#ada", "p#2", "p#3", "p#12", "p#5"]
    assert [entry.prompt for entry in found.values()] == [line["prompt"] for line in LINES]
    assert [entry.max_tokens for entry in found.values()] == [7, 64, 64, 64, 64]
    assert [(i.text, i.valid) for i in found["p#ada"].instances] == [
        (b'{"n": 1}', True),
        ('{"n": "é"}'.encode(), False),
    ]
    assert [i.text for i in found["p#3"].instances] == [b"1"]
    for name, texts in {"p#2": ["a/b", "c/d", "\n"], "p#3": ["1"], "p#12": ["é", "éé"]}.items():
        grammar = found[name].grammar
        assert grammar is not None
        language = ByteGrammar(grammar.engine_text()[1])
        assert language.error is None
        assert all(language.match(text.encode()).complete for text in texts)
        assert not language.match(b"b").complete


def test_a_line_without_a_grammar_takes_the_one_of_all_and_says_what_it_lacks(
    tmp_path: Path,
) -> None:
    path = jsonl(tmp_path / "p.jsonl", *LINES)
    bare = importers.find("jsonl", path)[-1]
    for name, text in (("c.json", "{}"), ("c.lark", 'start: "a"'), ("c.gbnf", 'root ::= "a"')):
        constraint = write(tmp_path / name, text)
        read = importers.read("jsonl", bare, str(constraint))
        assert read.prompt == "Bare: "
        assert read.grammar is not None
        assert read.grammar.kind == ("json" if text == "{}" else "lark")
    with pytest.raises(SuiteError, match=r"p#5 has no grammar.*grammar\.constraint=FILE"):
        importers.read("jsonl", bare, None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "is not JSON"),
        ("null", "is not a JSON object"),
        ("\0", "is not JSON"),
        ('{"prompt": "a\0b", "lark": "x"}', "is not JSON: Invalid control character"),
        ("[" * 100_000, "nested too deeply"),
        ({"lark": "x"}, "prompt must be text"),
        ({"prompt": "", "lark": "x"}, "prompt must be text"),
        ({"prompt": "\ud800", "lark": "x"}, "surrogate"),
        ({"messages": [{"role": "user", "content": "a"}], "lark": "x"}, "chat template"),
        (
            {"prompt": "a", "lark": "x", "regex": "x"},
            "lark and regex; a line can have one grammar only",
        ),
        ({"prompt": "a", "lark": 'start: "\0"'}, "lark: has a NUL"),
        ({"prompt": "a", "regex": ""}, "regex must be text, not empty"),
        ({"prompt": "a", "gbnf": "root = ((("}, "gbnf: llguidance cannot convert this GBNF"),
        ({"prompt": "a", "json_schema": "{}"}, "json_schema must be a JSON Schema"),
        ({"prompt": "a", "lark": "x", "max_tokens": 0}, "max_tokens must be"),
        ({"prompt": "a", "lark": "x", "max_tokens": True}, "max_tokens must be"),
        ({"prompt": "a", "lark": "x", "id": ""}, "id must be"),
        ({"prompt": "a", "lark": "x", "id": "a\nb"}, "id must be"),
        ({"prompt": "a", "lark": "x", "instances": [{"text": "a"}]}, "instances must be"),
        ({"prompt": "a", "lark": "x", "instances": 3}, "instances must be"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_with_its_file_and_costs_no_other(
    tmp_path: Path, line: Any, words: str
) -> None:
    path = jsonl(tmp_path / "p.jsonl", LINES[0], "", line, LINES[2])
    items = importers.find("jsonl", path)
    assert [item.id for item in items] == ["p#ada", "p#3", "p#4"]
    layout = importers.get("jsonl")
    assert layout.entry(items[2]).prompt == "One: "
    with pytest.raises(SuiteError, match=words) as caught:
        layout.entry(items[1])
    assert str(caught.value).startswith(f"{path}: line 3: ")


def test_lines_of_windows_and_of_other_encodings(tmp_path: Path) -> None:
    plain = {"prompt": "é: ", "lark": 'start: "a"'}
    text = json.dumps(plain, ensure_ascii=False)
    for name, data in {
        "bom": b"\xef\xbb\xbf" + text.encode(),
        "crlf": f"\r\n{text}\r\n\r\n{text}\r\n".encode(),
    }.items():
        (tmp_path / f"{name}.jsonl").write_bytes(data)
        found = entries("jsonl", tmp_path / f"{name}.jsonl")
        assert {entry.prompt for entry in found.values()} == {"é: "}
        assert [*found] == (["bom#1"] if name == "bom" else ["crlf#2", "crlf#4"])
    (tmp_path / "latin.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(SuiteError, match=r"line 1: is not UTF-8 \(byte \d+\)"):
        entries("jsonl", tmp_path / "latin.jsonl")
    (tmp_path / "wide.jsonl").write_bytes(text.encode("utf-16"))
    with pytest.raises(SuiteError, match=r"line 1: is not UTF-8"):
        entries("jsonl", tmp_path / "wide.jsonl")


def test_a_line_too_long_is_named_and_the_next_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importers.get("jsonl")
    from pipeline.grammars.importers import jsonl as layout

    monkeypatch.setattr(layout, "MAX_LINE_BYTES", 1000)
    long = json.dumps({"prompt": "a" * 5000, "lark": "x"})
    path = jsonl(tmp_path / "p.jsonl", LINES[2], long, LINES[2])
    items = importers.find("jsonl", path)
    assert [item.number for item in items] == [1, 2, 3]
    assert importers.get("jsonl").entry(items[2]).prompt == "One: "
    with pytest.raises(SuiteError, match="line 2: is longer than"):
        importers.get("jsonl").entry(items[1])


def test_ids_given_twice_are_refused(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "p.jsonl", {"id": 2}, {"prompt": "a"})
    with pytest.raises(SuiteError, match="lines 1 and 2 have the same id '2'"):
        importers.find("jsonl", path)
    write(tmp_path / "p.ndjson", json.dumps({"prompt": "a"}))
    path.unlink()
    write(tmp_path / "q" / "p.jsonl", "{}")
    write(tmp_path / "q" / "p.ndjson", "{}")
    with pytest.raises(SuiteError, match="two items have the id 'q/p#1'"):
        importers.find("jsonl", tmp_path)


def test_the_first_so_many_of_a_file_are_its_first_lines(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "p.jsonl", *[{"prompt": "a"}] * 12)
    assert [item.number for item in importers.find("jsonl", path)] == [*range(1, 13)]
    groups: list[dict[str, Any]] = [{"schema": True, "tests": []}] * 12
    write(tmp_path / "s" / "g.json", groups)
    numbers = [item.number for item in importers.find("json_schema_test_suite", tmp_path / "s")]
    assert numbers == [*range(12)]


def test_one_file_is_a_collection_too(tmp_path: Path) -> None:
    path = write(tmp_path / "one.json", {"schema": SCHEMA, "tests": TESTS})
    assert [*entries("maskbench", path)] == ["one"]


@pytest.mark.parametrize(
    ("layout", "name", "document", "words"),
    [
        ("maskbench", "x.json", {"schema": SCHEMA}, "not a MaskBench file"),
        ("maskbench", "x.json", {"schema": SCHEMA, "tests": [{"data": 1}]}, "not a MaskBench file"),
        ("maskbench", "x.json", {"schema": 1, "tests": [{"data": 1, "valid": 1}]}, "MaskBench"),
        ("maskbench", "x.json", "{", "is not valid JSON"),
        ("json_schema_test_suite", "x.json", [{"schema": True}], "group 0 is not"),
        ("json_schemas", "x.json", [1], "is not a JSON Schema"),
        ("grammars", "x.gbnf", "root = nonsense ((", "llguidance cannot convert this GBNF"),
        ("grammars", "x.lark", "start: \0", "NUL"),
    ],
)
def test_an_item_that_is_none_says_why(
    tmp_path: Path, layout: str, name: str, document: Any, words: str
) -> None:
    path = write(tmp_path / name, document)
    with pytest.raises(SuiteError, match=words) as caught:
        entries(layout, tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("layout", "words"), [("maskbench", "has no items"), ("maskbanch", "choose from grammars")]
)
def test_a_folder_without_items_and_an_unknown_layout_are_refused(
    tmp_path: Path, layout: str, words: str
) -> None:
    with pytest.raises(PipelineError, match=words):
        importers.find(layout, tmp_path)


def test_choosing_is_seeded_stable_and_limit_takes_the_first_of_the_sample() -> None:
    ids = [f"{n:03}" for n in range(100)]
    assert importers.choose(ids, 3, None, 0) == ["000", "001", "002"]
    sample = importers.choose(ids, None, 10, 7)
    assert sample == sorted(sample) == importers.choose(ids, None, 10, 7)
    assert sample != importers.choose(ids, None, 10, 8)
    assert importers.choose(ids, 4, 10, 7) == sample[:4]
    assert importers.choose(ids, None, 1000, 7) == ids


def test_the_hash_is_of_content_and_ids(tmp_path: Path) -> None:
    write(tmp_path / "one" / "a.json", {"schema": SCHEMA, "tests": TESTS})
    write(tmp_path / "two" / "a.json", {"schema": SCHEMA, "tests": TESTS})
    write(tmp_path / "tre" / "a.json", {"schema": SCHEMA, "tests": []})
    one, two, tre = (
        importers.content_hash(importers.find("maskbench", tmp_path / name))
        for name in ("one", "two", "tre")
    )
    assert one == two != tre
