"""The design's laws, each kept by a test (laws 1–4 and 6–10)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import polars as pl
import pytest

from pipeline.model.outcome import Facts
from pipeline.results.tables import schemas
from pipeline.results.tables.words import WORDS
from support.command import ROOT, Finished

PACKAGE = ROOT / "pipeline"
TREES = {
    path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text("utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}


def full_name(file: str) -> tuple[str, ...]:
    """The module path of a file, without the top-level package's name."""
    parts = Path(file).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


MODULES = {full_name(file): file for file in TREES}


def taken(file: str, node: ast.ImportFrom) -> Iterator[tuple[str, ...]]:
    """The modules of the project, or names in them, that a relative import imports."""
    here = full_name(file)
    here = here if Path(file).name == "__init__.py" else here[:-1]
    base = (*here[: len(here) - node.level + 1], *filter(None, (node.module or "").split(".")))
    for alias in node.names:
        yield (*base, alias.name)


def imports(file: str) -> set[str]:
    """The third-party top-level packages that a file imports, and our modules by full name."""
    found: set[str] = set()
    for node in ast.walk(TREES[file]):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            for name in taken(file, node):
                found.add("/".join(name if name in MODULES else name[:-1]))
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


FILES = {file: imports(file) for file in TREES}


def loaded(modules: str, *unwanted: str) -> str:
    """The unwanted packages that a fresh interpreter has loaded after importing our modules."""
    code = f"import sys, {modules}; print([m for m in {unwanted!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def who(*packages: str) -> set[str]:
    return {name for name, found in FILES.items() if found & set(packages)}


def test_law_1_only_the_commands_know_hydra() -> None:
    assert who("hydra", "omegaconf")
    assert all(name.startswith("cli/") for name in who("hydra", "omegaconf"))


def test_law_2_checkers_and_languages_know_no_token_table() -> None:
    for name in ("grammars/checkers.py", "grammars/languages.py"):
        packages = {own.split("/")[0] for own in FILES[name]}
        assert not packages & {"vocab", "engines", "audit", "generation", "native"}
    assert not FILES["grammars/checkers.py"] & {"llguidance", "grammars/languages"}


@pytest.mark.parametrize(
    "module",
    [
        *("tables.parquet", "summary.console", "compare.comparison", "compare.formats"),
        *("compare.baseline", "report"),
    ],
)
def test_law_3_what_reads_tables_loads_no_native_library(module: str) -> None:
    assert loaded(f"pipeline.results.{module}", "llama_cpp", "llguidance") == "[]"


def test_law_4_only_native_touches_ctypes() -> None:
    names = ("context", "grammar_sampler", "llama", "llguidance")
    assert who("ctypes", "llama_cpp") == {f"native/{name}.py" for name in names}


def test_imports_of_ours_are_relative() -> None:
    """The package may be renamed, and a folder's own `pipeline.py` must not be imported instead."""
    for file, found in FILES.items():
        assert "pipeline" not in found, file


def test_what_is_imported_in_a_function_says_why() -> None:
    """Allowed only where a heavy or optional library must not be loaded; a comment says which."""
    for file, tree in TREES.items():
        lines = (PACKAGE / file).read_text("utf-8").splitlines()
        for outer in ast.walk(tree):
            if isinstance(outer, ast.FunctionDef):
                for node in ast.walk(outer):
                    if isinstance(node, ast.ImportFrom) and node.level:
                        near = lines[node.lineno - 2 : node.end_lineno]
                        assert any("#" in line for line in near), f"{file}:{node.lineno}"


def test_modules_that_are_started_by_name_lie_in_the_same_package_or_below() -> None:
    """The laws also hold for modules that are named in a string: `own("runs.worker")`."""
    order = [line.split()[0] for line in map_of_the_house()]
    started = 0
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                if called == "own" and isinstance(node.args[0], ast.Constant):
                    there = tuple(str(node.args[0].value).split("."))
                    assert there in MODULES or (*there, "__main__") in MODULES, there
                    assert order.index(there[0]) <= order.index(file.split("/")[0]), file
                    started += 1
    assert started >= 4


def map_of_the_house() -> list[str]:
    """The lines of the package's docstring that name the packages, the lowest first."""
    text = (ast.get_docstring(TREES["__init__.py"]) or "").splitlines()
    first = next(n for n, line in enumerate(text) if line.startswith("    model "))
    return text[first : first + 11]


def test_the_map_names_every_package() -> None:
    packages = {file.split("/")[0] for file in TREES if "/" in file}
    assert {line.split()[0] for line in map_of_the_house()} == packages
    for file, tree in TREES.items():
        if Path(file).name == "__init__.py":
            assert ast.get_docstring(tree), file


def test_others_take_from_a_package_what_it_offers() -> None:
    """Other packages import only what `__all__` lists: modules, and names of the package itself."""
    offered = {package: offers(package) for package in MODULES if is_package(package)}
    for package, names in offered.items():
        for name in names:
            there = (*package, name) in MODULES or name in defined(package)
            assert there, f"{package}: {name} is in __all__ and is not defined"
    for file, tree in TREES.items():
        here = full_name(file)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                for name in taken(file, node):
                    for n in range(1, len(name)):
                        package = name[:n]
                        outside = here[:n] != package
                        if outside and package in offered:
                            assert name[n] in offered[package], f"{file} takes {'.'.join(name)}"


def is_package(module: tuple[str, ...]) -> bool:
    return bool(module) and MODULES[module].endswith("__init__.py")


def offers(package: tuple[str, ...]) -> list[str]:
    """The `__all__` of a package."""
    for node in TREES[MODULES[package]].body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise AssertionError(f"{'.'.join(package)} has no __all__")


def defined(package: tuple[str, ...]) -> set[str]:
    """The names that a package's own file defines or imports."""
    found: set[str] = set()
    for node in TREES[MODULES[package]].body:
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef | ast.ClassDef):
                found.add(inner.name)
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                found.add(inner.id)
            elif isinstance(inner, ast.alias):
                found.add(inner.asname or inner.name)
    return found


def test_a_function_or_constant_that_is_nobody_elses_begins_with_an_underscore() -> None:
    """Classes and types are excluded: another module can use their objects without their name."""
    spoken: Counter[str] = Counter()
    for path in [
        *ROOT.glob("tests/**/*.py"),
        *ROOT.glob("scripts/**/*.py"),
        *PACKAGE.rglob("*.py"),
    ]:
        tree = ast.parse(path.read_text("utf-8"))
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        names |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        names |= {
            n.value
            for n in ast.walk(tree)
            if isinstance(n, ast.Constant) and isinstance(n.value, str)
        }
        names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        names |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        spoken.update(names)
    alone: list[str] = []
    for file, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                names = {node.name}
            elif isinstance(node, ast.Assign):
                names = {t.id for t in node.targets if isinstance(t, ast.Name)}
            else:
                continue
            names = {name for name in names if name.islower() or name.isupper()}
            alone += [f"{file}: {name}" for name in names if name[0] != "_" and spoken[name] == 1]
    assert not alone


def test_nothing_is_unpickled_and_nothing_forks() -> None:
    """A fork copies the locks that native libraries hold, but not the threads that release them."""
    assert who("pickle", "marshal", "shelve", "dill", "cloudpickle", "multiprocessing") == set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        assert not any(word in text for word in ("os.fork", "forkpty", "preexec_fn")), path


def test_the_worker_imports_neither_polars_nor_hydra() -> None:
    assert (
        loaded(
            "pipeline.runs.worker.__main__, pipeline.runs.worker.job",
            "polars",
            "hydra",
            "omegaconf",
        )
        == "[]"
    )


def test_the_parent_loads_no_native_library() -> None:
    assert loaded("pipeline.cli.run", "llama_cpp", "llguidance") == "[]"


def test_law_6_a_token_is_its_id(default_run: Finished) -> None:
    """Thousands of tokens share bytes, so only the id identifies a row."""
    tokens = default_run.table("tokens").filter(builder="unfixed")
    assert tokens["token"].n_unique() == tokens.height
    assert tokens["claimed"].n_unique() < tokens.height


def test_law_7_verdicts_are_a_closed_frozen_set(default_run: Finished) -> None:
    looked: set[str] = set()
    for (table, column), known in WORDS.items():
        found = set(default_run.table(table)[column].drop_nulls())
        assert found <= known, (table, column)
        looked |= {table} if found else set()
    assert looked >= {"cells", "steps", "tokenizers", "states", "walks", "strings", "prefix"}
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
