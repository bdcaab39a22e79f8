"""The real command, run as a user runs it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

ROOT = Path(__file__).parents[2]


QUICK = ("audit.walks=0", "audit.strings_suite=null", "engine.oracle=off")
"""Settings that skip the proofs, for tests of other things."""
GENERATE = ("stages=[generate]", "engine.oracle=off")
"""Settings for tests of generation alone."""


@dataclass(frozen=True)
class Finished:
    """A finished command."""

    code: int
    out: str
    err: str
    folder: Path
    """The run's folder, which may not exist."""

    def table(self, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.folder / f"{name}.parquet")


def pipeline(results: Path, *arguments: str, env: dict[str, str] | None = None) -> Finished:
    """Run the real `python -m pipeline …`; the run's name is `run` unless the arguments set one."""
    named = {a.partition("=")[0]: a.partition("=")[2] for a in arguments}
    given = [*arguments]
    if "run.name" not in named:
        given.append("run.name=run")
    if "results_dir" not in named:
        given.append(f"results_dir={results}")
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", *given],
        cwd=ROOT,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return Finished(
        done.returncode, done.stdout, done.stderr, results / named.get("run.name", "run")
    )


def rerun_arguments(run: Finished, row: dict[str, Any]) -> list[str]:
    """The arguments of a reproducer's command, with the path of its file in the run's folder."""
    arguments = shlex.split(row["command"])[3:]
    place = arguments.index(f"grammar.path={row['file']}")
    arguments[place] = f"grammar.path={run.folder / row['file']}"
    return arguments
