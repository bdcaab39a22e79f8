"""The design's laws, each kept by a test (laws 1–4 and 6–10)."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import polars as pl
import pytest
from conftest import ROOT, Finished

from pipeline import schemas
from pipeline.verdict import Cause, Facts, Verdict

PACKAGE = ROOT / "pipeline"


def imports(path: Path) -> set[str]:
    """Top-level packages that a file imports anywhere, and `pipeline.x` modules by full name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            own = name.startswith("pipeline")
            found.add(".".join(name.split(".")[:2]) if own else name.split(".")[0])
    return found


FILES = {str(path.relative_to(PACKAGE)): imports(path) for path in PACKAGE.rglob("*.py")}


def loaded(modules: str, *unwanted: str) -> str:
    """Which unwanted packages a fresh interpreter has after importing our modules."""
    code = f"import sys, {modules}; print([m for m in {unwanted!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def who(*packages: str) -> set[str]:
    return {name for name, found in FILES.items() if found & set(packages)}


def test_law_1_only_the_commands_and_config_know_hydra() -> None:
    assert who("hydra", "omegaconf") <= {*("config.py", "config_compare.py", "commands_sweep.py")}


def test_law_2_validate_and_oracle_know_no_token_table() -> None:
    for name in ("validate.py", "oracle.py"):
        assert not FILES[name] & {"pipeline.builders", "pipeline.constraint", "pipeline.decode"}
    assert not FILES["validate.py"] & {"llguidance", "pipeline.oracle", "pipeline.llguidance_abi"}


@pytest.mark.parametrize(
    "module", ["tables", "summary", "compare", "comparison_out", "baseline", "report"]
)
def test_law_3_what_reads_tables_loads_no_native_library(module: str) -> None:
    assert loaded(f"pipeline.{module}", "llama_cpp", "llguidance") == "[]"


def test_law_4_only_two_files_touch_ctypes() -> None:
    assert who("ctypes", "llama_cpp") == {"llama.py", "llguidance_abi.py"}


def test_nothing_is_unpickled_and_nothing_forks() -> None:
    """A fork after native libraries are loaded copies their held locks, and no other thread."""
    assert who("pickle", "marshal", "shelve", "dill", "cloudpickle", "multiprocessing") == set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        assert not any(word in text for word in ("os.fork", "forkpty", "preexec_fn")), path


def test_the_worker_imports_neither_polars_nor_hydra() -> None:
    assert loaded("pipeline.worker, pipeline.stages", "polars", "hydra", "omegaconf") == "[]"


def test_the_parent_loads_no_native_library() -> None:
    assert loaded("pipeline.commands", "llama_cpp", "llguidance") == "[]"


def test_law_6_a_token_is_its_id(default_run: Finished) -> None:
    """Thousands of tokens share bytes; rows are told apart by id alone."""
    tokens = default_run.table("tokens").filter(builder="unfixed")
    assert tokens["token"].n_unique() == tokens.height
    assert tokens["claimed"].n_unique() < tokens.height


def test_law_7_verdicts_are_a_closed_frozen_set(default_run: Finished) -> None:
    cells = default_run.table("cells")
    assert set(cells["verdict"]) <= {verdict.value for verdict in Verdict}
    assert set(cells["cause"]) <= {cause.value for cause in Cause}
    assert all(field.type != "str" for field in fields(Facts)), "no prose goes into a verdict"
    with pytest.raises(FrozenInstanceError):
        Facts.__setattr__(Facts.__new__(Facts), "end", None)


def test_law_8_bytes_are_stored_as_bytes(default_run: Finished) -> None:
    for table, columns in {
        "cells": ["output"],
        "steps": ["claimed", "true", "rendered"],
        "tokens": ["true", "claimed"],
    }.items():
        schema = default_run.table(table).schema
        assert all(schema[column] == pl.Binary for column in columns)


def test_law_9_a_row_says_what_made_it(default_run: Finished) -> None:
    cells = default_run.table("cells")
    for column in (
        "model_sha256",
        "vocab_hash",
        "table_hash",
        "grammar_hash",
        "engine",
        "llama_cpp",
        "seed",
        "device",
        "builder",
        "cell_hash",
    ):
        assert cells[column].null_count() == 0, column
    assert set(cells["engine"].str.split("@").list.first()) == {"llguidance"}


def test_law_10_nothing_volatile_is_in_a_table() -> None:
    volatile = ("time", "date", "path", "host", "seconds", "duration")
    for table, schema in schemas.SCHEMAS.items():
        for column in schema:
            assert not any(word in column.split("_") for word in volatile), (table, column)


def test_every_table_has_its_order() -> None:
    assert schemas.SORT_KEYS.keys() == schemas.SCHEMAS.keys()
    for table, keys in schemas.SORT_KEYS.items():
        assert set(keys) <= schemas.SCHEMAS[table].keys()
