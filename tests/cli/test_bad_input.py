"""Bad input gives one clear paragraph and exit code 2, and leaves no partial results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipeline.cli import help as help_
from pipeline.runs.parent import collect
from pipeline.runs.parent.settings import Settings
from support.command import GENERATE, QUICK, Finished, pipeline
from support.report_runs import made, row
from support.vocabularies import vocabulary_file

DEAD = {"HF_ENDPOINT": "http://127.0.0.1:9"}
"""Address of a hub that does not answer."""

SUITE = """suite: mine
about: one
cases:
  - id: one
    prompt: "Hello"
    grammar: {lark: 'start: "a"'}
    check: {literal: "a"}
"""


def refused(done: Finished, *words: str) -> None:
    assert done.code == 2, (done.out, done.err)
    message = [line for line in done.err.replace("\r", "\n").splitlines() if "error: " in line]
    assert len(message) == 1, done.err
    for word in words:
        assert word in message[0], message[0]
    assert "Traceback" not in done.err
    assert done.out == ""
    assert not done.folder.exists(), sorted(done.folder.rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model=tinylama"], ["model=tinylama is not known", "tinyllama", "smollm2"]),
        (["tokenizer=mistral"], ["tokenizer=mistral is not known", "mistral_v1"]),
        (["builder=[fixd]"], ["builder=fixd is not known", "unfixed"]),
        (["grammar=enums"], ["grammar=enums is not known", "half_free"]),
        (["runtime=tpu"], ["runtime=tpu is not known", "cpu"]),
        (["grammar.limt=3"], ["grammar.limt"]),
        (["grammar.limit=many"], ["grammar.limit", "many"]),
        (["engine.on_error=ignore"], ["engine.on_error=ignore", "drop, stop"]),
        (["runtime.n_seq=-1"], ["runtime.n_seq=-1"]),
        (["repeats=5"], ["repeats=5", "sampling.temperature=0.8"]),
        (["sampling.top_p=0"], ["sampling.top_p=0"]),
        (["sampling.temperature=1", "target=server"], ["target=inprocess"]),
        (["runtime.n_seq=257"], ["256"]),
        (["stages=[audits]"], ["audits", "generate"]),
        (["builder=[]"], ["builder=[]"]),
        (["grammar.cases=[foundling]"], ["foundling"]),
        (["tokenizer=path"], ["tokenizer.path"]),
        (["tokenizer=own"], ["model=tiny has no tokenizer"]),
        (["model=smollm2", "tokenizer=llama_spm"], ["model=smollm2", "own tokenizer"]),
        (["grammar=path"], ["grammar.path=FILE.yaml"]),
        (["model=<think>"], ["quote"]),
        (["nonsense=é"], ["nonsense"]),
    ],
)
def test_usage(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    refused(pipeline(tmp_path, "run", *arguments), *words)


def test_unknown_command(tmp_path: Path) -> None:
    done = pipeline(tmp_path, "rum")
    assert done.code == 2
    assert "Unknown command 'rum'" in done.err


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"], ["-h"]])
def test_help_is_one_screen(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", *arguments], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 110
    for word in (
        "run",
        "audit",
        "tinyllama",
        "mistral_v1",
        "half_free",
        "unfixed",
        "Cache",
        "Exit",
    ):
        assert word in done.stdout


@pytest.mark.parametrize("command", ["run", "audit"])
def test_the_help_of_a_command_lists_every_setting(command: str) -> None:
    """Regression: 36 of 65 settings were missing from the help."""
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert max(map(len, done.stdout.splitlines())) <= 110
    listed = list(help_.described(Settings))
    assert len(listed) > 60
    for key, default, meaning in listed:
        assert f"  {key}=" in done.stdout, key
        assert meaning, f"{key} has no text under it"
        assert default in done.stdout, key
    composed = subprocess.run(
        [sys.executable, "-m", "pipeline", command, "--cfg", "job"],
        capture_output=True,
        text=True,
        check=True,
    )
    known = {key.partition(".")[0] for key, _, _ in listed}
    assert known == set(yaml.safe_load(composed.stdout))


def test_missing_gguf(tmp_path: Path) -> None:
    missing = tmp_path / "none.gguf"
    done = pipeline(tmp_path, "audit", "tokenizer=path", f"tokenizer.path={missing}")
    refused(done, str(missing), "does not exist")


def test_garbage_gguf(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.gguf"
    garbage.write_bytes(b"\x00garbage" * 1000)
    done = pipeline(tmp_path, "audit", "tokenizer=path", f"tokenizer.path={garbage}")
    refused(done, "garbage.gguf")


@pytest.mark.parametrize("command", ["audit", "run"])
def test_truncated_gguf(tmp_path: Path, command: str) -> None:
    cut = tmp_path / "cut.gguf"
    whole = vocabulary_file("llama_spm").read_bytes()
    cut.write_bytes(whole[: len(whole) // 2])
    refused(pipeline(tmp_path, command, "tokenizer=path", f"tokenizer.path={cut}"), "cut.gguf")
    refused(pipeline(tmp_path, command, "model=path", f"model.path={cut}"), "cut.gguf")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('start: "a"', 'start: "a', ["mine", "one", "does not compile"]),
        (
            "{lark: 'start: \"a\"'}",
            "{json: {type: 12}}",
            ["one", "type"],
        ),
        ('    check: {literal: "a"}\n', "", ["one", "check"]),
        ("  - id: one", "  - &x {id: one}\n  - id: one", ["one"]),
        ("suite: mine\n", "suite: mine\ninclude: /etc/passwd\n", ["include"]),
    ],
    ids=["grammar", "schema", "checker", "alias", "unknown key"],
)
def test_bad_suite_file(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in SUITE
    file = tmp_path / "mine.yaml"
    file.write_text(SUITE.replace(old, new), "utf-8")
    done = pipeline(tmp_path, "run", "grammar=path", f"grammar.path={file}")
    refused(done, *words)


def test_duplicate_case_id(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SUITE + SUITE.partition("cases:\n")[2], "utf-8")
    refused(pipeline(tmp_path, "run", "grammar=path", f"grammar.path={file}"), "one", "id")


def test_a_user_suite_runs(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SUITE, "utf-8")
    done = pipeline(
        tmp_path, "run", "grammar=path", f"grammar.path={file}", "builder=fixed", *GENERATE
    )
    assert done.code == 0, done.err
    assert done.table("cells")["verdict"].to_list() == ["ok"]


def test_results_folder_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    done = pipeline(tmp_path, "audit", f"results_dir={file}/below")
    refused(done, "cannot be written", "results_dir=")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_results_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    refused(pipeline(tmp_path, "audit"), "cannot be written", "results_dir=")


@pytest.mark.parametrize("sweep", [[], ["-m"]])
def test_a_run_is_never_overwritten(tmp_path: Path, sweep: list[str]) -> None:
    first = pipeline(tmp_path, "audit", "builder=fixed", *QUICK)
    before = {p: p.read_bytes() for p in first.folder.rglob("*") if p.is_file()}
    again = pipeline(tmp_path, "audit", "builder=unfixed", *sweep)
    assert again.code == 2
    assert "already holds a run" in again.err
    after = {p: p.read_bytes() for p in first.folder.rglob("*") if p.is_file()}
    after.pop(first.folder / "multirun.yaml", None)
    assert after == before


def test_no_network(tmp_path: Path) -> None:
    """Without a network the error says which file, where to put it and which key to use."""
    env = DEAD | {"BYTE_EXACT_CACHE": str(tmp_path / "cache")}
    done = pipeline(tmp_path, "run", "model=tinyllama", env=env)
    file = "tinyllama-1.1b-chat-v1.0.Q8_0.gguf"
    refused(done, file, str(tmp_path / "cache"), "model.path=")


def test_runtime_gpu_without_a_gpu_says_how_to_get_one(tmp_path: Path) -> None:
    import llama_cpp

    if llama_cpp.llama_supports_gpu_offload():
        pytest.skip("this llama.cpp was built for a GPU")
    refused(pipeline(tmp_path, "audit", "runtime=gpu"), "GGML_CUDA", "runtime=cpu")


def test_bad_files_in_a_multirun_become_rows_and_the_rest_continues(tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(vocabulary_file("llama_spm").read_bytes()[:100_000])
    good = tmp_path / "good.gguf"
    good.symlink_to(vocabulary_file("llama_spm"))
    done = pipeline(
        tmp_path,
        "run",
        "-m",
        "tokenizer=path",
        f"tokenizer.path={cut},{tmp_path / 'none.gguf'},{good}",
        "grammar.limit=1",
        *QUICK,
    )
    assert done.code == 2
    cells = done.table("cells")
    verdicts = {name: set(group["verdict"]) for (name,), group in cells.group_by("tokenizer")}
    assert verdicts["cut"] == {"load_refused"}
    assert verdicts["none"] == {"load_refused"}
    assert "ok" in verdicts["good"]
    assert "Refused" in done.out


def test_a_reproducer_is_never_written_outside_its_folder(tmp_path: Path) -> None:
    told = row("reproducers", file="../../out.yaml", suite_file="suite", report="report")
    run = made(tmp_path / "results" / "run", {"reproducers": [told]})
    collect.write_reproducers(run)
    assert (run / "reproducers" / "out.yaml").read_text() == "suite"
    assert not list(tmp_path.glob("*.yaml"))
