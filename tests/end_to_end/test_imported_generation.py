"""Generation from imported collections: schemas and prompts become cells, judged like any case."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from pipeline.grammars.case import Grammar
from pipeline.grammars.checkers import Check, JsonValue, Unchecked, check
from pipeline.grammars.importers import Entry, Item, cases
from pipeline.system.rerun import Recipe
from support.command import GENERATE, ROOT, Finished, pipeline

COLLECTIONS = ROOT / "datasets" / "collections"


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run of the schemas that come with the project, with mistral_v1; every mask is judged."""
    done = pipeline(
        tmp_path_factory.mktemp("schemas"),
        *("run", "grammar=maskbench", f"grammar.path={COLLECTIONS / 'schemas'}"),
        "stages=[generate]",
    )
    assert done.code == 0, done.err
    return done


def outcomes(done: Finished, builder: str) -> dict[str, tuple[str, str]]:
    rows = done.table("cells").filter(builder=builder).iter_rows(named=True)
    return {row["case"]: (row["verdict"], row["cause"]) for row in rows}


def test_schemas_are_cells_and_fixed_obeys_them(schemas: Finished) -> None:
    fixed = outcomes(schemas, "fixed")
    assert {fixed[case] for case in ("colour", "flags", "pair")} == {("ok", "none")}
    assert outcomes(schemas, "unfixed")["colour"][0] != "ok"
    texts = schemas.table("cells").filter(builder="fixed", case="flags")["output"]
    assert json.loads(texts[0]).keys() == {"on", "level"}
    states = schemas.table("states").filter(builder="fixed")
    assert states.height
    assert not states.filter(~pl.col("verdict").is_in(["exact", "incomplete_forced"])).height


def test_a_schema_that_does_not_compile_is_a_row_and_the_engines_fault(schemas: Finished) -> None:
    for builder in ("unfixed", "fixed"):
        assert outcomes(schemas, builder)["not_a_text"] == ("unenforced", "engine")
    rows = schemas.table("cells").filter(case="not_a_text")
    assert all("not" in said for said in rows["engine_error"])


def test_prompts_are_generated_from_without_being_told_and_replayed(tmp_path: Path) -> None:
    arguments = ["grammar=jsonl", f"grammar.path={COLLECTIONS / 'prompts.jsonl'}", "builder=fixed"]
    done = pipeline(tmp_path, "run", *arguments, "audit.walks=0", "audit.strings_suite=null")
    assert done.code == 0, done.err
    names = [f"prompts#{name}" for name in ("capital", "greeting", "yes_or_no", "sum")]
    assert outcomes(done, "fixed") == dict.fromkeys(names, ("ok", "none"))
    assert set(done.table("replay")["verdict"]) == {"ok"}
    assert done.table("replay")["schema"].n_unique() == len(names)


def test_what_cannot_be_read_is_a_row_that_names_the_line_and_costs_no_other(
    tmp_path: Path,
) -> None:
    file = tmp_path / "p.jsonl"
    lines = ['{"prompt": "A: "}', "{", '{"prompt": "B: ", "lark": "start: <[5]>"}']
    file.write_text("\n".join(lines), "utf-8")
    constraint = tmp_path / "all.lark"
    constraint.write_text('start: "yes" | "no"', "utf-8")
    arguments = ["grammar=jsonl", f"grammar.path={file}", f"grammar.constraint={constraint}"]
    done = pipeline(tmp_path, "run", *arguments, *GENERATE, "builder=fixed")
    assert done.code == 0, done.err
    rows = {row["case"]: row for row in done.table("cells").iter_rows(named=True)}
    assert rows["p#1"]["verdict"] == "ok"
    assert rows["p#1"]["output"] in (b"yes", b"no")
    for name, words in (("p#2", f"{file}: line 2: is not JSON"), ("p#3", "refers to tokens")):
        assert (rows[name]["verdict"], rows[name]["cause"]) == ("grammar_error", "grammar")
        assert words in rows[name]["reason"]


def test_shards_generate_what_the_whole_run_does(tmp_path: Path, schemas: Finished) -> None:
    arguments = ["grammar=maskbench", f"grammar.path={COLLECTIONS / 'schemas'}"]
    arguments += ["stages=[generate]", "run.name=run"]
    done = pipeline(tmp_path, "run", "-m", *arguments, "shard.count=3")
    assert done.code == 0, done.err
    for table in ("cells", "steps", "states"):
        assert done.table(table).equals(schemas.table(table)), table


def test_a_server_is_asked_for_prompts_too_and_what_it_cannot_be_told_is_a_row(
    tmp_path: Path,
) -> None:
    arguments = ["grammar=jsonl", f"grammar.path={COLLECTIONS / 'prompts.jsonl'}"]
    done = pipeline(tmp_path, "run", "target=openai", *arguments)
    assert done.code == 0, done.err
    rows = {row["case"]: row for row in done.table("cells").iter_rows(named=True)}
    assert rows["prompts#capital"]["verdict"] in ("ok", "truncated")
    for name in ("prompts#greeting", "prompts#yes_or_no", "prompts#sum"):
        assert rows[name]["verdict"] == "grammar_error"
        assert rows[name]["reason"] == "target=openai accepts JSON Schemas only"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("grammar.constraint=none.lark", "is not a grammar file"),
        ("grammar.prompt=''", "grammar.prompt is empty"),
    ],
)
def test_settings_of_collections_that_cannot_be(tmp_path: Path, argument: str, words: str) -> None:
    arguments = ["grammar=jsonl", f"grammar.path={COLLECTIONS / 'prompts.jsonl'}", argument]
    done = pipeline(tmp_path, "run", *arguments)
    assert done.code == 2
    assert words in done.err


# --- cases ----------------------------------------------------------------------------------------


def check_of(schema: object) -> Check:
    entry = Entry(Grammar("json", json.dumps(schema)))
    return cases.case("s", Item("x", Path("x")), entry, "One: ").check


def test_a_schema_is_checked_by_the_draft_that_it_declares() -> None:
    tuples = {"type": "array", "items": [{"const": 1}, {"const": 2}]}
    older = check_of({"$schema": "http://json-schema.org/draft-07/schema#"} | tuples)
    assert check(older, b"[1, 2]") is None
    assert check(older, b"[2, 1]") is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 5},
        {"$ref": "http://localhost/elsewhere"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/none"},
    ],
)
def test_a_schema_that_the_checker_cannot_apply_is_checked_as_json(schema: object) -> None:
    assert check_of(schema) == JsonValue({})


def test_true_and_false_are_schemas() -> None:
    assert check(check_of(True), b"1") is None
    assert check(check_of(False), b"1") is not None


def test_the_prompt_of_those_without_one_can_show_the_grammar() -> None:
    entry = Entry(Grammar("lark", 'start: "a"'))
    made = cases.case("s", Item("x", Path("x")), entry, "Obey {grammar}: ")
    assert made.prompt == 'Obey start: "a": '
    assert isinstance(made.check, Unchecked)


def test_the_command_that_makes_an_imported_cell_again_names_its_collection() -> None:
    chosen = {"maskbench": {"file": "schemas", "layout": "maskbench"}}
    row = {"model": "tiny", "tokenizer": "t", "suite": "maskbench", "case": "colour"}
    command = Recipe.of(chosen, {}).command(row | {"target": "inprocess", "builder": "fixed"})
    assert "grammar=maskbench grammar.path=schemas" in command
    assert "'stages=[generate]' 'grammar.cases=[colour]'" in command
