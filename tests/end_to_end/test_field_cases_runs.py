"""Field cases on runs and their tables: U-30, U-32, U-33, U-34."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.cli import compose
from pipeline.cli.run import run_command
from pipeline.results.summary import console
from pipeline.results.tables import parquet, schemas
from pipeline.runs.parent.journal import Group
from support import damaged_ggufs as faults
from support.command import GENERATE, pipeline
from support.workers import job


def test_u30_cut_at_the_token_limit_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    """mastra #24442, TanStack/ai #1426, vllm PR 14567: also if the text happens to parse.

    `123` for an integer and `{"a":[1,2` for an object both reach the limit. They have a verdict of
    their own, and the counts show the total.
    """
    vocabulary = faults.tiny_spm(tmp_path / "plain.gguf", byte_tokens=True)
    at = {chr(byte): 3 + byte for byte in range(256)}  # the byte tokens, after the three specials
    cases = {
        "complete": ({"type": "integer"}, "123"),
        "begun": ({"type": "object", "properties": {"a": {"type": "array"}}}, '{"a":[1,2'),
    }
    entries: list[dict[str, Any]] = [
        {
            "id": name,
            "prompt": "Hello",
            "grammar": {"json": schema},
            "check": {"json": True},
            "tokens": [at[char] for char in text],
            "max_tokens": len(text),
        }
        for name, (schema, text) in cases.items()
    ]
    suite = tmp_path / "cut.json"
    suite.write_text(json.dumps({"suite": "cut", "about": "Cut.", "cases": entries}), "utf-8")
    file = ["tokenizer=path", f"tokenizer.path={vocabulary}", "builder=fixed"]
    done = pipeline(tmp_path, "run", *file, "grammar=path", f"grammar.path={suite}", *GENERATE)
    cells = {row["case"]: row for row in done.table("cells").iter_rows(named=True)}
    assert {name: row["output"].decode() for name, row in cells.items()} == {
        name: text for name, (_, text) in cases.items()
    }
    assert {row["verdict"] for row in cells.values()} == {"truncated"}
    assert cells["complete"]["text_valid"], "a correct text does not change the verdict"
    assert not cells["begun"]["text_valid"]
    assert "Verdicts: 2 truncated" in done.out
    assert "0/2" in done.out


def run_of(folder: Path, *builders: str, **columns: Any) -> Path:
    """A finished group with one cell for each builder, merged into a run."""
    (folder / "parts").mkdir(parents=True)
    path = folder / "parts" / "m--t.jsonl"
    group = Group(path)
    group.begin(job(folder), {"a": "1"})
    for builder in builders:
        row = dict.fromkeys(schemas.SCHEMAS["cells"]) | {"builder": builder, "cell_key": builder}
        unit = ("cell", builder, "s", "c")
        group.finish(unit, [("cells", [{**row, "verdict": "ok", **columns}])])
    parquet.merge([path], folder)
    return folder


def test_u32_a_column_added_later_is_null_in_older_runs(tmp_path: Path) -> None:
    """polars #20926, #23399, #27280: all columns are kept; none is dropped silently.

    A column whose values are all null still has its type.
    """
    new = run_of(tmp_path / "new", "a", reason="because")
    blank = run_of(tmp_path / "blank", "a")
    old = run_of(tmp_path / "old", "a")
    written = pl.read_parquet(old / "cells.parquet").drop("reason", "prompt_ids")
    parquet.write(written, old / "cells.parquet")
    found = {run.name: parquet.read(run, "cells") for run in (new, blank, old)}
    assert {name: rows["reason"].to_list() for name, rows in found.items()} == {
        "new": ["because"],
        "blank": [None],
        "old": [None],
    }
    types = {name: dict(zip(r.columns, r.dtypes, strict=True)) for name, r in found.items()}
    assert types["new"] == types["blank"] == types["old"] == schemas.SCHEMAS["cells"]
    together = pl.concat([rows.select(*schemas.SCHEMAS["cells"]) for rows in found.values()])
    assert together["reason"].to_list() == ["because", None, None]


def test_u33_a_second_run_keeps_the_first_and_bytes_stay_bytes(tmp_path: Path) -> None:
    """polars #18242, #26887, #18750: half a character is stored, read back and shown."""
    half = b"\xf0\x9f\x00\xff"
    first = run_of(tmp_path / "one", "a", "b", output=half.decode("latin-1"))
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    second = run_of(tmp_path / "two", "a", output="x")
    assert {path: path.read_bytes() for path in first.rglob("*") if path.is_file()} == before
    assert [parquet.read(run, "cells").height for run in (first, second)] == [2, 1]
    cells = parquet.read(first, "cells")
    assert cells.schema["output"] == pl.Binary
    assert cells["output"].to_list() == [half, half]
    wrong = cells.with_columns(verdict=pl.lit("truncated"), cause=pl.lit("none"))
    parquet.write(wrong, first / "cells.parquet")
    manifest: dict[str, Any] = {"status": "complete", "refused": [], "lost": 0}
    manifest |= {"rows": {"cells": 2}, "volatile": {"timings": []}}
    assert r"\xf0\x9f\x00\xff" in console.console(first, manifest)


@pytest.mark.parametrize("value", ["é", "日本", "😀", "<think>", "[0-9]+", '{"enum":["x y"]}'])
def test_u34_values_that_hydra_cannot_parse_get_a_friendly_error(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """hydra #1843, #962, #1074, #1600, #2252, #2705: one line of error that says how to quote."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    code, said = run_in_process(f"grammar.path={value}")
    assert code == 2
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert "quote" in said


@pytest.mark.parametrize("value", ["a,b", "1e3", "null"])
def test_u34_values_that_hydra_takes_for_something_else(
    monkeypatch: pytest.MonkeyPatch, value: str, tmp_path: Path
) -> None:
    """Hydra reads these values as a sweep, a number and null. All are refused as a path."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    code, said = run_in_process(
        *("grammar=path", f"grammar.path={value}", f"results_dir={tmp_path}", *GENERATE)
    )
    assert code == 2
    assert said.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


def run_in_process(*arguments: str) -> tuple[int, str]:
    compose.register()
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        code = run_command("run", [*arguments])
    return code, err.getvalue()
