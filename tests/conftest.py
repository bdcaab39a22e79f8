"""What every test may ask for: real vocabularies by name, and the main job, run once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

from pipeline.engines.llguidance import Llguidance
from pipeline.native import llama
from pipeline.vocab import vocabulary
from support.command import Finished, pipeline
from support.vocabularies import Opened, vocabulary_file

# A proxy or an offline switch of the user's must not reach the tests' own servers on loopback.
os.environ.pop("HF_HUB_OFFLINE", None)
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"


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
