"""`compare`: the choice of runs and parts, the change of each cell, versions and tables."""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.model.verdicts import BADNESS, Verdict
from pipeline.results.tables import parquet, run_folder, schemas
from support import compare_runs, report_runs
from support.compare_runs import Edit, copied, failing, made, matrix
from support.comparisons import Out, both, builders, compared, ran

matrix_run = compare_runs.matrix_run

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


def test_latest_does_not_skip_an_unfinished_run(tmp_path: Path, capsys: Out) -> None:
    made(tmp_path / "done", [{"case": "x"}])
    os.utime(tmp_path / "done/manifest.json", (1, 1))
    (tmp_path / "going/parts").mkdir(parents=True)
    code, _, err = ran(capsys, f"results_dir={tmp_path}", "before.run=done", "after.run=latest")
    assert code == 2
    assert "going has no manifest" in err


def test_latest_uses_the_time_a_run_finished_not_the_time_of_the_copy(tmp_path: Path) -> None:
    for name, day in (("new", 2), ("old", 1)):  # the older run is written last
        run = made(tmp_path / name, [{"case": "x"}])
        record = json.loads((run / "manifest.json").read_text())
        record["volatile"] = {"finished": f"2026-01-0{day}T00:00:00+00:00"}
        (run / "manifest.json").write_text(json.dumps(record))
    assert run_folder.find("latest", tmp_path).name == "new"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "compare needs two sides"),
        (["run=RUN"], "there is nothing to compare"),
        (["run=RUN", "before.builder=fixed"], "give both before.builder=… and after.builder=…"),
        (["run=RUN", "before.builder=x", "after.builder=y"], "no builder 'x'; there is fixed"),
        (["run=RUN", "after.run=baseline"], "can only be the before side"),
        (["run=RUN", "fail_on=sometimes"], "choose from regression, any_change, never"),
        (["run=RUN", "allow=[all]"], "choose from suites, vocabulary, model, settings, cases"),
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
    one, two = (made(tmp_path / side, cells) for side, cells in sided.items())
    there, back = (
        dict(compared(*pair).cells.select("case", "change").rows())
        for pair in ((one, two), (two, one))
    )
    assert len(there) == (len(Verdict) + 1) ** 2 - 1
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
    assert "1 cells have another outcome although their recorded inputs are the same" in out
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


def test_a_newly_wrong_token_is_a_regression_even_if_no_cell_used_it(
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


def test_a_missing_table_is_not_better(tmp_path: Path) -> None:
    """A builder without a row in `tokenizers` has no rows of wrong tokens. That is not better."""
    unmade = copied(tmp_path / "a", lambda rows: rows.filter(builder="fixed"), table="tokenizers")
    run = copied(tmp_path / "b", lambda rows: rows.clear(), table="tokens", source=unmade)
    found = compared(matrix(), run).tables
    assert set(found["change"]) == {"removed"}
    assert compared(matrix(), run).exit_code("regression") == 1


def test_any_table_with_known_keys_is_compared(tmp_path: Path) -> None:
    schema = schemas.SCHEMAS["exactness"]
    runs = copied(tmp_path / "a"), copied(tmp_path / "b")
    for run, verdict in zip(runs, ("exact", "inexact"), strict=True):
        row = dict.fromkeys(schema) | {"tokenizer": "mistral_v1", "builder": "fixed"}
        row["probe"] = b" x"
        parquet.write(pl.DataFrame([row | {"verdict": verdict}], schema), run / "exactness.parquet")
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
    assert "suites: 2 schemas with different definitions: s/a, s/b" in err
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
    assert "the vocabularies differ" in found.hints[0]
