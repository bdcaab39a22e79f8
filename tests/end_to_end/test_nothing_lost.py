"""Crashes, limits and interruptions: every row that a run owes is in its tables, exactly once."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from support import damaged_ggufs as faults
from support.command import QUICK, ROOT, Finished, pipeline
from support.hub_server import serve_hub

sys.path.append(str(ROOT / "scripts"))
import fuzz_files
from pipeline.cli import sweep as sweeping
from pipeline.cli.sweep import Sweep
from pipeline.model.errors import ConfigError
from pipeline.results.tables import parquet, schemas
from pipeline.runs.parent.command import Command
from pipeline.vocab.files import forge, gguf

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
    """Assert that no worker of a run in this folder is left, and no temporary file."""
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
    """A regex that backtracks endlessly holds Python's global lock: only the parent can end it."""
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


DIES = """import os, signal, sys
def strike(frame, event, _):
    if event == "call" and frame.f_code.co_name == "{function}":
        os.kill(os.getpid(), signal.SIGABRT)
if "runs.worker" in sys.orig_argv:
    sys.setprofile(strike)
"""


@pytest.mark.parametrize(
    ("function", "table"),
    [
        ("_flag_rows", "prefix"),
        ("_findings", "engines"),
        ("_vocabulary_facts", "tokenizers"),
        ("_planned", "walks"),
    ],
)
def test_a_death_in_a_stage_costs_the_rows_of_that_stage_alone(
    tmp_path: Path, plain: Path, function: str, table: str
) -> None:
    """In earlier versions, `prefix`, `engines` and the work shared by an audit's builders were not
    units, so a crash there also lost the rows of all other stages."""
    (tmp_path / "sitecustomize.py").write_text(DIES.format(function=function), "utf-8")
    engines = ("audit.engines=[gbnf]", "audit.walks=2")
    arguments = given(tmp_path, plain, GOOD, "builder=fixed", *engines)
    done = pipeline(tmp_path, "run", *arguments, env={"PYTHONPATH": os.fspath(tmp_path)})
    assert done.code == 1, done.err
    [row] = done.table(table).to_dicts()
    assert row.pop("status") == "crashed"
    assert "SIGABRT" in row.pop("reason") and "SIGABRT" in done.out
    names = {name for name, value in row.items() if value is not None}
    assert names <= {"tokenizer", "builder", "engine"}, "no other value is invented"
    for other in {"prefix", "engines", "walks"} - {table}:
        assert done.table(other).height > 1
    if table != "tokenizers":
        assert done.table("tokenizers")["status"].to_list() == ["ok"]
    assert verdicts(done) == {("good", "fixed"): "ok"}
    assert json.loads((done.folder / "manifest.json").read_text())["lost"] == 1


# --- limits ---------------------------------------------------------------------------------------


def test_a_grammar_too_slow_to_compile_is_a_timeout_of_its_case(
    tmp_path: Path, plain: Path
) -> None:
    """A compile call cannot be interrupted: the worker exits and reports the case."""
    wide = " | ".join(f'"w{i}x"' for i in range(60_000))
    bad = entry("bad", wide, 'literal: "a"', more=", stress: true")
    limit = "engine.case_limit=0.3"
    done = pipeline(tmp_path, "run", *given(tmp_path, plain, bad + FINE, "builder=fixed", limit))
    assert verdicts(done) == {("bad", "fixed"): "timeout", ("fine", "fixed"): "ok"}
    [reason] = done.table("cells").filter(case="bad")["reason"]
    assert "engine.case_limit" in reason
    assert done.code == 0, "a limit that the user has set is no loss"


def test_time_and_budget_are_verdicts(tmp_path: Path, plain: Path) -> None:
    arguments = given(tmp_path, plain, GOOD + FINE, "builder=fixed", "stages=[generate]")
    slow = pipeline(tmp_path, "run", *arguments, "engine.case_limit=1e-9", "run.name=slow")
    assert set(verdicts(slow).values()) == {"timeout"}
    assert slow.code == 0
    poor = pipeline(tmp_path, "run", *arguments, "run.budget=0.1", "run.name=poor")
    assert set(verdicts(poor).values()) == {"timeout"}
    assert poor.code == 1
    assert "run.budget" in poor.table("cells")["reason"][0]


# --- interruption and resume ----------------------------------------------------------------------


def begun(
    results: Path, arguments: list[str], until: str, sent: int, *, stopped: bool = False
) -> int:
    """Start a run, send it the signal `sent` once a journal matches `until`; return its exit code.

    `stopped` first suspends all processes that the run has started.
    """
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
            assert process.poll() is None, "the run ended too early"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        for worker in _workers(results) if stopped else ():
            if worker != str(process.pid):
                os.kill(int(worker), signal.SIGSTOP)
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
    for table in schemas.SCHEMAS:
        assert parquet.read(folder, table).height == manifest["rows"][table], "a valid table"
    assert parquet.read(folder, "tokenizers").height >= 1, "finished units are in the table"
    before = (folder / "parts" / "tiny--plain.jsonl").read_bytes()

    sides = [f"before.run={whole.folder}", f"after.run={folder}"]
    command = [sys.executable, "-m", "pipeline", "compare", *sides]
    compared = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert compared.returncode == 2
    assert "interrupted, not complete" in compared.stderr
    resumed = pipeline(results, "run", "resume=run")
    assert resumed.code == 0, resumed.err
    assert (folder / "parts" / "tiny--plain.jsonl").read_bytes().startswith(before)
    for table in schemas.SCHEMAS:
        assert_frame_equal(whole.table(table), parquet.read(folder, table))
    first, second = (
        json.loads((each / "manifest.json").read_text()) for each in (whole.folder, folder)
    )
    first.pop("volatile")
    second.pop("volatile")
    assert first == second


def test_ctrl_c_that_a_library_makes_an_error_of_its_own_is_still_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """OmegaConf turned a Ctrl-C into an error about the settings, and the exit code was 2."""

    def interrupted(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ConfigError("'NoneType' object has no attribute") from None

    monkeypatch.setattr(sweeping, "_hydra", interrupted)
    sweep = Sweep(Command("run", (f"results_dir={tmp_path}",), "/"))
    assert sweep.run() == 128 + signal.SIGINT
    assert "NoneType" not in capsys.readouterr().err


def test_resume_does_no_stage_twice(tmp_path: Path, sweep: list[str]) -> None:
    results = tmp_path / "results"
    arguments = [*sweep, "audit.engines=[gbnf]"]
    assert begun(results, arguments, r'"done", "unit": \["engine"', signal.SIGKILL) == -9
    assert pipeline(results, "run", "resume=run").code == 0
    for part in (results / "run" / "parts").glob("*.jsonl"):
        said = part.read_text("utf-8")
        for unit in ('["prefix"]', '["engine", "gbnf"]'):
            assert said.count(f'"started", "unit": {unit}') == 1
            assert said.count(f'"done", "unit": {unit}') == 1


def test_a_worker_that_can_notice_nothing_ends_with_its_parent(
    tmp_path: Path, sweep: list[str]
) -> None:
    """A suspended worker is like one without free memory: none of its threads runs any more."""
    results = tmp_path / "results"
    begun(results, sweep, r'"type": "hello"', signal.SIGKILL, stopped=True)
    nothing_left(results)


def test_a_run_over_other_files_is_not_gone_on_with(tmp_path: Path, sweep: list[str]) -> None:
    results = tmp_path / "results"
    assert begun(results, sweep, r'"started"', signal.SIGKILL) == -signal.SIGKILL
    nothing_left(results)
    folder = results / "run"
    assert not (folder / "manifest.json").exists(), "a killed run has no manifest"
    suite = tmp_path / "small.yaml"
    text = suite.read_text("utf-8")
    suite.write_text(text.replace("Small.", "Other."), "utf-8")
    refused = pipeline(results, "run", "resume=run")
    assert refused.code == 2
    assert f"suite file {suite} was" in refused.err
    assert not (folder / "manifest.json").exists()
    suite.write_text(text, "utf-8")
    assert pipeline(results, "run", "resume=run").code == 0
    assert json.loads((folder / "manifest.json").read_text())["status"] == "complete"
    empty = [path.name for path in folder.rglob("*") if path.is_file() and not path.stat().st_size]
    assert all(name.endswith("lock") for name in empty), "there is an empty log"


def test_two_runs_at_once_share_folder_cache_and_download(tmp_path: Path, plain: Path) -> None:
    weights = forge.forge_model(plain, 0, tmp_path / "forge")
    repository, file = "HuggingFaceTB/none", "model.gguf"
    left = tmp_path / "cache" / "downloads" / "tmp-killed"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    asked: list[str] = []
    with serve_hub({f"{repository}/{file}": weights}, asked) as url:
        env = os.environ | {"HF_ENDPOINT": url, "BYTE_EXACT_CACHE": str(tmp_path / "cache")}
        own = [f"model.repo={repository}", f"model.file={file}", "model.sha256=null"]
        given_ = [*given(tmp_path, plain, GOOD)[2:], "model=tinyllama", *own, "builder=fixed"]
        command = [sys.executable, "-m", "pipeline", "run", *given_, f"results_dir={tmp_path}"]
        both = [
            subprocess.Popen(command, cwd=ROOT, env=env, stdout=-1, stderr=-1, text=True)
            for _ in range(2)
        ]
        for process in both:
            _, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
    fetched = [each for each in asked if re.match(f"GET /{repository}/resolve/.*/{file}", each)]
    assert len(fetched) == 1, f"one run must download and the other wait: {asked}"
    runs = [path.parent for path in tmp_path.glob("*/manifest.json")]
    assert len(runs) == 2
    first, second = (parquet.read(run, "cells") for run in runs)
    assert_frame_equal(first, second)
    assert not left.exists(), "the files of a killed download are removed"


# --- files from strangers -------------------------------------------------------------------------

EVIL = "\x1b]0;owned\x07\x1b[31mred"


def test_control_characters_of_a_file_never_reach_the_terminal(tmp_path: Path, plain: Path) -> None:
    """Control characters in a message of llama.cpp and in a file's name."""
    bad = tmp_path / f"{EVIL}.gguf"
    entries = {faults.PRE: EVIL, faults.MODEL: "gpt2"}
    faults.rewrite(plain, bad, {key: gguf.text(key, value) for key, value in entries.items()})
    path = f'tokenizer.path="{bad}"'
    alone = pipeline(tmp_path, "audit", "tokenizer=path", path, "builder=fixed", *QUICK)
    many = pipeline(
        tmp_path, "audit", "-m", "tokenizer=path", path, "builder=fixed", *QUICK, "run.name=many"
    )
    for done in (alone, many):
        assert done.code == 2
        assert "owned" in done.out + done.err
        assert not {"\x1b", "\x07"} & set(re.sub("\x1b\\[A", "", done.out + done.err))


def test_memory_is_limited(tmp_path: Path) -> None:
    """128,256 tokens and their table do not fit into 0.25 GiB."""
    limit = ["builder=[fixed]", *QUICK, "runtime.memory_limit=0.25"]
    done = pipeline(tmp_path, "audit", "-m", "tokenizer=llama_bpe", *limit)
    assert done.code in (1, 2), done.err
    [status] = done.table("tokenizers")["status"]
    assert status in {"crashed", "load_refused"}


# --- the scripts, in short ------------------------------------------------------------------------


def script(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / f"{name}.py", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_faults_at_seeded_points_lose_and_double_nothing() -> None:
    said = script("fault_injection", "--points", "2", "--seed", "7").splitlines()
    assert said[-1] == "lost=0 doubled=0 parent_died=0 untyped=0"
    assert sum(": exit" in line for line in said) == 2


def test_a_count_that_lies_takes_no_memory_of_the_script() -> None:
    """A list of 2,000 million empty items took 17 GB, and a longer list never ended."""
    claimed = struct.pack("<IQ", gguf.F32, 2**31 - 1) + bytes(8)
    with pytest.raises(struct.error):
        fuzz_files.items_of(fuzz_files.Entry(b"scores", gguf.ARRAY, claimed))


def test_hostile_files_and_grammars_all_get_their_rows() -> None:
    said = script("fuzz_inputs", "--files", "4", "--grammars", "20", "--seed", "5").splitlines()
    assert said[-1] == "lost=0 doubled=0 parent_died=0 untyped=0"
    assert any(line.startswith("| all files |") for line in said)
