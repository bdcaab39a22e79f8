"""The field as a table, and its reproducers: each shows its fault when its command is run."""

from __future__ import annotations

import importlib.metadata
import shlex
from pathlib import Path

import polars as pl
import pytest
import yaml
from conftest import Finished, pipeline

from pipeline import builders, field, schemas, tables
from pipeline.foreign import Foreign
from pipeline.masks import FAULTS

FAULT_NAMES = [verdict.value for verdict in FAULTS]
WRONG = ("unfixed", "lmfe", "outlines", "xgrammar_byte_level")
"""Builders that enter tokens of llama_spm with wrong bytes."""


def present(*names: str) -> list[str]:
    """Those of the builders whose package is installed, or that need none."""
    found: list[str] = []
    for name in names:
        builder = builders.get(name)
        try:
            if isinstance(builder, Foreign):
                builder.made_by()
            found.append(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Wrong builders without a single walk: what shows their faults is made of the tokens alone."""
    done = pipeline(
        tmp_path_factory.mktemp("field"),
        "audit",
        "tokenizer=llama_spm",
        f"builder=[{','.join([*present(*WRONG), 'fixed'])}]",
        "audit.walks=0",
        "audit.strings_suite=null",
    )
    assert done.code == 0, done.err
    return done


def test_every_wrong_row_has_a_mask_that_shows_it(audited: Finished) -> None:
    """Also where no walk met a wrong token: half characters, of which grammars seldom speak."""
    rows = audited.table("field")
    assert set(rows["builder"]) == {*present(*WRONG), "fixed"}
    wrong = rows.filter(pl.col("n_wrong") > 0)
    assert set(wrong["builder"]) == set(present(*WRONG))
    for row in wrong.iter_rows(named=True):
        assert row["verdict"] in FAULT_NAMES, row["builder"]
        assert row["true"] != row["claimed"]
        document = yaml.safe_load((audited.folder / row["file"]).read_text("utf-8"))
        assert document["cases"][0]["tokens"] == [*row["tokens"], row["ids"][0]]
    [right] = rows.filter(builder="fixed").to_dicts()
    assert (right["n_wrong"], right["status"], right["file"]) == (0, "ok", None)


def test_each_kind_of_damage_has_its_reproducer(audited: Finished) -> None:
    """One for each builder and kind among the tokens that a runtime renders."""
    rendered = ~pl.col("attribute").is_in(["CONTROL", "UNKNOWN"])
    there = audited.table("tokens").filter(rendered & (pl.col("true") != pl.col("claimed")))
    shown = audited.table("reproducers")
    for builder in present(*WRONG):
        kinds = set(there.filter(builder=builder)["damage"])
        assert kinds <= set(shown.filter(builder=builder)["kind"]), builder


def test_every_reproducer_shows_its_fault_and_is_clean_under_fixed(
    audited: Finished, tmp_path: Path
) -> None:
    """By the command that stands in its first line, with `fixed` beside the builder."""
    rows = audited.table("reproducers").unique(["verdict", "kind"], maintain_order=True)
    assert rows.height >= 4
    for number, row in enumerate(rows.iter_rows(named=True)):
        path = audited.folder / row["file"]
        first = path.read_text("utf-8").partition("\n")[0]
        assert first == f"# {row['command']}"
        arguments = shlex.split(row["command"])[3:]
        assert f"builder={row['builder']}" in arguments
        arguments.remove(f"builder={row['builder']}")
        arguments[arguments.index(f"grammar.path={row['file']}")] = f"grammar.path={path}"
        both = f"builder=[{row['builder']},fixed]"
        done = pipeline(tmp_path, *arguments, both, f"run.name={number}")
        assert done.code == 0, done.err
        faults = done.table("states").filter(pl.col("verdict").is_in(FAULT_NAMES))
        assert set(faults["builder"]) == {row["builder"]}, path.read_text("utf-8")
        [walked] = done.table("walks").filter(builder=row["builder"]).to_dicts()
        assert walked["verdict"] == row["verdict"]
        assert walked["strategy"] == "given"
        ids = faults.filter(pl.col("walk").str.ends_with("given"))["ids"].explode().to_list()
        assert row["ids"][0] in ids


def test_the_command_works_as_it_stands(audited: Finished, tmp_path: Path) -> None:
    row = audited.table("reproducers").filter(builder="unfixed").row(0, named=True)
    arguments = shlex.split(row["command"])[3:]
    place = arguments.index(f"grammar.path={row['file']}")
    arguments[place] = f"grammar.path={audited.folder / row['file']}"
    done = pipeline(tmp_path, *arguments)
    assert done.code == 0, done.err
    [shown] = [line for line in done.out.splitlines() if line.startswith("  llama_spm  unfixed")][
        1:
    ]
    assert row["verdict"] in shown, "under Masks against the byte oracle"


# --- the table ------------------------------------------------------------------------------------


def table(name: str, *rows: dict[str, object]) -> pl.DataFrame:
    return pl.DataFrame([*rows], schema=schemas.SCHEMAS[name])


def test_the_smallest_proof_stands_for_a_row() -> None:
    """Fewest tokens before it, the worst, the shortest grammar; no proof of something else."""
    who = {"builder": "lmfe", "tokenizer": "t"}
    tokenizers = table(
        "tokenizers",
        who
        | {"status": "ok", "n_normal": 9, "n_normal_wrong": 2, "made_by": "x 1.2", "reason": ""},
    )
    proofs = [
        {"name": "a", "kind": "special", "grammar": "s", "tokens": []},
        {"name": "b", "kind": "other", "grammar": "s", "tokens": [1], "verdict": "unsound"},
        {"name": "c", "kind": "other", "grammar": "s", "tokens": [], "verdict": "incomplete"},
        {"name": "d", "kind": "other", "grammar": "longer", "tokens": [], "verdict": "unsound"},
        {"name": "e", "kind": "emptied", "grammar": "long", "tokens": [], "verdict": "unsound"},
    ]
    found = field.of(tokenizers, table("reproducers", *(who | proof for proof in proofs)))
    [row] = found.to_dicts()
    assert (row["version"], row["grammar"], row["reason"]) == ("1.2", "long", None)
    assert "noamgat/lm-format-enforcer#92" in row["known"]
    assert found.schema == schemas.SCHEMAS["field"]


def test_a_refusal_keeps_its_release_and_has_no_proof() -> None:
    refused = {"builder": "lmfe", "tokenizer": "t", "status": "builder_refused"}
    refused |= {"made_by": "lm-format-enforcer 0.11.3", "reason": "lm-format-enforcer 0.11.3: no"}
    [row] = field.of(table("tokenizers", refused), table("reproducers")).to_dicts()
    assert (row["version"], row["status"]) == ("0.11.3", "builder_refused")
    assert (row["n_wrong"], row["file"], row["known"]) == (None, None, None)


def test_issues_are_links_and_words_are_not() -> None:
    assert list(field.links("dottxt-ai/outlines#820, by its use")) == [
        ("dottxt-ai/outlines#820", "https://github.com/dottxt-ai/outlines/issues/820"),
        ("by its use", ""),
    ]
    assert list(field.links(None)) == []


def test_a_run_of_before_has_an_empty_field(tmp_path: Path) -> None:
    """Its tables are read as today's, with nothing in the columns that came later."""
    for name in ("tokenizers", "reproducers"):
        tables.write(table(name), tmp_path / f"{name}.parquet")
    assert tables.derive_field(tmp_path) == 0
    assert tables.read(tmp_path, "field").height == 0
