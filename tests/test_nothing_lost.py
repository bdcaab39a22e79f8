"""Crashes, limits, interruptions: whatever happens, every row that is owed is there, once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import gguf_faults as faults
import pytest
from conftest import QUICK, ROOT, Finished, pipeline
from polars.testing import assert_frame_equal

from pipeline import tables

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc as Linux has")

ONE = """suite: small
about: Small.
cases:
"""


def entry(name: str, grammar: str, check: str, prompt: str = "Hello", more: str = "") -> str:
    return (
        f"  - {{id: {name}, prompt: \"{prompt}\", grammar: {{lark: 'start: {grammar}'}}, "
        f"check: {{{check}}}{more}}}\n"
    )


GOOD = entry("good", '"he said no"', 'literal: "he said no"')
FINE = entry("fine", '/[a-c]{2,4}/ "!"', "regex: '[a-c]{2,4}!'")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A vocabulary of a few hundred tokens."""
    return faults.tiny_spm(tmp_path / "plain.gguf", byte_tokens=True)


def given(folder: Path, vocabulary: Path, cases: str, *more: str) -> list[str]:
    file = folder / "small.yaml"
    file.write_text(ONE + cases, "utf-8")
    suite = ["grammar=path", f"grammar.path={file}"]
    return ["tokenizer=path", f"tokenizer.path={vocabulary}", *suite, *QUICK, *more]


def verdicts(done: Finished) -> dict[tuple[str, str], str]:
    rows = done.table("cells").select("case", "builder", "verdict").iter_rows()
    return {(case, builder): verdict for case, builder, verdict in rows}


def nothing_left(folder: Path) -> None:
    """No worker of a run under this folder, and no temporary file in it."""
    deadline = time.monotonic() + 10
    while (left := list(_workers(folder))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert list(folder.rglob(".*")) == []


def _workers(folder: Path) -> list[str]:
    mark, found = f"BYTE_EXACT_MARK={folder}".encode(), list[str]()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environ.read_bytes():
                found.append(environ.parent.name)
        except OSError:
            continue
    return found


# --- culprits -------------------------------------------------------------------------------------


def test_a_case_that_aborts_llama_cpp_costs_its_own_cells_alone(tmp_path: Path) -> None:
    """A prompt with a character that the vocabulary cannot spell: `llama_tokenize` throws."""
    vocabulary = faults.tiny_spm(tmp_path / "no_bytes.gguf", byte_tokens=False)
    bad = entry("bad", '"a"', 'literal: "a"', prompt="\u00e9")
    builders = "builder=[attr_special,fixed]"
    arguments = given(tmp_path, vocabulary, GOOD + bad + FINE, builders, "stages=[generate]")
    done = pipeline(tmp_path, "run", *arguments)
    assert done.code == 1, done.err
    found = verdicts(done)
    assert {key for key, verdict in found.items() if verdict == "crashed"} == {
        ("bad", "attr_special"),
        ("bad", "fixed"),
    }
    assert set(found) == {
        (case, builder) for case in ("good", "bad", "fine") for builder in ("attr_special", "fixed")
    }
    [reason] = set(done.table("cells").filter(verdict="crashed")["reason"])
    assert "SIGABRT" in reason
    manifest = json.loads((done.folder / "manifest.json").read_text())
    assert (manifest["status"], manifest["lost"]) == ("complete", 2)


def test_a_checker_that_hangs_is_a_timeout_and_the_rest_goes_on(
    tmp_path: Path, plain: Path
) -> None:
    """A regex that backtracks for ever holds Python's own lock: only the parent can end it."""
    literal = "a" * 40 + "!"
    bad = entry("bad", f'"{literal}"', "regex: '(a+)+b'")
    done = pipeline(
        tmp_path,
        "run",
        *given(tmp_path, plain, bad + FINE, "builder=fixed", "engine.time_limit=3"),
    )
    assert done.code == 1, done.err
    assert verdicts(done) == {("bad", "fixed"): "timeout", ("fine", "fixed"): "ok"}
    [reason] = done.table("cells").filter(case="bad")["reason"]
    assert "nothing for 3 s" in reason


# --- limits ---------------------------------------------------------------------------------------


def test_a_grammar_too_slow_to_compile_is_a_timeout_of_its_case(
    tmp_path: Path, plain: Path
) -> None:
    """The call that compiles cannot be stopped: the worker ends itself and says in which case."""
    wide = " | ".join(f'"w{i}x"' for i in range(60_000))
    bad = entry("bad", wide, 'literal: "a"', more=", stress: true")
    limit = "engine.case_limit=0.3"
    done = pipeline(tmp_path, "run", *given(tmp_path, plain, bad + FINE, "builder=fixed", limit))
    assert verdicts(done) == {("bad", "fixed"): "timeout", ("fine", "fixed"): "ok"}
    [reason] = done.table("cells").filter(case="bad")["reason"]
    assert "engine.case_limit" in reason


def test_time_and_tokens_and_budget_are_verdicts(tmp_path: Path, plain: Path) -> None:
    arguments = given(tmp_path, plain, GOOD + FINE, "builder=fixed", "stages=[generate]")
    slow = pipeline(tmp_path, "run", *arguments, "engine.case_limit=1e-9", "run.name=slow")
    assert set(verdicts(slow).values()) == {"timeout"}
    assert slow.code == 0, "a limit that was asked for is no loss"
    short = pipeline(tmp_path, "run", *arguments, "engine.max_tokens=2", "run.name=short")
    assert set(verdicts(short).values()) == {"truncated"}
    poor = pipeline(tmp_path, "run", *arguments, "run.budget=0.1", "run.name=poor")
    assert set(verdicts(poor).values()) == {"timeout"}
    assert poor.code == 1
    assert "run.budget" in poor.table("cells")["reason"][0]


# --- interruption and resume ----------------------------------------------------------------------


def begun(results: Path, arguments: list[str], until: str, sent: int) -> int:
    """Start a run, end it by a signal once its journals hold some text; its exit code."""
    env = os.environ | {"BYTE_EXACT_MARK": str(results)}
    command = [sys.executable, "-m", "pipeline", *arguments, f"results_dir={results}"]
    with subprocess.Popen(
        [*command, "run.name=run"], cwd=ROOT, env=env, stdout=-3, stderr=-3
    ) as process:
        deadline = time.monotonic() + 60
        while not any(
            re.search(until, part.read_text("utf-8", "replace"))
            for part in (results / "run" / "parts").glob("*.jsonl")
        ):
            assert process.poll() is None, "it ended too early"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(sent)
        return process.wait(60)


@pytest.fixture
def sweep(tmp_path: Path, plain: Path) -> list[str]:
    """The arguments of a sweep over two vocabularies."""
    other = faults.tiny_spm(tmp_path / "other.gguf", byte_tokens=True, add_space_prefix=True)
    return ["run", "-m", *given(tmp_path, plain, GOOD + FINE), f"tokenizer.path={plain},{other}"]


def test_interrupted_then_resumed_equals_undisturbed(tmp_path: Path, sweep: list[str]) -> None:
    whole = pipeline(tmp_path / "whole", *sweep)
    assert whole.code == 0, whole.err
    results = tmp_path / "results"
    code = begun(results, sweep, r'"done", "unit": \["audit"', signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    nothing_left(results)
    folder = results / "run"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "interrupted"
    for table in tables.SCHEMAS:
        assert tables.read(folder, table).height == manifest["rows"][table], "a valid table"
    assert tables.read(folder, "tokenizers").height >= 1, "what was done is in it"
    before = (folder / "parts" / "tiny--plain.jsonl").read_bytes()

    sides = [f"before.run={whole.folder}", f"after.run={folder}"]
    command = [sys.executable, "-m", "pipeline", "compare", *sides]
    compared = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert compared.returncode == 2
    assert "interrupted, not complete" in compared.stderr
    other = pipeline(results, "run", "resume=run", "builder=[fixed]")
    assert other.code == 2
    assert "builder=[fixed] is not among them" in other.err

    resumed = pipeline(results, "run", "resume=run")
    assert resumed.code == 0, resumed.err
    assert (folder / "parts" / "tiny--plain.jsonl").read_bytes().startswith(before)
    for table in tables.SCHEMAS:
        assert_frame_equal(whole.table(table), tables.read(folder, table))
    first, second = (
        json.loads((each / "manifest.json").read_text()) for each in (whole.folder, folder)
    )
    first.pop("volatile"), second.pop("volatile")
    assert first == second
