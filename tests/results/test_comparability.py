"""`compare`: the embedded matrix, and every unusual pair of sides with its own outcome."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.model.verdicts import BADNESS, Verdict
from pipeline.results.compare.side import SideRequest, load
from pipeline.results.tables import parquet, schemas
from support import compare_runs
from support.compare_runs import FIXTURES, copied, failing, made, matrix
from support.comparisons import Out, both, builders, compared, ran

matrix_run = compare_runs.matrix_run

# ── the embedded matrix ─────────────────────────────────────────────────────────────────────────


def test_unfixed_to_fixed_lists_every_flip_and_exits_0(capsys: Out) -> None:
    cells = parquet.read(matrix(), "cells")
    wrong = cells.filter((pl.col("builder") == "unfixed") & (pl.col("verdict") != "ok"))
    assert cells.filter(builder="fixed")["verdict"].unique().to_list() == ["ok"]
    code, out, _ = ran(capsys, *builders("unfixed", "fixed"))
    assert code == 0
    assert f"Fixed ({wrong.height})" in out
    for suite, case, verdict in wrong.select("suite", "case", "verdict").iter_rows():
        assert re.search(rf"{verdict} \(\w+\) → ok  tiny/mistral_v1 {suite}/{case}\n", out)
    assert "PASS" in out


def test_fixed_to_unfixed_exits_1_worst_first_and_names_the_tokens(capsys: Out) -> None:
    code, out, _ = ran(capsys, *builders("fixed", "unfixed"))
    assert code == 1
    verdicts = re.findall(r"ok → (\w+)", out)
    assert len(verdicts) == 39
    badness = [BADNESS[Verdict(verdict)] for verdict in verdicts]
    assert badness == sorted(badness, reverse=True)
    assert "enum/founding" in out.split("ok → ")[1]  # the founding case first
    assert """token 9830 ' {"' (the table says '{"')""" in out
    assert "15763 ids: 35 ' ' (right → claimed '')" in out
    assert "bad_ids worse: 6312 ' hell'" in out


def test_a_repeated_run_has_no_changes(tmp_path: Path, capsys: Out) -> None:
    code, out, _ = ran(capsys, *both(matrix(), copied(tmp_path / "again")), "fail_on=any_change")
    assert code == 0
    assert out.startswith("Versions: the same on both sides.")
    assert "nothing changed" in out


# ── every unusual pair of sides ─────────────────────────────────────────────────────────────────


def test_removed_case_is_a_regression(tmp_path: Path, capsys: Out) -> None:
    less = copied(tmp_path / "less", lambda cells: cells.filter(pl.col("case") != "emoji"))
    code, out, _ = ran(capsys, *both(matrix(), less))
    assert code == 1
    assert "Removed (6)" in out and "ok → missing" in out
    code, out, _ = ran(capsys, *both(matrix(), less), "allow=[cases]")
    assert code == 0
    assert "Removed (6)" in out


def test_added_case_is_named_and_no_regression(tmp_path: Path, capsys: Out) -> None:
    less = copied(tmp_path / "less", lambda cells: cells.filter(pl.col("case") != "emoji"))
    code, out, _ = ran(capsys, *both(less, matrix()))
    assert code == 0
    assert "Added (6)" in out
    assert ran(capsys, *both(less, matrix()), "fail_on=any_change")[0] == 1


def test_renamed_builder_gives_a_hint_and_can_be_compared(tmp_path: Path, capsys: Out) -> None:
    def rename(rows: pl.DataFrame) -> pl.DataFrame:
        key = pl.col("cell_key").str.replace("/fixed/", "/mended/", literal=True)
        return rows.with_columns(pl.col("builder").replace("fixed", "mended"), cell_key=key)

    run = copied(tmp_path / "renamed", rename)
    code, out, _ = ran(capsys, *both(matrix(), run))
    assert code == 1
    assert "builder fixed is only in the first side and builder mended only in the second" in out
    assert "before.builder=fixed after.builder=mended" in out
    follow = ["before.builder=fixed", "after.builder=mended"]
    code, out, _ = ran(capsys, *both(matrix(), run), *follow, "allow=[cases]")
    assert code == 0
    assert "40 still passing" in out


def test_another_suite_hash_is_refused_with_the_case_named(tmp_path: Path, capsys: Out) -> None:
    changed = pl.when(case="emoji").then(pl.lit("other")).otherwise("case_hash")
    run = copied(tmp_path / "other", lambda cells: cells.with_columns(case_hash=changed))
    code, out, err = ran(capsys, *both(matrix(), run))
    assert (code, out) == (2, "")
    assert "suites: 3 cases with different definitions: enum/emoji, forced_literal/emoji" in err
    assert "allow=[suites]" in err
    code, out, _ = ran(capsys, *both(matrix(), run), "allow=[suites]")
    assert code == 0
    assert "Allowed differences:\n  suites: 3 cases" in out


@pytest.mark.parametrize(
    ("kind", "column"),
    [("vocabulary", "vocab_hash"), ("model", "model_sha256"), ("settings", "seed")],
)
def test_another_vocabulary_model_or_seed_is_refused(
    kind: str, column: str, tmp_path: Path, capsys: Out
) -> None:
    def edit(cells: pl.DataFrame) -> pl.DataFrame:
        return cells.with_columns(pl.lit("7").cast(cells.schema[column]).alias(column))

    run = copied(tmp_path / "other", edit)
    code, _, err = ran(capsys, *both(matrix(), run))
    assert code == 2
    assert f"  {kind}: " in err and f"allow=[{kind}]" in err
    assert ran(capsys, *both(matrix(), run), f"allow=[{kind}]")[0] == 0


def test_other_settings_are_refused_by_their_key(tmp_path: Path, capsys: Out) -> None:
    settings = json.loads((matrix() / "manifest.json").read_text())["settings"]
    settings["engine"]["on_error"] = "stop"
    run = copied(tmp_path / "other", manifest={"settings": settings})
    code, _, err = ran(capsys, *both(matrix(), run))
    assert code == 2
    assert "settings: engine.on_error was drop, is stop" in err


def test_truncated_parquet_is_refused(tmp_path: Path, capsys: Out) -> None:
    run = copied(tmp_path / "cut")
    path = run / "cells.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    code, _, err = ran(capsys, *both(matrix(), run))
    assert code == 2
    assert "cells.parquet is damaged or truncated" in err


def test_damage_inside_a_table_is_refused_too(tmp_path: Path, capsys: Out) -> None:
    """The footer of the Parquet file is intact; its data pages are not."""
    run = copied(tmp_path / "torn")
    for table in ("steps", "cells"):
        path = run / f"{table}.parquet"
        data = bytearray(path.read_bytes())
        data[4:3000] = bytes(2996)
        path.write_bytes(data)
        arguments = [f"run={run}", "before.builder=unfixed", "after.builder=fixed"]
        code, _, err = ran(capsys, *arguments)
        assert code == 2
        assert f"{table}.parquet is damaged" in err


def test_run_without_a_manifest_is_refused(tmp_path: Path, capsys: Out) -> None:
    run = copied(tmp_path / "open")
    (run / "manifest.json").unlink()
    code, _, err = ran(capsys, *both(matrix(), run))
    assert code == 2
    assert "no manifest (manifest.json)" in err


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"status": "interrupted"}, "is interrupted, not complete"),
        ({"rows": {"cells": 79}}, "cells.parquet holds 80 rows, its manifest says 79"),
        ({"rows": {"cells": 80, "masks": 9, "tokenizers": 2}}, "masks.parquet holds 4 rows"),
        ({"rows": None}, "not complete"),
        ({"schema_version": "new"}, "schema version new"),
    ],
)
def test_run_that_contradicts_its_manifest_is_refused(
    manifest: dict[str, Any], said: str, tmp_path: Path, capsys: Out
) -> None:
    code, _, err = ran(capsys, *both(matrix(), copied(tmp_path / "odd", manifest=manifest)))
    assert code == 2
    assert said in err


def test_another_schema_version_is_refused_with_both_named(tmp_path: Path, capsys: Out) -> None:
    newer = schemas.SCHEMA_VERSION + 1
    run = copied(tmp_path / "newer", manifest={"schema_version": newer})
    code, _, err = ran(capsys, *both(matrix(), run))
    assert code == 2
    assert f"schema version {newer}" in err and f"reads version {schemas.SCHEMA_VERSION}" in err


def test_an_older_schema_version_is_converted(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(table: str, data: pl.LazyFrame) -> pl.LazyFrame:
        verdict = pl.col("verdict").str.replace("ok", "truncated")
        return data.with_columns(verdict) if table == "cells" else data

    old = copied(tmp_path / "old", lambda cells: cells)
    monkeypatch.setattr(schemas, "SCHEMA_VERSION", schemas.SCHEMA_VERSION + 1)
    assert ran(capsys, *both(matrix(), old))[0] == 2
    monkeypatch.setitem(schemas.MIGRATIONS, schemas.SCHEMA_VERSION - 1, step)
    verdicts = load(SideRequest(str(old)), Path()).cells["verdict"]
    assert "ok" not in verdicts and "truncated" in verdicts


@pytest.mark.parametrize("version", range(1, schemas.SCHEMA_VERSION + 1))
def test_runs_of_every_schema_version_stay_readable(version: int) -> None:
    """`tests/fixtures/run_vN` is a real run; each new schema version needs one."""
    run = FIXTURES / f"run_v{version}"
    held = json.loads((run / "manifest.json").read_text("utf-8"))["rows"]
    assert {"cells", "steps", "tokenizers", "tokens", "masks"} <= held.keys()
    for table in held:
        data = parquet.read(run, table)
        assert data.height, table
        assert schemas.SCHEMAS[table].items() <= data.schema.items()
    cells = load(SideRequest(str(run)), Path()).cells
    assert cells.filter(builder="fixed")["verdict"].unique().to_list() == ["ok"]
    steps = parquet.read(run, "steps").filter(
        builder="unfixed", suite="forced_literal", case="founding", step=0
    )
    assert steps.select("token", "true", "claimed").row(0) == (415, b" The", b"The")


def test_a_column_missing_in_an_older_run_is_null(tmp_path: Path) -> None:
    """Field case U-32: the union of the columns, with missing values filled with null."""
    run = copied(tmp_path / "early", lambda cells: cells.drop("case_hash"))
    assert parquet.read(run, "cells")["case_hash"].null_count() == 80
    assert compared(run, matrix()).exit_code("any_change") == 0


def test_duplicated_cell_is_refused(tmp_path: Path, capsys: Out) -> None:
    twice = made(tmp_path / "b", [{"case": "x"}, {"case": "x"}, {"case": "y"}])
    code, _, err = ran(capsys, *both(made(tmp_path / "a", [{"case": "x"}]), twice))
    assert code == 2
    assert "1 cells more than once, such as inprocess/m/t/b/s/x" in err


def test_field_case_u35(tmp_path: Path, capsys: Out) -> None:
    """ "Did it get worse?": A pass/pass/fail, B pass/fail/missing, one case only in B.

    There are two regressions (one flip, one missing) and one new case; the exit code is 1. A new
    case never offsets a missing one. A duplicated case id is refused: see the test above.
    """
    a = made(tmp_path / "a", [{"case": "one"}, {"case": "two"}, failing("three")])
    b = made(tmp_path / "b", [{"case": "one"}, failing("two"), {"case": "four"}])
    code, out, _ = ran(capsys, *both(a, b), f"out={tmp_path / 'out'}")
    assert code == 1
    assert "2 cells and 0 table rows are worse" in out
    changes = pl.read_parquet(tmp_path / "out/comparison.parquet").select("case", "change").rows()
    assert changes == [
        ("two", "regressed"),
        ("three", "removed"),
        ("four", "added"),
        ("one", "still_passing"),
    ]
