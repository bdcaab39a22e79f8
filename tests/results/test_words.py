"""One vocabulary: every word in a table belongs to the closed type of its column."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

from pipeline.model import verdicts
from pipeline.results.tables import parquet, renames, schemas
from pipeline.results.tables.words import WORDS
from pipeline.runs.parent import row_check
from support.command import ROOT

FIXTURES = ROOT / "tests" / "fixtures"

JUDGED = {"verdict", "cause", "ended", "status", "split", "damage", "origin", "kind", "class"}
"""Columns that hold words of a closed type, whichever table they are in."""


def test_every_judging_column_has_its_type() -> None:
    named = {(t, c) for t, columns in schemas.SCHEMAS.items() for c in columns if c in JUDGED}
    assert named <= WORDS.keys()
    for table, column in WORDS:
        assert schemas.SCHEMAS[table][column] == pl.String()


SAME = {
    **dict.fromkeys(
        (
            "crashed",
            "timeout",
            "busy",
            "load_refused",
            "builder_refused",
            "grammar_error",
            "no_stop",
        ),
        "what became of a unit: a cell, a text, a table",
    ),
    "ok": "there is no fault",
    "exact": "nothing differs",
    "inexact": "the bytes differ",
    "thrown": "there are no tokens: the tokenization failed",
    "greedy": "the longest token at each place",
    "stop_id": "a token was chosen on which the runtime stops",
    "empty_mask": "no token was allowed",
    "masked": "the mask does not allow the token",
    "consume": "the mask allows the token, and it is refused when it is consumed",
    "not_accepting": "all tokens are taken, and the text is not complete",
    "checker_disagrees": "the grammar accepts the text, the independent checker does not",
    "forced": "the only token that the grammar and the builder's tokenization allow",
    "special": "special tokens and ids on which the runtime stops",
    "other": "none of those that have a name",
    "none": "there is nothing to name",
    "refused": "a server or its model said that it will not do what was asked",
    "ignored": "the runtime ignores the grammar",
    "unknown": "it is not known",
    "added": "after, and not before",
    "removed": "before, and not after",
}
"""Words that several types have, and the one thing that each means."""


def test_a_word_of_several_types_means_one_thing() -> None:
    """Another meaning needs another word: `refused` was a server's answer and a token's fate."""
    kinds = [kind for kind in vars(verdicts).values() if isinstance(kind, type(verdicts.Verdict))]
    words = Counter(word.value for kind in kinds for word in kind)
    assert {word for word, n in words.items() if n > 1} == SAME.keys()


@pytest.mark.parametrize("version", range(1, schemas.SCHEMA_VERSION + 1))
def test_tables_of_every_version_hold_only_known_words(version: int) -> None:
    """Tables of older versions are converted first."""
    looked = 0
    for run in FIXTURES.glob(f"run_v{version}*"):
        for file in run.glob("*.parquet"):
            data = parquet.read(run, file.stem)
            for (table, column), words in WORDS.items():
                if table == file.stem:
                    looked += data.height
                    assert set(data[column].drop_nulls()) <= words, (table, column)
    assert looked > 100


def test_an_unknown_word_from_a_worker_is_refused() -> None:
    row = dict.fromkeys(schemas.SCHEMAS["walks"]) | {"tokenizer": "t", "ended": "stop_id"}
    assert row_check.misfit({"table": "walks", "rows": [row]}) is None
    for column, word in (("ended", "crashed"), ("verdict", "crashed"), ("status", "all")):
        said = row_check.misfit({"table": "walks", "rows": [row | {column: word}]})
        assert said == f'walks.{column} is "{word}"'


# --- what was renamed -----------------------------------------------------------------------------

CHOSEN = ["walk", "grammar", "n_steps", "ended", "verdict", "objection", "status", "reason"]


def version_1(table: str, *rows: Mapping[str, object]) -> pl.DataFrame:
    """Rows of a table of version 1, converted."""
    later = {
        "walks": ("status", "reason"),
        "prefix": ("status",),
        "engines": ("status",),
        "strings": ("reason",),
    }
    schema = {
        name: kind
        for name, kind in schemas.SCHEMAS[table].items()
        if name not in later.get(table, ())
    }
    whole = [{name: row.get(name) for name in schema} for row in rows]
    return renames.from_1_to_2(table, pl.LazyFrame(whole, schema=schema)).collect()


def test_a_failure_is_moved_out_of_columns_with_another_meaning() -> None:
    """Version 1 wrote `walk="all"`, `ended="crashed"`, and the reason in the column `objection`."""
    died = {"walk": "all", "grammar": "", "n_steps": 0, "ended": "crashed", "verdict": "crashed"}
    right = {"walk": "0001-uniform", "grammar": "s/c", "n_steps": 0, "ended": "refused"}
    made = version_1(
        "walks",
        died | {"objection": "it died"},
        right | {"verdict": "exact", "objection": "not JSON"},
    )
    assert made.select(CHOSEN).rows() == [
        (None, None, None, None, None, None, "crashed", "it died"),
        ("0001-uniform", "s/c", 0, "consume", "exact", "not JSON", "ok", ""),
    ]


def test_a_failure_of_an_engine_has_its_own_column() -> None:
    """A grammar that does not compile has a row with its walk. A crashed engine has no walk."""
    here = {"walk": "0001-uniform", "grammar": "s/c", "step": 0}
    none = {"walk": "", "grammar": "", "step": 0}
    made = version_1(
        "engines",
        none | {"verdict": "builder_refused"},
        here | {"verdict": "grammar_error"},
        here | {"verdict": "exact"},
    )
    assert made.select("walk", "grammar", "step", "verdict", "status").rows() == [
        (None, None, None, None, "builder_refused"),
        ("0001-uniform", "s/c", 0, None, "grammar_error"),
        ("0001-uniform", "s/c", 0, "exact", "ok"),
    ]


def test_a_failure_of_the_prefix_has_its_own_column() -> None:
    """The empty text is also a probe, and `none of them` can be a valid answer."""
    made = version_1(
        "prefix",
        {"text": "", "implementation": "", "scheme": "timeout", "reason": "late"},
        {"text": "", "implementation": "byte-exact", "scheme": "none of them", "reason": "NaN"},
        {"text": "", "implementation": "llama.cpp", "scheme": "none of them", "reason": ""},
        {"text": "a", "implementation": "llama.cpp", "scheme": "once", "reason": ""},
    )
    assert made.select("text", "implementation", "scheme", "status").rows() == [
        (None, None, None, "timeout"),
        (None, "byte-exact", None, "load_refused"),
        ("", "llama.cpp", "none of them", "ok"),
        ("a", "llama.cpp", "once", "ok"),
    ]


@pytest.mark.parametrize("word", renames.WORDS_1_TO_2, ids=lambda w: f"{w.table}.{w.column}")
def test_every_renamed_word_is_converted_and_known(word: renames.Word) -> None:
    column = version_1(word.table, {word.column: word.old})[word.column]
    assert column.to_list() == [word.new]
    known = WORDS.get((word.table, word.column))
    assert known is None or (word.new in {*known, None} and word.old not in known)


def test_changelog_lists_every_rename_and_no_other() -> None:
    def shown(word: str | None) -> str:
        return "null" if word is None else f"`{word}`" if word else "empty"

    wanted = [
        *((w.table, w.column, shown(w.old), shown(w.new)) for w in renames.WORDS_1_TO_2),
        *(
            (m.table, m.column, m.changelog, f"in the new column `{m.new_column}`")
            for m in renames.MOVED_1_TO_2
        ),
        *(
            (e.table, e.column, f"{e.changelog}, without a result", "null")
            for e in renames.EMPTIED_1_TO_2
        ),
    ]
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    head = "| table | column | old | new |\n|---|---|---|---|\n"
    found = text.partition(head)[2].partition("\n\n")[0].splitlines()
    assert found == [f"| `{table}` | `{column}` | {a} | {b} |" for table, column, a, b in wanted]


@pytest.mark.parametrize("table", ["walks", "engines", "prefix", "replay"])
def test_converted_version_1_tables_equal_new_ones(table: str) -> None:
    """The fixtures come from the same commands, with the same worker killed, in both releases."""
    then, now = (
        parquet.read(FIXTURES / f"run_v{version}_failed", table).drop(renames.PROSE, strict=False)
        for version in (1, 2)
    )
    assert then.equals(now)
    assert then.height > 0


def test_only_tables_with_renames_are_converted() -> None:
    renamed = {
        one.table for one in (*renames.WORDS_1_TO_2, *renames.MOVED_1_TO_2, *renames.EMPTIED_1_TO_2)
    }
    assert "cells" not in renamed, "a baseline's verdicts would have to be converted, too"
    for table in schemas.SCHEMAS.keys() - renamed:
        data = pl.LazyFrame(schema=schemas.SCHEMAS[table])
        assert renames.from_1_to_2(table, data) is data


# --- no word is compared as a bare string ---------------------------------------------------------

_PLAIN = {"ok", "exact", "inexact", "unsound", "incomplete", "disagrees", "agrees", "thrown"}
"""Words without an underscore that have no other meaning in these packages.

All words with an underscore count."""
_COLUMNS = {column for columns in schemas.SCHEMAS.values() for column in columns}
_DATA = {"renames.py": "words of older versions", "special_tokens.py": "a text, ok"}
"""Files that use such words for another reason."""


def _words() -> set[str]:
    found: set[str] = set()
    for kind in vars(verdicts).values():
        if isinstance(kind, type) and issubclass(kind, verdicts.StrEnum):
            found |= {word.value for word in kind}
    return {word for word in found if "_" in word or word in _PLAIN} - _COLUMNS


_TOLD = {"verdict", "cause", "ended", "split", "damage", "origin", "engine_free"}
"""Names that always mean a word of a table."""
_JUDGED = JUDGED | {"engine_free", "strategy", "tokenize", "change", "verdict_after"}


def _judged(node: ast.AST) -> bool:
    """Whether an expression names a column of words: `row["verdict"]`, `pl.col(…)`, `x.verdict`."""
    match node:
        case ast.Name(name) | ast.Attribute(_, name):
            return name in _TOLD
        case ast.Subscript(_, ast.Constant(name)):
            return name in _JUDGED
        case ast.Call(ast.Attribute(_, "col"), [ast.Constant(name), *_]):
            return name in _JUDGED
        case _:
            return False


def _literals(node: ast.AST) -> list[ast.Constant]:
    """The strings of an expression, without names of columns."""
    match node:
        case ast.Constant(str()):
            return [node]
        case ast.Subscript() | ast.Call(ast.Attribute(_, "col"), _) | ast.JoinedStr():
            return []
        case _:
            return [leaf for part in ast.iter_child_nodes(node) for leaf in _literals(part)]


def _bare_of_columns(path: Path) -> list[str]:
    """All strings that a column of words is compared with."""
    found: list[ast.Constant] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        parts: list[ast.AST] = []
        match node:
            case ast.Compare(left, _, others):
                parts = [left, *others]
            case ast.Call(ast.Attribute(of, "is_in" | "ne_missing" | "eq_missing"), arguments):
                parts = [of, *arguments]
            case ast.Match(subject, cases):
                parts = [subject, *(case.pattern for case in cases)]
            case ast.Call(ast.Attribute(_, "filter"), _, keywords):
                for keyword in keywords:
                    found += _literals(keyword.value) if keyword.arg in _JUDGED else []
            case _:
                pass
        if any(_judged(leaf) for part in parts for leaf in ast.walk(part)):
            found += [leaf for part in parts for leaf in _literals(part)]
    return [f"{path.name}:{leaf.lineno}: {leaf.value}" for leaf in found]


def _bare(path: Path) -> list[str]:
    """Literal words in comparisons, filters, compared containers, and keys of `get`."""
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


@pytest.mark.parametrize("package", ["audit", "generation", "results", "runs", "cli"])
def test_no_column_of_words_is_compared_with_a_string(package: str) -> None:
    files = (ROOT / "pipeline" / package).rglob("*.py")
    assert [line for file in files for line in _bare_of_columns(file)] == []


def test_these_laws_find_bare_words(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text('x = rows.filter(verdict="ok"), a == "builder_refused"', "utf-8")
    assert len(_bare(bad)) == 2
    bad.write_text(
        """
x = rows.filter(cause="builder"), row["status"] != "x", pl.col("ended").is_in(["a", "b"])
x = walk.ended == "stop", "damage" in row, row["damage"] is None, pl.col("split") != other
match row["verdict"]:
    case "no":
        pass
""",
        "utf-8",
    )
    found = [line.rpartition(": ")[2] for line in _bare_of_columns(bad)]
    assert sorted(found) == ["a", "b", "builder", "no", "stop", "x"]
