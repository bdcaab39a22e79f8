"""The table `field`, and its reproducers: the command of each one shows its fault."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from pipeline.__main__ import main
from pipeline.audit.masks import FAULTS
from pipeline.engines import builders
from pipeline.model.names import Row
from pipeline.results.tables import parquet, released, schemas
from support import report_runs
from support.command import ROOT, Finished, pipeline, rerun_arguments
from support.vocabularies import present

FAULT_NAMES = [verdict.value for verdict in FAULTS]
WRONG = ("unfixed", "lmfe", "outlines", "xgrammar_byte_level")
"""Builders that enter tokens of llama_spm with wrong bytes."""


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """An audit of wrong builders without walks: reproducers are made from the wrong tokens only."""
    done = pipeline(
        tmp_path_factory.mktemp("field"),
        "audit",
        "tokenizer=llama_spm",
        f"builder=[{','.join([*present(builders.get, *WRONG), 'fixed'])}]",
        "audit.walks=0",
        "audit.strings_suite=null",
    )
    assert done.code == 0, done.err
    return done


def test_every_wrong_row_has_a_mask_that_shows_it(audited: Finished) -> None:
    """Also for tokens that no walk reached, such as half characters, which few grammars use."""
    rows = audited.table("field")
    assert set(rows["builder"]) == {*present(builders.get, *WRONG), "fixed"}
    wrong = rows.filter(pl.col("n_wrong") > 0)
    assert set(wrong["builder"]) == set(present(builders.get, *WRONG))
    for row in wrong.iter_rows(named=True):
        assert row["verdict"] in FAULT_NAMES, row["builder"]
        assert row["true"] != row["claimed"]
        document = yaml.safe_load((audited.folder / row["file"]).read_text("utf-8"))
        assert document["cases"][0]["tokens"] == [*row["tokens"], row["ids"][0]]
    [right] = rows.filter(builder="fixed").to_dicts()
    assert (right["n_wrong"], right["status"], right["file"]) == (0, "ok", None)


def test_each_kind_of_damage_has_its_reproducer(audited: Finished) -> None:
    """One for each builder and each kind of damage to tokens that a runtime renders."""
    rendered = ~pl.col("attribute").is_in(["CONTROL", "UNKNOWN"])
    there = audited.table("tokens").filter(rendered & (pl.col("true") != pl.col("claimed")))
    shown = audited.table("reproducers")
    for builder in present(builders.get, *WRONG):
        kinds = set(there.filter(builder=builder)["damage"])
        assert kinds <= set(shown.filter(builder=builder)["kind"]), builder


def test_every_reproducer_shows_its_fault_and_is_clean_under_fixed(
    audited: Finished, tmp_path: Path
) -> None:
    """The command in its first line is run for the builder and for `fixed`."""
    rows = audited.table("reproducers").unique(["verdict", "kind"], maintain_order=True)
    assert rows.height >= 4
    for number, row in enumerate(rows.iter_rows(named=True)):
        path = audited.folder / row["file"]
        first = path.read_text("utf-8").partition("\n")[0]
        assert first == f"# {row['command']}"
        arguments = rerun_arguments(audited, row)
        arguments.remove(f"builder={row['builder']}")
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
    done = pipeline(tmp_path, *rerun_arguments(audited, row))
    assert done.code == 0, done.err
    proved = done.out.partition("Masks against the byte oracle")[2]
    [shown] = [line for line in proved.splitlines() if line.startswith("  llama_spm  unfixed")]
    assert row["verdict"] in shown


# --- the table ------------------------------------------------------------------------------------


def table(name: str, *rows: Row) -> pl.DataFrame:
    return pl.DataFrame([*rows], schema=schemas.SCHEMAS[name])


def test_the_smallest_proof_stands_for_a_row() -> None:
    """Fewest tokens to take first, then the worst verdict, then the shortest grammar.

    Reproducers of faults that are not in the bytes, such as `special`, do not count.
    """
    who: Row = {"builder": "lmfe", "tokenizer": "t"}
    tokenizers = table(
        "tokenizers",
        who
        | {"status": "ok", "n_normal": 9, "n_normal_wrong": 2, "made_by": "x 1.2", "reason": ""},
    )
    proofs: list[Row] = [
        {"name": "a", "kind": "special", "grammar": "s", "tokens": []},
        {"name": "b", "kind": "other", "grammar": "s", "tokens": [1], "verdict": "unsound"},
        {"name": "c", "kind": "other", "grammar": "s", "tokens": [], "verdict": "incomplete"},
        {"name": "d", "kind": "other", "grammar": "longer", "tokens": [], "verdict": "unsound"},
        {"name": "e", "kind": "emptied", "grammar": "long", "tokens": [], "verdict": "unsound"},
    ]
    found = released.of(tokenizers, table("reproducers", *(who | proof for proof in proofs)))
    [row] = found.to_dicts()
    assert (row["version"], row["grammar"], row["reason"]) == ("1.2", "long", None)
    assert "noamgat/lm-format-enforcer#92" in row["known"]
    assert found.schema == schemas.SCHEMAS["field"]


def test_a_refusal_keeps_its_release_and_has_no_proof() -> None:
    refused: Row = {"builder": "lmfe", "tokenizer": "t", "status": "builder_refused"}
    refused |= {"made_by": "lm-format-enforcer 0.11.3", "reason": "lm-format-enforcer 0.11.3: no"}
    [row] = released.of(table("tokenizers", refused), table("reproducers")).to_dicts()
    assert (row["version"], row["status"]) == ("0.11.3", "builder_refused")
    assert (row["n_wrong"], row["file"], row["known"]) == (None, None, None)


def test_issues_are_links_and_words_are_not() -> None:
    assert list(released.links("dottxt-ai/outlines#820, by its use")) == [
        ("dottxt-ai/outlines#820", "https://github.com/dottxt-ai/outlines/issues/820"),
        ("by its use", ""),
    ]
    assert list(released.links(None)) == []


def test_a_run_of_before_has_an_empty_field(tmp_path: Path) -> None:
    """Tables without rows give an empty table `field`."""
    for name in ("tokenizers", "reproducers"):
        parquet.write(table(name), tmp_path / f"{name}.parquet")
    assert parquet.derive_field(tmp_path) == 0
    assert parquet.read(tmp_path, "field").height == 0


# --- the script -----------------------------------------------------------------------------------


def script() -> Any:
    """`scripts/field_report.py` as a module."""
    spec = importlib.util.spec_from_file_location("f", ROOT / "scripts" / "field_report.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def release(folder: Path, version: str, **values: object) -> Path:
    """An audit of one release of lm-format-enforcer, which has wrong tokens on llama_spm."""
    file = f"reproducers/llama_spm-lmfe-{version}-unsound-other.yaml"
    proof: dict[str, Any] = {"builder": "lmfe", "tokenizer": "llama_spm", "verdict": "unsound"}
    proof |= {"grammar": "start: /(\ufffd||z)/", "tokens": [], "ids": [131, 132, 133, 134]}
    proof |= {"true": b"\x80", "claimed": "\ufffd".encode(), "file": file}
    told = {"name": "unsound-other", "kind": "other", "suite_file": version, "report": "why"}
    found = {
        "field": [
            report_runs.row("field", version=version, n_wrong=128, status="ok", **(proof | values)),
            report_runs.row(
                "field", builder="fixed", tokenizer="llama_spm", n_wrong=0, status="ok"
            ),
        ],
        "reproducers": [report_runs.row("reproducers", **(proof | told))],
    }
    return report_runs.made(folder, found)


def test_the_audits_of_all_releases_are_one_run_to_report_on(tmp_path: Path) -> None:
    """One command makes the report from the files that the script writes."""
    known = "dottxt-ai/outlines#820, by its use"
    audits = [
        release(tmp_path / "here", "0.11.3", known=known),
        release(tmp_path / "other0", "0.10.0"),
    ]
    made_here = script()
    rows = made_here.together(audits, ["xgrammar"], tmp_path)
    told = rows.select("builder", "version", "status").rows()
    assert told == [
        ("lmfe", "0.10.0", "ok"),
        ("lmfe", "0.11.3", "ok"),
        ("xgrammar", None, "not_installed"),
        ("fixed", None, "ok"),
    ]
    for version in ("0.10.0", "0.11.3"):
        name = f"llama_spm-lmfe-{version}-unsound-other"
        assert (tmp_path / "reproducers" / f"{name}.yaml").read_text() == version
        assert (tmp_path / "reproducers" / f"{name}.md").read_text() == "why"
    lines = list(made_here.markdown(rows))
    assert "| lmfe | 0.11.3 | 128 |" in lines
    assert "| xgrammar | not installed | - |" in lines
    [shown] = [line for line in lines if line.startswith("| lmfe 0.11.3 | llama_spm |")]
    cells = shown.replace("\\|", "¦").split(" | ")
    assert cells[2:6] == [
        "`start: /(\\ufffd¦¦z)/`: unsound",
        "131, 132, 133, …",
        "`'\\x80'`",
        "`'\\ufffd'`",
    ]
    assert "[dottxt-ai/outlines#820](https://github.com/dottxt-ai/outlines/issues/820)" in shown

    assert main(["report", f"run={tmp_path}", f"results_dir={tmp_path}"]) == 0
    page = (tmp_path / "report" / "field.html").read_text("utf-8")
    assert "2 of 4 token tables, of 4 builders and releases" in " ".join(page.split())
    assert "0.10.0" in page
