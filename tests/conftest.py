"""What the tests share: real vocabularies by name, and the real command."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from filelock import FileLock

from pipeline import builders, forge, llama, sources, vocabulary
from pipeline.builders import Material, TokenTable
from pipeline.constraint import Llguidance
from pipeline.foreign import Package
from pipeline.masks import MaskJudge
from pipeline.oracle import TokenOracle
from pipeline.vocabulary import Vocabulary

# A proxy or an offline switch of the user's must not reach the tests' own servers on loopback.
os.environ.pop("HF_HUB_OFFLINE", None)
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"

ROOT = Path(__file__).parent.parent


QUICK = ("audit.walks=0", "audit.strings_suite=null", "engine.oracle=off")
"""Settings that leave the proofs out, for tests of something else."""
GENERATE = ("stages=[generate]", "engine.oracle=off")
"""Settings for tests of generation alone."""


@cache
def vocabulary_file(name: str) -> Path:
    """The GGUF of a tokenizer of `conf/tokenizer`, fetched if need be."""
    fields = yaml.safe_load((ROOT / "conf" / "tokenizer" / f"{name}.yaml").read_text("utf-8"))
    found = sources.resolve(
        sources.Source(**fields | {"members": tuple(fields["members"])}), progress=False
    )
    if found.format == "sentencepiece":
        return forge.vocabulary_of(found.path, sources.cache_dir())
    return found.path


@dataclass(frozen=True)
class Opened:
    """A vocabulary in this process, and an engine for its tables."""

    model: llama.Model
    vocabulary: Vocabulary
    engine: Llguidance

    @cached_property
    def judge(self) -> MaskJudge:
        """A judge of its masks that has all the time in the world."""
        return MaskJudge(self.vocabulary, TokenOracle(self.vocabulary.rendered), budget=1e9)

    @property
    def material(self) -> Material:
        return Material(self.vocabulary, self.model.vocab, lambda _: True)

    def table(self, builder: str) -> TokenTable:
        return builders.get(builder).build(self.material)


@pytest.fixture(scope="session")
def open_vocabulary() -> Iterator[Callable[[str], Opened]]:
    """Open a vocabulary by name, once a session; only files known to be good."""
    llama.start()
    with ExitStack() as stack:

        @cache
        def opened(name: str) -> Opened:
            model = stack.enter_context(
                closing(llama.Model(vocabulary_file(name), vocab_only=True))
            )
            engine = stack.enter_context(closing(Llguidance()))
            return Opened(model, vocabulary.read(model), engine)

        yield opened


@dataclass(frozen=True)
class Finished:
    """A finished command."""

    code: int
    out: str
    err: str
    folder: Path
    """The run's folder, whether or not it is there."""

    def table(self, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.folder / f"{name}.parquet")


def pipeline(results: Path, *arguments: str, env: dict[str, str] | None = None) -> Finished:
    """Run `python -m pipeline …` for real, its run named `run` unless the arguments say else."""
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


def present(get: Callable[[str], object], *names: str) -> list[str]:
    """Those of the builders or engines whose package is installed, or that need none."""
    found: list[str] = []
    for name in names:
        made = get(name)
        try:
            if isinstance(made, Package):
                made.made_by()
            found.append(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def again(run: Finished, row: dict[str, Any]) -> list[str]:
    """The arguments of a reproducer's command, its file where it lies."""
    arguments = shlex.split(row["command"])[3:]
    place = arguments.index(f"grammar.path={row['file']}")
    arguments[place] = f"grammar.path={run.folder / row['file']}"
    return arguments


@pytest.fixture(scope="session")
def default_run(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Finished:
    """The main job: `python -m pipeline run`, all defaults; once, whichever worker asks first."""
    shared = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        shared = shared.parent
    said = shared / "default_run.json"
    with FileLock(shared / "default_run.lock"):
        if not said.exists():
            done = pipeline(shared / "default", "run")
            said.write_text(json.dumps([done.code, done.out, done.err, str(done.folder)]))
        code, out, err, folder = json.loads(said.read_text())
    return Finished(code, out, err, Path(folder))
