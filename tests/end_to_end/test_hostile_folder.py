"""A `pipeline.py` or `pipeline/` in the working folder: no process of the project imports it.

Earlier versions did. Children were started as `-m pipeline.worker`, which looks into the working
folder first, and a launcher's process unpickled its jobs by module name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from support.command import ROOT
from support.damaged_ggufs import tiny_spm

TRAP = 'open({mark!r}, "w").close()\nraise SystemExit("the wrong pipeline")\n'
QUICK = ("audit.walks=1", "audit.strings_suite=null", "engine.max_tokens=8", "grammar.limit=1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with two traps. A trap that is run creates the file `mark`."""
    here = tmp_path / "here"
    for name in ("pipeline.py", "pipeline/__init__.py"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(TRAP.format(mark=str(here / "mark")), "utf-8")
    return here


def commanded(folder: Path, *arguments: str, safe: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command in that folder. `safe` stops only this process from importing from there."""
    python = [sys.executable, *(["-P"] if safe else []), "-m", "pipeline"]
    return subprocess.run(
        [*python, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def whole(folder: Path, done: subprocess.CompletedProcess[str]) -> pl.DataFrame:
    """The cells of the run named `run`, after a check that it succeeded and met no trap."""
    assert not (folder / "mark").exists()
    assert done.returncode == 0, done.stderr
    return pl.read_parquet(folder / "results" / "run" / "cells.parquet")


@pytest.mark.parametrize("left", ["pipeline.py", "pipeline/__init__.py"])
def test_each_trap_is_one(folder: Path, left: str) -> None:
    for name in {"pipeline.py", "pipeline/__init__.py"} - {left}:
        (folder / name).unlink()
    assert "the wrong pipeline" in commanded(folder, "run", safe=False).stderr
    assert (folder / "mark").exists()


def test_workers_and_what_they_start_read_their_own_package(folder: Path) -> None:
    """Processes of workers, of their children that try tokenizations, of reference tokenizers and
    of released packages. One package runs under another interpreter, given by its path."""
    tiny_spm(folder / "doubtful.gguf", byte_tokens=False)
    done = commanded(
        folder,
        *("run", "run.name=run", "tokenizer=path", "tokenizer.path=doubtful.gguf", *QUICK),
        *("builder=[fixed,llguidance_hf]", f"builder.python={sys.executable}"),
        *("audit.engines=[gbnf]", "audit.references=[here]"),
    )
    cells = whole(folder, done)
    assert set(cells["builder"]) == {"fixed", "llguidance_hf"}
    again = commanded(folder, "audit", "run.name=audit", "tokenizer=mistral_v1", *QUICK[:2])
    assert (again.returncode, (folder / "mark").exists()) == (0, False), again.stderr


def test_a_server_and_its_leash_read_their_own_package(folder: Path) -> None:
    pytest.importorskip("xllamacpp", reason="pip install -c constraints.txt -e '.[server]'")
    done = commanded(
        folder, "run", "run.name=run", "target=server", "grammar=forced_literal", *QUICK
    )
    assert set(whole(folder, done)["builder"]) == {"xllamacpp"}


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["submitit_local", "ray"])
def test_a_launchers_jobs_read_their_own_package(launcher: str, folder: Path) -> None:
    done = commanded(
        folder,
        *("run", "-m", "run.name=run", "tokenizer=llama_spm,mistral_v1", "stages=[generate]"),
        *("grammar=forced_literal", "engine.oracle=off", *QUICK[2:], f"hydra/launcher={launcher}"),
        *(["+hydra.launcher.ray.init.num_cpus=2"] if launcher == "ray" else []),
    )
    assert set(whole(folder, done)["tokenizer"]) == {"llama_spm", "mistral_v1"}


@pytest.mark.cluster
@pytest.mark.slow
def test_a_setting_of_the_wrong_type_is_refused_in_a_launchers_process_too(tmp_path: Path) -> None:
    """A launcher receives settings without types, so a job's settings are checked where it runs."""
    done = commanded(
        tmp_path,
        *("run", "-m", "run.name=run", "tokenizer=llama_spm,mistral_v1", "stages=[generate]"),
        *("engine.max_tokens=many", "hydra/launcher=submitit_local"),
    )
    assert done.returncode == 2
    assert "Value 'many' of type 'str' could not be converted to Integer" in done.stderr
    assert "Traceback" not in done.stderr
