"""`compare`: what got worse between two sides, and what the shell is told."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest
import report_runs
from compare_runs import FIXTURES, Edit, copied, failing, made, matrix, matrix_run  # noqa: F401
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pipeline import commands_compare, compare, pairing, schemas, sides, tables
from pipeline.__main__ import main
from pipeline.comparison_out import github, junit, markdown
from pipeline.pairing import Change
from pipeline.repeats import mcnemar, wilson
from pipeline.verdict import BADNESS, Verdict
from pipeline.visible import visible

Out = pytest.CaptureFixture[str]


def ran(capsys: Out, *arguments: object) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of `compare`."""
    capsys.readouterr()
    code = main(["compare", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def both(before: Path, after: Path) -> list[str]:
    return [f"before.run={before}", f"after.run={after}"]


def compared(before: Path, after: Path, *allow: str) -> compare.Comparison:
    one, two = (sides.load(sides.Asked(str(run)), Path()) for run in (before, after))
    return compare.compare(one, two, allow)


def builders(before: str, after: str) -> list[str]:
    return [f"run={matrix()}", f"before.builder={before}", f"after.builder={after}"]


# ── the embedded matrix ─────────────────────────────────────────────────────────────────────────


def test_unfixed_to_fixed_lists_every_flip_and_exits_0(capsys: Out) -> None:
    cells = tables.read(matrix(), "cells")
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
    assert """token 9830 ' {"', claimed to be '{"'""" in out
    assert "15763 ids: 35 ' ' (right → claimed '')" in out
    assert "bad_ids worse: 6312 ' hell'" in out


def test_a_run_equals_itself_made_again(tmp_path: Path, capsys: Out) -> None:
    code, out, _ = ran(capsys, *both(matrix(), copied(tmp_path / "again")), "fail_on=any_change")
    assert code == 0
    assert out.startswith("Versions: the same on both sides.")
    assert "nothing changed" in out


# ── each odd pair of sides has its own outcome ──────────────────────────────────────────────────


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


def test_renamed_builder_is_said_and_can_be_followed(tmp_path: Path, capsys: Out) -> None:
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
    assert "suites: 3 cases defined otherwise: enum/emoji, forced_literal/emoji" in err
    assert "allow=[suites]" in err
    code, out, _ = ran(capsys, *both(matrix(), run), "allow=[suites]")
    assert code == 0
    assert "Not alike, and allowed:\n  suites: 3 cases" in out


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
    assert "cells.parquet is damaged or cut short" in err


def test_damage_inside_a_table_is_refused_too(tmp_path: Path, capsys: Out) -> None:
    """The footer is whole, the pages are not."""
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


def test_run_without_its_closing_record_is_refused(tmp_path: Path, capsys: Out) -> None:
    run = copied(tmp_path / "open")
    (run / "manifest.json").unlink()
    code, _, err = ran(capsys, *both(matrix(), run))
    assert code == 2
    assert "no closing record (manifest.json)" in err


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
def test_run_that_is_not_what_its_manifest_says_is_refused(
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
    verdicts = sides.load(sides.Asked(str(old)), Path()).cells["verdict"]
    assert "ok" not in verdicts and "truncated" in verdicts


@pytest.mark.parametrize("version", range(1, schemas.SCHEMA_VERSION + 1))
def test_runs_of_every_schema_version_stay_readable(version: int) -> None:
    """`tests/fixtures/run_vN` is a real run; whoever raises the version adds one."""
    run = FIXTURES / f"run_v{version}"
    held = json.loads((run / "manifest.json").read_text("utf-8"))["rows"]
    assert {"cells", "steps", "tokenizers", "tokens", "masks"} <= held.keys()
    for table in held:
        data = tables.read(run, table)
        assert data.height, table
        assert schemas.SCHEMAS[table].items() <= data.schema.items()
    cells = sides.load(sides.Asked(str(run)), Path()).cells
    assert cells.filter(builder="fixed")["verdict"].unique().to_list() == ["ok"]
    steps = tables.read(run, "steps").filter(builder="unfixed", case="founding", step=0)
    assert steps.select("token", "true", "claimed").row(0) == (415, b" The", b"The")


def test_a_column_that_came_later_reads_as_null(tmp_path: Path) -> None:
    """Field case U-32: the union of columns, nulls filled."""
    run = copied(tmp_path / "early", lambda cells: cells.drop("case_hash"))
    assert tables.read(run, "cells")["case_hash"].null_count() == 80
    assert compared(run, matrix()).exit_code("any_change") == 0


def test_duplicated_cell_is_refused(tmp_path: Path, capsys: Out) -> None:
    twice = made(tmp_path / "b", [{"case": "x"}, {"case": "x"}, {"case": "y"}])
    code, _, err = ran(capsys, *both(made(tmp_path / "a", [{"case": "x"}]), twice))
    assert code == 2
    assert "1 cells more than once, such as inprocess/m/t/b/s/x" in err


def test_field_case_u35(tmp_path: Path, capsys: Out) -> None:
    """ "Did it get worse?": A pass/pass/fail, B pass/fail/missing, one case only in B.

    Two regressions (one flip, one missing), one new case, and the exit code says so. A missing
    result is never netted against the new one. A duplicated case id is refused, see above.
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


# ── which runs, which part ──────────────────────────────────────────────────────────────────────


def test_runs_are_found_by_name_folder_and_latest(tmp_path: Path, capsys: Out) -> None:
    made(tmp_path / "one", [{"case": "x"}])
    made(tmp_path / "two", [failing("x")])
    os.utime(tmp_path / "one/manifest.json", (1, 1))
    here = f"results_dir={tmp_path}"
    assert ran(capsys, here, "before.run=one", "after.run=latest")[0] == 1
    assert ran(capsys, here, "before.run=latest", f"after.run={tmp_path / 'one'}")[0] == 0
    code, _, err = ran(capsys, here, "before.run=three", "after.run=one")
    assert code == 2
    assert "There is no run 'three'" in err and "two, one" in err


def test_latest_does_not_step_over_an_unfinished_run(tmp_path: Path, capsys: Out) -> None:
    made(tmp_path / "done", [{"case": "x"}])
    os.utime(tmp_path / "done/manifest.json", (1, 1))
    (tmp_path / "going/parts").mkdir(parents=True)
    code, _, err = ran(capsys, f"results_dir={tmp_path}", "before.run=done", "after.run=latest")
    assert code == 2
    assert "going has no closing record" in err


def test_latest_goes_by_when_a_run_finished_not_when_it_was_copied(tmp_path: Path) -> None:
    for name, day in (("new", 2), ("old", 1)):  # the older run is written last
        run = made(tmp_path / name, [{"case": "x"}])
        record = json.loads((run / "manifest.json").read_text())
        record["volatile"] = {"finished": f"2026-01-0{day}T00:00:00+00:00"}
        (run / "manifest.json").write_text(json.dumps(record))
    assert sides.find("latest", tmp_path).name == "new"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "compare needs two sides"),
        (["run=RUN"], "there is nothing to compare"),
        (["run=RUN", "before.builder=fixed"], "go together: name both"),
        (["run=RUN", "before.builder=x", "after.builder=y"], "no builder 'x'; there is fixed"),
        (["run=RUN", "after.run=baseline"], "can only be the side before"),
        (["run=RUN", "fail_on=sometimes"], "there is regression, any_change, never"),
        (["run=RUN", "allow=[all]"], "there is suites, vocabulary, model, settings, cases"),
        (["run=RUN", "before.nuilder=x"], "Key 'nuilder' not in 'SideConfig'"),
        (["run=RUN", "limit=many"], "limit"),
        (["run=RUN", "after.run=RUN/../run"], "there is nothing to compare"),
        (["run=RUN", "-m"], "compare --help"),
        (["run=RUN", "run=é"], "quote values with special characters"),
        (["before.run=baseline", "after.run=RUN", "baseline=none.txt"], "There is no baseline"),
    ],
)
def test_bad_usage_exits_2_and_says_what_to_do(
    arguments: list[str], said: str, capsys: Out
) -> None:
    code, out, err = ran(capsys, *(a.replace("RUN", str(matrix())) for a in arguments))
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err


def test_one_builder_alone_across_two_runs(tmp_path: Path, capsys: Out) -> None:
    worse = pl.when(builder="unfixed").then(pl.lit("crashed")).otherwise("verdict")
    run = copied(tmp_path / "worse", lambda cells: cells.with_columns(verdict=worse))
    assert ran(capsys, *both(matrix(), run))[0] == 1
    only = ["before.builder=fixed", "after.builder=fixed"]
    assert ran(capsys, *both(matrix(), run), *only, "fail_on=any_change")[0] == 0


def test_two_targets_of_one_run(tmp_path: Path, capsys: Out) -> None:
    run = made(tmp_path / "run", [{"case": "x"}, failing("x", target="server")])
    arguments = [f"run={run}", "before.target=inprocess", "after.target=server"]
    code, out, _ = ran(capsys, *arguments)
    assert code == 1
    assert "Regressed (1)" in out


# ── classification ──────────────────────────────────────────────────────────────────────────────


def test_every_pair_of_verdicts_has_the_change_that_badness_gives(tmp_path: Path) -> None:
    sided: dict[str, list[dict[str, Any]]] = {"before": [], "after": []}
    for was, now in itertools.product([None, *Verdict], repeat=2):
        for side, verdict in (("before", was), ("after", now)):
            if verdict is not None:
                sided[side].append({"case": f"{was}__{now}", "verdict": verdict.value})
    runs = [made(tmp_path / side, cells) for side, cells in sided.items()]
    there, back = (
        dict(compared(*pair).cells.select("case", "change").rows()) for pair in (runs, runs[::-1])
    )
    assert len(there) == 16 * 16 - 1
    mirror = {"regressed": "fixed", "failure_worse": "failure_better", "removed": "added"}
    mirror |= {value: key for key, value in mirror.items()}
    for was, now in itertools.product([None, *Verdict], repeat=2):
        if was is None and now is None:
            continue
        change = there[f"{was}__{now}"]
        assert change == _expected(was, now), (was, now)
        assert back[f"{was}__{now}"] == mirror.get(change, change)


def _expected(was: Verdict | None, now: Verdict | None) -> str:
    if was is None or now is None:
        return "added" if was is None else "removed"
    if was is now:
        return "still_passing" if was is Verdict.OK else "still_failing"
    if Verdict.OK in (was, now):
        return "fixed" if now is Verdict.OK else "regressed"
    return "failure_worse" if BADNESS[now] > BADNESS[was] else "failure_better"


def test_other_output_under_the_same_verdict_is_a_change_but_no_regression(
    tmp_path: Path, capsys: Out
) -> None:
    cell = {"case": "x", "cell_hash": "h"}
    a, b = (made(tmp_path / o, [cell | {"output": o}]) for o in ("one", "two"))
    code, out, _ = ran(capsys, *both(a, b))
    assert code == 0
    assert "1 outputs differ" in out
    assert "1 cells came out otherwise though everything on record" in out
    assert ran(capsys, *both(a, b), "fail_on=any_change")[0] == 1


def test_fail_on_never(capsys: Out) -> None:
    code, out, _ = ran(capsys, *builders("fixed", "unfixed"), "fail_on=never")
    assert code == 0
    assert "39 cells and" in out


# ── versions and tables ─────────────────────────────────────────────────────────────────────────


def test_versions_that_changed_come_first_in_every_output(tmp_path: Path, capsys: Out) -> None:
    record = json.loads((matrix() / "manifest.json").read_text())
    versions = record["versions"] | {"llguidance": "9.9.9", "gguf": "9.9.8"}
    run = copied(tmp_path / "new", manifest={"versions": versions})
    out = tmp_path / "out"
    _, console, _ = ran(capsys, *both(matrix(), run), f"out={out}")
    lines = console.splitlines()
    was = record["versions"]["llguidance"]
    assert lines[:2] == ["Versions that changed:", f"  llguidance: {was} → 9.9.9"]
    assert "polars" not in console
    assert (out / "comparison.md").read_text().index("9.9.9") < 250
    told = json.loads((out / "comparison.json").read_text())
    assert list(told)[2] == "versions" and told["versions"][0]["name"] == "llguidance"


def test_a_token_newly_wrong_is_a_regression_though_no_cell_met_it(
    tmp_path: Path, capsys: Out
) -> None:
    def one_more(tokens: pl.DataFrame) -> pl.DataFrame:
        row = tokens.head(1).with_columns(token=pl.lit(36, pl.Int64), true=pl.lit(b" \x1b[2J"))
        return pl.concat([tokens.filter(pl.col("token") != 35), row])

    run = copied(tmp_path / "worse", one_more, table="tokens")
    code, out, _ = ran(capsys, *both(matrix(), run))
    assert code == 1
    assert "tokens mistral_v1 unfixed: claimed worse: 36 ' \\x1b[2J' (right → claimed '')" in out
    assert "tokens mistral_v1 unfixed: claimed better: 35 ' ' (claimed '' → right)" in out
    assert "0 cells and 1 table rows are worse" in out


def test_a_table_that_was_not_made_does_not_pass_for_one_without_faults(tmp_path: Path) -> None:
    """Without its row in `tokenizers` a builder has no wrong tokens: that is not better."""
    unmade = copied(tmp_path / "a", lambda rows: rows.filter(builder="fixed"), table="tokenizers")
    run = copied(tmp_path / "b", lambda rows: rows.clear(), table="tokens", source=unmade)
    found = compared(matrix(), run).tables
    assert set(found["change"]) == {"removed"}
    assert compared(matrix(), run).exit_code("regression") == 1


def test_any_table_with_known_keys_is_compared(tmp_path: Path) -> None:
    schema = schemas.SCHEMAS["exactness"]
    runs = [copied(tmp_path / name) for name in ("a", "b")]
    for run, verdict in zip(runs, ("exact", "inexact"), strict=True):
        row = dict.fromkeys(schema) | {"tokenizer": "mistral_v1", "builder": "fixed"}
        row["probe"] = b" x"
        tables.write(pl.DataFrame([row | {"verdict": verdict}], schema), run / "exactness.parquet")
        record = json.loads((run / "manifest.json").read_text())
        record["rows"]["exactness"] = 1
        (run / "manifest.json").write_text(json.dumps(record))
    found = compared(*runs).tables
    columns = ["table", "key", "column", "change", "before", "after"]
    worse = ("exactness", "2078", "verdict", "worse", b"exact", b"inexact")
    assert found.select(columns).rows() == [worse]
    bare = copied(tmp_path / "bare")
    record = json.loads((bare / "manifest.json").read_text())
    del record["rows"]["exactness"]
    (bare / "manifest.json").write_text(json.dumps(record))
    assert "only one of the runs holds exactness" in compared(runs[0], bare).hints[0]


def test_runs_of_audit_alone_are_compared_by_their_tables(tmp_path: Path, capsys: Out) -> None:
    audits = [copied(tmp_path / name, lambda cells: cells.clear()) for name in ("a", "b")]
    code, out, _ = ran(capsys, *both(*audits), "fail_on=any_change", f"out={tmp_path / 'out'}")
    assert code == 0
    assert "0 cells: none." in out
    less = copied(tmp_path / "c", lambda rows: rows.tail(9), table="tokens", source=audits[0])
    assert ran(capsys, *both(less, audits[0]))[0] == 1
    assert ran(capsys, *both(audits[0], less))[0] == 0


def test_a_replay_is_gated_without_cells(tmp_path: Path, capsys: Out) -> None:
    run = report_runs.replay(tmp_path / "a")
    sides = ("before.builder=fixed", "after.builder=unfixed")
    code, out, _ = ran(capsys, f"run={run}", *sides)
    assert code == 1
    for split in ("greedy", "random"):
        assert f"replay t s/a/i/{split}: verdict added: the row" in out
    assert "replay t s/a/j/canonical: verdict removed: the row" in out
    worse = copied(
        tmp_path / "b",
        lambda rows: rows.with_columns(verdict=pl.lit("valid_refused")),
        table="replay",
        source=run,
    )
    code, out, _ = ran(capsys, *both(run, worse))
    assert code == 1
    assert "replay t fixed s/a/i/canonical: verdict worse: ok → valid_refused" in out
    code, out, _ = ran(capsys, *both(worse, run))
    assert (code, "better: valid_refused → ok" in out) == (0, True)


def test_a_schema_that_is_not_the_same_is_refused(tmp_path: Path, capsys: Out) -> None:
    def hashed(value: str) -> Edit:
        return lambda rows: rows.with_columns(grammar_hash=pl.lit(value))

    run = report_runs.replay(tmp_path / "run")
    was, now = (
        copied(tmp_path / value, hashed(value), table="replay", source=run) for value in "xy"
    )
    code, _, err = ran(capsys, *both(was, now))
    assert code == 2
    assert "suites: 2 schemas defined otherwise: s/a, s/b" in err
    assert ran(capsys, *both(was, now), "allow=[suites]")[0] == 0


def test_a_builder_that_neither_table_has_is_named(tmp_path: Path, capsys: Out) -> None:
    run = report_runs.replay(tmp_path / "a")
    code, _, err = ran(capsys, f"run={run}", "before.builder=fixed", "after.builder=none")
    assert code == 2
    assert "has no builder 'none'; there is fixed, unfixed." in err


def test_ids_of_another_vocabulary_are_not_compared(tmp_path: Path) -> None:
    other = {"vocab_hash": pl.lit("other")}
    run = copied(tmp_path / "a", lambda rows: rows.with_columns(**other), table="tokenizers")
    run = copied(tmp_path / "b", lambda rows: rows.head(5), table="tokens", source=run)
    found = compared(matrix(), run)
    assert not found.tables.filter(table="tokens").height
    assert "not the same vocabulary" in found.hints[0]


# ── outputs ─────────────────────────────────────────────────────────────────────────────────────

HOSTILE = (
    b"\x1b[2J\x00\xff|`` </failure>]]> \"'\\\n::error::x\r##[error]y %0A @team <script>"
    + "\u202e".encode()
)


def hostile(tmp_path: Path) -> list[Path]:
    bad = failing("x", output=HOSTILE.decode("latin-1"), reason="a\x1b[31m\n::error::z|`b`")
    names = {"tokenizer": "to|`k\x1b[1m\n::warning::"}
    return [
        made(tmp_path / "before", [{"case": "x"} | names]),
        made(tmp_path / "af\x1b[1mter", [bad | names]),
    ]


def test_all_files_are_written_and_valid(tmp_path: Path, capsys: Out) -> None:
    out = tmp_path / "out"
    code, console, _ = ran(capsys, *builders("fixed", "unfixed"), f"out={out}")
    assert code == 1
    names = {path.name for path in out.iterdir()}
    assert all(f"comparison.{kind}" in names for kind in ("parquet", "md", "xml", "json"))
    assert names == {*re.split(r", |: ", console.splitlines()[-1])[1:]}
    changes = pl.read_parquet(out / "comparison.parquet")["change"]
    assert set(changes) <= {change.value for change in Change}
    record = json.loads((out / "comparison.json").read_text())
    _schema().validate(record)
    assert record["counts"]["regressed"] == 39 == len(record["cells"])
    suites = ElementTree.parse(out / "comparison.xml").getroot()
    assert int(suites.attrib["failures"]) == len(suites.findall(".//failure"))
    assert len(suites.findall(".//testcase[failure]")) == 39 + record["n_tables_worse"] - sum(
        t["n"] - 1 for t in record["tables"] if t["change"] == "worse"
    )
    assert "39 cells" in (out / "comparison.md").read_text().splitlines()[0]


def _schema() -> Any:
    schema = json.loads((ROOT / "docs/comparison.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_out_that_cannot_be_written_is_said(tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = ran(capsys, *builders("unfixed", "fixed"), f"out={tmp_path / 'file/x'}")
    assert code == 2
    assert "cannot be written" in err and "out=" in err


def test_junit_skips_old_failures_and_fails_new_ones(tmp_path: Path) -> None:
    a = made(tmp_path / "a", [{"case": "x"}, failing("y"), {"case": "z"}, {"case": "gone"}])
    b = made(tmp_path / "b", [failing("x"), failing("y"), {"case": "z"}, failing("new")])
    root = ElementTree.fromstring("".join(junit.lines(compared(a, b))))
    kinds = {case.attrib["name"]: [child.tag for child in case] for case in root.iter("testcase")}
    assert kinds == {
        "x": ["failure"],
        "gone": ["failure"],
        "y": ["skipped"],
        "new": ["skipped"],
        "z": [],
    }
    allowed = ElementTree.fromstring("".join(junit.lines(compared(a, b, "cases"))))
    assert allowed.attrib["failures"] == "1"


def test_markdown_is_cut_with_a_count_never_silently(tmp_path: Path) -> None:
    names = [f"case_{number}" for number in range(3000)]
    a = made(tmp_path / "a", [{"case": name} for name in names] + [failing("mended")])
    b = made(tmp_path / "b", [failing(name, output="é|`" * 50) for name in names])
    text = markdown.text(compared(a, b), "regression")
    assert len(text) <= markdown.MAX_CHARS
    shown = text.count("`m/t b s/case_")
    assert "\n### Regressed (3000)\n" in text
    assert shown > 50
    assert f"- … and {3000 - shown} more; all are in `comparison.parquet`" in text
    assert "### Removed (1)" in text  # a long section does not drive out the next


@settings(derandomize=True, deadline=None)
@given(st.integers(200, 5000))
def test_markdown_never_exceeds_its_room(limit: int) -> None:
    text = markdown.text(_wide(), "regression", limit)
    assert len(text) <= limit
    assert "more" in text


_WIDE: list[compare.Comparison] = []


def _wide() -> compare.Comparison:
    if not _WIDE:
        one, two = (
            sides.load(sides.Asked(str(matrix()), builder=name), Path())
            for name in ("fixed", "unfixed")
        )
        _WIDE.append(compare.compare(one, two))
    return _WIDE[0]


def test_console_is_cut_with_a_count(capsys: Out) -> None:
    _, out, _ = ran(capsys, *builders("fixed", "unfixed"), "limit=2")
    assert "… and 37 more; raise limit=, or write them all with out=DIR" in out


def test_hostile_text_reaches_no_output_raw(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = hostile(tmp_path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.chdir(tmp_path)
    found = compared(*runs)
    (tmp_path / "results").mkdir()
    os.utime(runs[0] / "manifest.json", (1, 1))
    arguments = ["results_dir=.", "before.run=before", "after.run=latest", "out=out"]
    code, out, err = ran(capsys, *arguments)
    assert code == 1, err
    markdown_text = (tmp_path / "out/comparison.md").read_text()
    xml = (tmp_path / "out/comparison.xml").read_text()
    for text in (out, markdown_text, xml):
        odd = [char for char in text if not char.isprintable() and char != "\n"]
        assert odd == []
    commands = [line for line in out.splitlines() if line.lstrip().startswith("::")]
    assert len(commands) == 1 and commands[0].startswith("::error title=regressed%3A ")
    assert "##[" not in out
    assert commands == list(github.lines(found))
    root = ElementTree.fromstring(xml)
    assert len(root.findall(".//failure")) == 1 and "</failure>" in (root[0][0][0].text or "")
    assert "<script>" not in re.sub(r"(`+).*?\1(?!`)", "", markdown_text)
    _schema().validate(json.loads((tmp_path / "out/comparison.json").read_text()))


def test_annotations_only_on_github_and_no_more_than_it_shows(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert "::error" not in ran(capsys, *builders("fixed", "unfixed"))[1]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    lines = ran(capsys, *builders("fixed", "unfixed"))[1].splitlines()
    told = [line for line in lines if line.startswith("::error")]
    assert len(told) == github.MAX
    assert re.search(r"::\d+ more are worse", told[-1])
    assert "::error" not in ran(capsys, *builders("unfixed", "fixed"))[1]


@given(st.text() | st.binary())
def test_visible_text_is_printable_and_stays_so(value: str | bytes) -> None:
    shown = visible(value, 10_000)
    assert shown.isprintable()
    assert visible(shown, 100_000) == shown


@given(st.text(min_size=1))
def test_a_code_span_holds_all_of_its_text(text: str) -> None:
    span = markdown.code(text)
    fence = re.match("`+", span)
    assert fence and span.endswith(fence[0]) and "\n" not in span
    inner = span[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inner)


# ── sampled repeats ─────────────────────────────────────────────────────────────────────────────


def test_repeats_give_rates_and_an_exact_test(tmp_path: Path, capsys: Out) -> None:
    def run(name: str, wrong: int) -> Path:
        cells = [(failing("x") if n < wrong else {"case": "x"}) | {"repeat": n} for n in range(20)]
        return made(tmp_path / name, cells)

    out = tmp_path / "out"
    code, console, _ = ran(capsys, *both(run("a", 2), run("b", 10)), f"out={out}")
    assert code == 1
    assert "ok 90.0% [69.9%, 97.2%] → 50.0% [29.9%, 70.1%] of 20 pairs" in console
    assert "8 regressed, 0 fixed, McNemar exact p = 0.00781" in console
    record = json.loads((out / "comparison.json").read_text())
    _schema().validate(record)
    assert record["rates"][0]["pairs"] == 20


def test_greedy_cells_show_no_rates(tmp_path: Path, capsys: Out) -> None:
    a = made(tmp_path / "a", [{"case": "x", "repeat": None}])
    b = made(tmp_path / "b", [failing("x")])
    for runs in ((a, b), (b, a)):
        assert "McNemar" not in ran(capsys, *both(*runs))[1]
    assert compared(a, b).rates == ()
    assert "McNemar" not in ran(capsys, *builders("fixed", "unfixed"))[1]


def test_wilson_and_mcnemar_against_known_values() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.27753), abs=1e-5)
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)  # Newcombe 1998
    assert wilson(0, 0) == (0.0, 1.0)
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(6, 0) == pytest.approx(2 / 64)
    assert mcnemar(5, 5) == 1.0
    assert mcnemar(3000, 2000) == mcnemar(2000, 3000) < 1e-40


# ── what it needs, what it promises ─────────────────────────────────────────────────────────────


def in_a_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compare_needs_neither_llama_cpp_nor_llguidance(tmp_path: Path) -> None:
    arguments = ["compare", *builders("unfixed", "fixed"), f"out={tmp_path}"]
    in_a_process(
        "import sys\n"
        "for name in ('llama_cpp', 'llguidance'): sys.modules[name] = None\n"
        "from pipeline.__main__ import main\n"
        f"assert main({arguments!r}) == 0\n"
        "loaded = {'pipeline.llama', 'pipeline.llguidance_abi', 'gguf', 'pipeline.run'}\n"
        "assert not loaded & sys.modules.keys(), loaded & sys.modules.keys()\n"
    )


@pytest.mark.parametrize("command", ["compare", "baseline"])
def test_help_loads_nothing_heavy(command: str) -> None:
    out = in_a_process(
        "import sys\n"
        "from pipeline.__main__ import main\n"
        f"assert main([{command!r}, '--help']) == 0\n"
        "heavy = {'polars', 'llama_cpp', 'llguidance', 'hydra', 'omegaconf', 'numpy', 'gguf'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    assert f"python -m pipeline {command}" in out
    assert "Exit codes" in out


def test_only_the_settings_know_hydra() -> None:
    parts = [*(ROOT / "pipeline/comparison_out").glob("*.py")]
    names = ("alike", "baseline", "commands_compare", "compare", "pairing", "repeats", "sides")
    parts += [ROOT / f"pipeline/{name}.py" for name in (*names, "table_changes", "visible")]
    for path in parts:
        assert not re.search(r"(import|from) (hydra|omegaconf)", path.read_text()), path


def test_documented_exit_codes_are_the_real_ones() -> None:
    pages = [ROOT / "README.md", ROOT / "docs/compare.md"]
    page = "\n".join(path.read_text() for path in pages if path.exists())
    rows = [f"| {code} | {meaning} |" for code, meaning in commands_compare.EXIT_CODES.items()]
    assert "\n".join(rows) in page
    for change in Change:
        assert f"`{change.value}`" in page
    assert pairing.WORSE == (Change.REGRESSED, Change.FAILURE_WORSE, Change.REMOVED)
