"""One vocabulary: every word of every table is one of its column's closed type."""

from __future__ import annotations

import ast
from pathlib import Path

import polars as pl
import pytest

from pipeline.model import verdicts
from pipeline.results.tables import parquet, renames, schemas
from pipeline.results.tables.words import WORDS
from pipeline.runs.parent import row_check
from support.command import ROOT

FIXTURES = ROOT / "tests" / "fixtures"
NEWEST = FIXTURES / f"run_v{schemas.SCHEMA_VERSION}"

JUDGED = {"verdict", "cause", "ended", "status", "split", "damage", "origin", "kind", "class"}
"""Columns that hold words of a closed type, whichever table they are in."""


def test_every_judging_column_has_its_type() -> None:
    named = {(t, c) for t, columns in schemas.SCHEMAS.items() for c in columns if c in JUDGED}
    assert named <= WORDS.keys()
    for table, column in WORDS:
        assert schemas.SCHEMAS[table][column] == pl.String()


@pytest.mark.parametrize("version", range(1, schemas.SCHEMA_VERSION + 1))
def test_tables_of_every_version_hold_known_words_alone(version: int) -> None:
    """Those of older versions once they are converted."""
    looked = 0
    for run in FIXTURES.glob(f"run_v{version}*"):
        for file in run.glob("*.parquet"):
            data = parquet.read(run, file.stem)
            for (table, column), words in WORDS.items():
                if table == file.stem:
                    looked += data.height
                    assert set(data[column].drop_nulls()) <= words, (table, column)
    assert looked > 100


def test_a_word_that_is_none_of_its_column_is_refused_from_a_worker() -> None:
    row = dict.fromkeys(schemas.SCHEMAS["walks"]) | {"tokenizer": "t", "ended": "stop_id"}
    assert row_check.misfit({"table": "walks", "rows": [row]}) is None
    for column, word in (("ended", "crashed"), ("verdict", "crashed"), ("status", "all")):
        said = row_check.misfit({"table": "walks", "rows": [row | {column: word}]})
        assert said == f'walks.{column} is "{word}"'


# --- what was renamed -----------------------------------------------------------------------------


def _version_1(table: str, rows: list[dict[str, object]]) -> pl.LazyFrame:
    return pl.LazyFrame(rows, schema_overrides={"ended": pl.String(), "objection": pl.String()})


def test_a_failure_leaves_the_columns_that_mean_something_else() -> None:
    """`walk="all"`, `ended="crashed"` and a reason as the checker's objection, in version 1."""
    rows: list[dict[str, object]] = [
        {"walk": "all", "ended": "crashed", "verdict": "crashed", "objection": "it died"},
        {"walk": "0001-uniform", "ended": "refused", "verdict": "exact", "objection": "not JSON"},
    ]
    made = renames.from_1_to_2("walks", _version_1("walks", rows)).collect()
    assert made.select("walk", "ended", "verdict", "objection", "status", "reason").rows() == [
        ("", None, None, None, "crashed", "it died"),
        ("0001-uniform", "consume", "exact", "not JSON", "ok", ""),
    ]


@pytest.mark.parametrize(("table", "column"), [("prefix", "scheme"), ("engines", "verdict")])
def test_a_failure_has_its_own_column(table: str, column: str) -> None:
    right = {"prefix": "once", "engines": "exact"}[table]
    old = pl.LazyFrame({column: ["timeout", right, None], "reason": ["late", "", ""]})
    made = renames.from_1_to_2(table, old).collect()
    assert made[column].to_list() == [None, right, None]
    assert made["status"].to_list() == ["timeout", "ok", "ok"]


def test_every_renamed_word_is_converted_and_known() -> None:
    for word in renames.WORDS_1_TO_2:
        old = pl.LazyFrame({word.column: [word.old], "objection": [None], "walk": ["w"]})
        if word.column != "ended":
            old = old.with_columns(ended=pl.lit("stop_id"))
        made = renames.from_1_to_2(word.table, old).collect()
        assert made[word.column].to_list() == [word.new]
        assert word.new in WORDS[word.table, word.column]
        assert word.old not in WORDS[word.table, word.column]


def test_changelog_has_every_rename() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    for word in renames.WORDS_1_TO_2:
        assert f"| `{word.table}` | `{word.column}` | `{word.old}` | `{word.new}` |" in text
    for moved in renames.MOVED_1_TO_2:
        assert f"| `{moved.table}` | `{moved.column}` | `crashed`, `timeout`, … | " in text


# --- no word is compared as a bare string ---------------------------------------------------------

_PLAIN = {"ok", "exact", "inexact", "unsound", "incomplete", "disagrees", "agrees", "thrown"}
"""Words of one part that mean nothing else in these packages; those of several parts all count."""
_COLUMNS = {column for columns in schemas.SCHEMAS.values() for column in columns}
_DATA = {"renames.py": "words of older versions", "special_tokens.py": "a text, ok"}
"""Files that hold such words for another reason."""


def _words() -> set[str]:
    found: set[str] = set()
    for kind in vars(verdicts).values():
        if isinstance(kind, type) and issubclass(kind, verdicts.StrEnum):
            found |= {word.value for word in kind}
    return {word for word in found if "_" in word or word in _PLAIN} - _COLUMNS


def _bare(path: Path) -> list[str]:
    """Words as literals in comparisons, filters, containers of comparisons and keys of `get`."""
    tree, words, found = ast.parse(path.read_text("utf-8")), _words(), list[str]()
    for node in ast.walk(tree):
        looked: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            looked = [node.left, *node.comparators]
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name in {"filter", "is_in", "get", "ne_missing", "eq_missing"}:
                looked = [*node.args, *(keyword.value for keyword in node.keywords)]
        for part in looked:
            for leaf in ast.walk(part):
                if isinstance(leaf, ast.Constant) and leaf.value in words:
                    found.append(f"{path.name}:{leaf.lineno}: {leaf.value}")
    return found


@pytest.mark.parametrize("package", ["audit", "generation", "results", "runs", "cli"])
def test_no_word_is_compared_as_a_bare_string(package: str) -> None:
    files = (ROOT / "pipeline" / package).rglob("*.py")
    assert [line for file in files if file.name not in _DATA for line in _bare(file)] == []


def test_that_law_finds_a_bare_word(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        'x = rows.filter(verdict="ok"), a == "builder_refused"', "utf-8"
    )
    assert len(_bare(tmp_path / "bad.py")) == 2
