"""Importers: each layout read as it lies, ids that stay, sampling alike everywhere, a hash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline import importers
from pipeline.errors import SuiteError
from pipeline.importers import Entry
from pipeline.oracle import ByteGrammar

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
    language = ByteGrammar(found["b/two"].grammar.engine_text()[1])
    assert [language.match(i.text).complete for i in found["b/two"].instances] == [True, False]


def test_json_schema_test_suite_is_several_groups_a_file_and_any_schema(tmp_path: Path) -> None:
    groups = [{"schema": False, "tests": TESTS}, {"schema": SCHEMA, "tests": TESTS}]
    write(tmp_path / "draft7" / "some.json", groups)
    found = entries("json_schema_test_suite", tmp_path)
    assert [*found] == ["draft7/some#0", "draft7/some#1"]
    assert found["draft7/some#0"].grammar.text == "false"
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
        assert ByteGrammar(found[name].grammar.engine_text()[1]).match(text).complete


def test_one_file_is_a_collection_too(tmp_path: Path) -> None:
    path = write(tmp_path / "one.json", {"schema": SCHEMA, "tests": TESTS})
    assert [*entries("maskbench", path)] == ["one"]


@pytest.mark.parametrize(
    ("layout", "name", "document", "words"),
    [
        ("maskbench", "x.json", {"schema": SCHEMA}, "not a MaskBench file"),
        ("maskbench", "x.json", {"schema": SCHEMA, "tests": [{"data": 1}]}, "not a MaskBench file"),
        ("maskbench", "x.json", {"schema": 1, "tests": [{"data": 1, "valid": 1}]}, "MaskBench"),
        ("maskbench", "x.json", "{", "is not JSON"),
        ("json_schema_test_suite", "x.json", [{"schema": True}], "group 0 is not"),
        ("json_schemas", "x.json", [1], "is not a JSON Schema"),
        ("grammars", "x.gbnf", "root = nonsense ((", "is not GBNF"),
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
    ("layout", "words"), [("maskbench", "holds nothing"), ("maskbanch", "there are grammars")]
)
def test_a_folder_without_items_and_an_unknown_layout_are_refused(
    tmp_path: Path, layout: str, words: str
) -> None:
    with pytest.raises(SuiteError, match=words):
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
