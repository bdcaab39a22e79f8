"""Standings: what the tables of a run prove, in words, with reasons and bounds."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.results.standing import standings, stored, words
from pipeline.results.summary import console
from pipeline.results.tables import parquet, run_folder
from support import standing_runs
from support.report_runs import Row, cell, made, walked
from support.standing_runs import audited, given, state, table_row, text, walk

COMPLETE = {"status": "complete"}
GOLDEN = Path(__file__).parent / "standings.txt"


def of(rows: dict[str, list[Row]], manifest: dict[str, Any] = COMPLETE) -> list[dict[str, Any]]:
    return standings.of({t: parquet.frame(t, r) for t, r in rows.items()}, manifest).to_dicts()


def one(rows: dict[str, list[Row]]) -> tuple[str, str]:
    """The word of the only standing, and its reasons."""
    [row] = of(rows)
    return row["standing"], " ".join(row["reasons"])


def test_what_console_and_report_say_of_ten_runs_is_what_the_reviewed_file_says() -> None:
    assert standing_runs.golden() == GOLDEN.read_text(encoding="utf-8")


def test_safe_is_said_with_its_bounds() -> None:
    [row] = of({**audited(), "cells": [cell(case="c")]})
    assert row["standing"] == "safe"
    bounds = {name: row[name] for name in row if name.startswith("n_")}
    assert bounds == {
        "n_grammars": 1,
        "n_states": 2,
        "n_walks": 1,
        "n_strings": 1,
        "n_probes": 1,
        "n_cells": 1,
    }
    assert "safe within 1 tokenized text, 2 masks" in words.headline(pl.DataFrame([row]))


@pytest.mark.parametrize(
    ("table", "bad"),
    [
        ("states", state(2, verdict="unsound", ids=[7])),
        ("states", state(2, verdict="stop_too_early", ids=[7])),
        ("states", state(2, verdict="incomplete", ids=[7])),
        ("states", state(2, verdict="empty")),
        ("states", state(2, verdict="refused_by_consume", ids=[7])),
        ("states", state(2, verdict="stop_missing")),
        ("walks", walk(verdict="not_accepting", walk="0001-split")),
        ("strings", given(string=b"b", verdict="invalid_accepted", cause="builder")),
        ("strings", given(string=b"b", verdict="valid_refused", cause="unknown")),
        ("exactness", text(probe=b"x", got=b" x", verdict="inexact", **{"class": "prefix_added"})),
        ("exactness", text(probe=b"x", got=b"y", verdict="inexact", **{"class": "normalised"})),
        ("exactness", text(probe=b"x", ids=[], verdict="thrown", **{"class": "thrown"})),
    ],
)
def test_one_wrong_row_of_an_otherwise_right_audit_is_unsafe(table: str, bad: Row) -> None:
    rows = audited()
    rows[table] = [*rows[table], bad]
    standing, reasons = one(rows)
    assert standing == "unsafe"
    assert f"({table}.parquet)" in reasons


@pytest.mark.parametrize("fault", [{"n_wrong": 2}, {"n_mark_wrong": 1}, {"end_is_wrong": True}])
def test_a_wrong_token_table_is_unsafe(fault: dict[str, Any]) -> None:
    assert one(audited(**fault))[0] == "unsafe"


def test_inexact_texts_alone_are_unsafe_and_named() -> None:
    """A released builder was called safe with 18 to 36 inexact texts."""
    rows = audited()
    rows["exactness"] += [
        text(probe=b"x ", got=b"x", verdict="inexact", **{"class": "space_removed"})
    ]
    standing, reasons = one(rows)
    assert standing == "unsafe"
    assert "'x ' comes back as 'x'" in reasons


def test_a_fault_that_needs_a_special_spelling_in_the_grammar_is_limited() -> None:
    special = {"token": 2, "attribute": "CONTROL", "true": b"<s>", "verdict": "ok"}
    rows = audited()
    rows["specials"] = [standing_runs.row("specials", **standing_runs.WHO, **special)]
    rows["states"] += [state(0, grammar="specials/id_2", verdict="unsound", ids=[2])]
    inexact = {"verdict": "inexact", "class": "special_returned"}
    rows["exactness"] += [text(probe=b"a<s> b", ids=[0, 2, 1], got=b"a<s> b", **inexact)]
    standing, reasons = one(rows)
    assert standing == "limited"
    assert "'a<s> b'" in reasons
    rows["exactness"] += [text(probe=b"plain", ids=[2], got=b"<s>", **inexact)]
    assert one(rows)[0] == "unsafe", "no special is spelt there"


def test_the_symbol_for_a_space_is_a_circumstance_of_the_grammar() -> None:
    rows = audited()
    symbol = "a\u2581b".encode()
    rows["exactness"] += [
        text(probe=symbol, got=b"a b", verdict="inexact", **{"class": "meta_symbol"})
    ]
    standing, reasons = one(rows)
    assert standing == "limited"
    assert "U+2581" in reasons


def test_what_the_vocabulary_cannot_spell_is_a_circumstance_but_only_then() -> None:
    wrong = {"verdict": "inexact", "class": "unknown_token"}
    rows = audited()
    rows["exactness"] += [text(probe=b"1\n2", got=b"12", spellable=False, **wrong)]
    assert one(rows)[0] == "limited"
    rows["exactness"] += [text(probe=b"1\n3", got=b"13", spellable=True, **wrong)]
    assert one(rows)[0] == "unsafe"


@pytest.mark.parametrize(
    "gap",
    [
        {"states": [state(2, verdict="over_budget", reason="the budget is spent")]},
        {"walks": [walk(status="crashed", verdict=None, walk=None, reason="signal 11")]},
        {"cells": [cell(case="c", verdict="timeout", cause="runtime", reason="60 s")]},
        {"cells": [cell(case="c", verdict="truncated", reason="the limit of 4 tokens")]},
        {"replay": [walked(verdict="unreadable", split=None, reason="line 2")]},
        {"strings": [given(verdict="limit", cause="engine", reason="too large")]},
    ],
)
def test_a_requested_check_without_a_result_is_unproved(gap: dict[str, list[Row]]) -> None:
    rows = audited()
    for table, more in gap.items():
        rows[table] = [*rows.get(table, []), *more]
    standing, reasons = one(rows)
    assert standing == "unproved"
    assert "Not judged: " in reasons


def test_only_first_masks_are_no_proof() -> None:
    rows = audited()
    rows["states"] = [state(0)]
    standing, reasons = one(rows)
    assert standing == "unproved"
    assert "engine.oracle=every" in reasons


def test_a_refused_builder_is_unproved() -> None:
    rows = {"tokenizers": [table_row(status="builder_refused", reason="no", n_wrong=None)]}
    assert one(rows)[0] == "unproved"


def test_faults_of_other_parts_are_named_and_are_not_the_builders() -> None:
    rows = audited()
    rows["cells"] = [
        cell(case="c", verdict="checker_disagrees", cause="checker", reason="narrower")
    ]
    rows["strings"] += [given(string=b"c", verdict="valid_refused", cause="engine")]
    standing, reasons = one(rows)
    assert standing == "safe"
    assert "because of the checker (cells.parquet). This is not the builder's fault." in reasons
    assert "because of the engine (strings.parquet)" in reasons


def test_a_server_is_judged_as_a_whole() -> None:
    served = {"target": "server", "builder": "llama-server"}
    [row] = of(
        {"cells": [cell(case="c", **served, verdict="unenforced", cause="engine", reason="step 1")]}
    )
    assert (row["target"], row["standing"]) == ("server", "unsafe")


def test_sampled_cells_are_an_axis_of_their_own() -> None:
    settings = {"settings": {"sampling": {"temperature": 0.8}}}
    rows = {**audited(), "cells": [cell(case="c", repeat=0, verdict="unenforced", cause="bytes")]}
    found = {row["axes"]: row["standing"] for row in of(rows, COMPLETE | settings)}
    assert found == {"": "safe", "repeats,sampling.temperature=0.8": "unsafe"}


def test_an_interrupted_run_is_unproved() -> None:
    [row] = of(audited(), {"status": "interrupted", "missing": ["tiny--t has not begun"]})
    assert row["standing"] == "unproved"
    assert "tiny--t has not begun" in " ".join(row["reasons"])


def test_a_damaged_table_is_said_and_nothing_is_concluded_from_its_absence(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", {**audited(), "cells": [cell(case="c")]})
    (folder / "cells.parquet").write_bytes(b"PAR1")
    [row] = stored.of(folder, run_folder.read_manifest(folder)).to_dicts()
    assert row["standing"] == "unproved"
    assert "cells.parquet cannot be read" in " ".join(row["reasons"])


def test_a_run_of_an_older_version_gets_its_standings_from_its_tables() -> None:
    older = Path(__file__).parents[1] / "fixtures" / "run_v2"
    manifest = run_folder.read_manifest(older)
    assert "standings" not in manifest["rows"]
    assert stored.read(older, manifest).height > 0


@pytest.mark.parametrize("answered", [True, False])
def test_a_refused_sentinel_shows_something_only_where_requests_are_answered(
    answered: bool,
) -> None:
    refused = {"target": "openai", "verdict": "grammar_error", "http_status": 400}
    cells = [cell(suite="sentinel", case="invalid_schema", **refused)]
    cells += [cell(case="c", target="openai", http_status=200)] if answered else []
    [_, told] = console.enforcement(parquet.frame("cells", cells))
    nothing = "" if answered else " (shows nothing: no request was answered)"
    assert told[2:] == [f"grammar_error, HTTP 400{nothing}"]
