"""Replay: instances of schemas are walked through every builder's masks; failures get a cause."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipeline.audit.acceptance import Meter, WalkResult, judge, walk
from pipeline.cli import arguments as cli_arguments
from pipeline.engines.builders import bridge
from pipeline.grammars.case import Grammar
from pipeline.model.verdicts import Cause, InstanceEnd, InstanceVerdict, Split
from pipeline.vocab.spelling import Spelling, Splits
from support import damaged_ggufs as faults
from support.command import ROOT, Finished, pipeline
from support.vocabularies import Opened

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
COLLECTION: dict[str, dict[str, Any]] = {
    "person": {
        "schema": PERSON,
        "tests": [
            {"valid": True, "data": {"name": "Ada Lovelace", "age": 36}},
            {"valid": False, "data": {"name": "Ada Lovelace", "age": "36"}},
            {"valid": False, "data": {"name": "Ada Lovelace"}},
        ],
    },
    "colours": {
        "schema": {"type": "array", "items": {"enum": ["deep red", "sky blue"]}, "minItems": 1},
        "tests": [
            {"valid": True, "data": ["deep red", "sky blue"]},
            {"valid": False, "data": ["deepred"]},
            {"valid": False, "data": []},
        ],
    },
    "mistaken": {  # the file is wrong about its instances
        "schema": {"const": 12},
        "tests": [{"valid": True, "data": 13}, {"valid": False, "data": 12}],
    },
    "unsupported": {
        "schema": {"not": {"type": "string"}},
        "tests": [{"valid": True, "data": 1}],
    },
    "bare": {"schema": {"type": "null"}, "tests": []},
    "broken": {"no": "schema"},
}

SPLITS = (Split.CANONICAL, Split.GREEDY, Split.RANDOM)
"""The splits of a replay."""


def collection(folder: Path, **more: dict[str, Any]) -> list[str]:
    """Write the collection as files; return the arguments that replay it."""
    folder.mkdir()
    for name, document in (COLLECTION | more).items():
        (folder / f"{name}.json").write_text(json.dumps(document), "utf-8")
    return ["stages=[replay]", "grammar=maskbench", f"grammar.path={folder}"]


def tiny(folder: Path) -> list[str]:
    file = faults.tiny_spm(folder / "tiny.gguf", byte_tokens=True, add_space_prefix=True)
    return ["tokenizer=path", f"tokenizer.path={file}"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A replay of the collection with mistral_v1 and the builders `unfixed` and `fixed`."""
    folder = tmp_path_factory.mktemp("replay")
    done = pipeline(folder, "run", *collection(folder / "schemas"))
    assert done.code == 0, done.err
    return done


def found(done: Finished, builder: str, schema: str) -> dict[tuple[str, str], tuple[str, str]]:
    rows = done.table("replay").filter(builder=builder, schema=schema).iter_rows(named=True)
    return {(r["instance"], r["split"]): (r["verdict"], r["cause"]) for r in rows}


def test_fixed_accepts_every_valid_instance_and_refuses_every_invalid_one(done: Finished) -> None:
    for schema in ("person", "colours"):
        assert found(done, "fixed", schema) == {
            (str(instance), split): ("ok", "none") for instance in range(3) for split in SPLITS
        }


def test_unfixed_refuses_valid_instances_and_the_token_that_did_it_is_named(done: Finished) -> None:
    assert found(done, "unfixed", "person")["0", "greedy"] == ("valid_refused", "builder")
    rows = done.table("replay").filter(builder="unfixed", cause="builder")
    assert rows.height > 3
    assert rows.filter(pl.col("claimed") != pl.col("true")).height > 1
    for row in rows.iter_rows(named=True):
        assert row["culprit_step"] <= row["failed_at"], row
        if row["claimed"] == row["true"]:  # then the mask misses it: another token was forced
            assert (row["reason"], row["culprit_step"]) == ("masked", row["failed_at"])


def test_what_no_table_can_help_is_the_engines(done: Finished) -> None:
    for builder in ("unfixed", "fixed"):
        assert found(done, builder, "unsupported") == {(None, None): ("grammar_error", "engine")}
        assert found(done, builder, "broken") == {(None, None): ("unreadable", "none")}
        assert found(done, builder, "bare") == {(None, None): ("ok", "none")}


def test_a_wrong_label_is_the_files_fault(done: Finished) -> None:
    """Once the engine was blamed for it, although jsonschema disagrees with the label too."""
    wrong = found(done, "fixed", "mistaken")
    assert {wrong["0", split] for split in SPLITS} == {("valid_refused", "checker")}
    assert {wrong["1", split] for split in SPLITS} == {("invalid_accepted", "checker")}
    reasons = done.table("replay").filter(builder="fixed", schema="mistaken")["reason"].to_list()
    assert set(reasons) == {
        "the file labels it valid, but the grammar and jsonschema both refuse it",
        "the file labels it invalid, but the grammar and jsonschema both accept it",
    }


def test_times_are_kept_apart_and_the_console_says_what_was_found(done: Finished) -> None:
    times = done.table("replay_times")
    assert times.height == 2 * len(COLLECTION)
    person = times.filter(builder="fixed", schema="person").row(0, named=True)
    assert person["n_masks"] > 20
    assert 0 < person["mask_p50_us"] <= person["mask_p90_us"] <= person["mask_max_us"]
    assert person["first_mask_us"] > 0
    assert "builder's faults" in done.out
    assert "inside llguidance" in done.out


def test_threads_and_shards_change_nothing_and_a_missing_shard_is_named(
    tmp_path: Path, done: Finished
) -> None:
    arguments = [
        *collection(tmp_path / "schemas"),
        "runtime.n_threads=1",
    ]
    shards = [[*arguments, "shard.count=2", f"shard.index={n}"] for n in range(2)]
    assert pipeline(tmp_path, "run", *shards[1]).code == 0
    first = pipeline(tmp_path, "collect", "run=run", "run.name=run")
    assert first.code == 2, "collect knows run and results_dir only"
    collect = [sys.executable, "-m", "pipeline", "collect", f"run={tmp_path / 'run'}"]
    early = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, check=False)
    assert early.returncode == 1
    assert "shard.index=0 has not begun" in early.stdout
    assert pipeline(tmp_path, "run", *shards[0]).code == 0
    other = pipeline(tmp_path, "run", *shards[0], "audit.seed=1")
    assert other.code == 2
    assert "already holds a run" in other.err
    assert subprocess.run(collect, cwd=ROOT, capture_output=True, check=False).returncode == 0
    merged = pl.read_parquet(tmp_path / "run" / "replay.parquet")
    assert_frame_equal(
        merged.filter(pl.col("schema") != "broken"),
        done.table("replay").filter(pl.col("schema") != "broken"),
    )

    part = tmp_path / "run" / "parts" / "tiny--mistral_v1--0of2.jsonl"
    part.write_text(part.read_text().replace('"audit.seed": "0"', '"audit.seed": "5"'))
    unlike = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, check=False)
    assert unlike.returncode == 2
    assert "audit.seed is 5 in the first and 0 in the second" in unlike.stderr


def test_every_job_of_the_matrix_that_has_not_begun_is_named(tmp_path: Path) -> None:
    """Also the shards of vocabularies that no shard has begun."""
    folder = tmp_path / "files"
    folder.mkdir()
    files = [
        faults.tiny_spm(folder / f"{name}.gguf", byte_tokens=True, add_space_prefix=True)
        for name in ("a", "b")
    ]
    swept = [f"tokenizer.path={file}" for file in files]
    both = f"tokenizer.path={files[0]},{files[1]}"
    arguments = [*collection(tmp_path / "schemas"), "tokenizer=path", both, "builder=fixed"]
    arguments += ["-m", "run.name=run", "shard.count=2"]
    assert pipeline(tmp_path, "run", *arguments, "shard.index=0").code == 0
    for file in (tmp_path / "run" / "parts").glob("tiny--b--*"):
        file.unlink()  # as if that machine had died before its second vocabulary

    def missing() -> tuple[int, list[str]]:
        command = [sys.executable, "-m", "pipeline", "collect", f"run={tmp_path / 'run'}"]
        code = subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode
        manifest = json.loads((tmp_path / "run" / "manifest.json").read_text("utf-8"))
        return code, manifest["missing"]

    assert missing() == (
        1,
        [
            f"{swept[0]} shard.index=1 has not begun",
            f"{swept[1]} shard.index=0 has not begun",
            f"{swept[1]} shard.index=1 has not begun",
        ],
    )
    assert pipeline(tmp_path, "run", *arguments, "shard.index=1").code == 0
    assert missing() == (1, [f"{swept[1]} shard.index=0 has not begun"])
    assert pipeline(tmp_path, "run", *arguments, "shard.index=0").code == 0
    assert missing() == (0, [])


@pytest.mark.parametrize(
    ("arguments", "jobs"),
    [
        (["tokenizer=llama_spm"], []),
        (["-m", "tokenizer=llama_spm"], []),
        (["-m", "tokenizer=a,b"], ["tokenizer=a", "tokenizer=b"]),
        (["shard.count=2", "shard.index=1"], ["shard.index=0", "shard.index=1"]),
        (
            ["-m", "tokenizer=a,b", "stages=[replay]", "shard.count=2", "shard.index=range(2)"],
            [f"tokenizer={name} shard.index={n}" for name in "ab" for n in "01"],
        ),
        (
            ["-m", "tokenizer=glob(mistral*)"],
            [f"tokenizer=mistral_v{n}" for n in (1, 2, 3)],
        ),
        (["-m", "tokenizer=a,,b"], []),  # Hydra reports the error
    ],
)
def test_the_jobs_of_a_command(arguments: list[str], jobs: list[str]) -> None:
    assert [" ".join(job) for job in cli_arguments.jobs(arguments)] == jobs


def test_killed_in_the_middle_and_resumed_the_table_is_the_same(tmp_path: Path) -> None:
    many = {f"person{n:03}": COLLECTION["person"] for n in range(150)}
    arguments = [*collection(tmp_path / "schemas", **many), *tiny(tmp_path), "builder=fixed"]
    whole = pipeline(tmp_path, "run", *arguments, "run.name=whole")
    assert whole.code == 0, whole.err
    command = [sys.executable, "-m", "pipeline", "run", *arguments, "runtime.n_threads=1"]
    command += [f"results_dir={tmp_path}", "run.name=cut"]
    journal = tmp_path / "cut" / "parts" / "tiny--tiny.jsonl"
    with subprocess.Popen(command, cwd=ROOT, stdout=-3, stderr=-3) as process:
        while not (journal.exists() and journal.read_text().count('"done"') > 40):
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    n_done = journal.read_text().count('"done", "unit": ["replay"')
    assert 10 < n_done < 150
    again = pipeline(tmp_path, "run", "resume=cut", "run.name=cut")
    assert again.code == 0, again.err
    assert_frame_equal(again.table("replay"), whole.table("replay"))


def test_a_grammar_too_slow_to_compile_is_a_timeout_of_the_engine_and_costs_only_itself(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "grammars"
    folder.mkdir()
    (folder / "wide.lark").write_text("start: " + " | ".join(f'"w{i}x"' for i in range(60_000)))
    (folder / "small.gbnf").write_text('root ::= "a"')
    arguments = ["grammar=grammars", f"grammar.path={folder}", *tiny(tmp_path), "builder=fixed"]
    done = pipeline(tmp_path, "run", *arguments, "stages=[replay]", "engine.case_limit=0.3")
    assert done.code == 0, done.err
    assert found(done, "fixed", "wide.lark") == {(None, None): ("timeout", "engine")}
    assert found(done, "fixed", "small.gbnf") == {(None, None): ("ok", "none")}


def test_sampled_and_limited_schemas_and_a_stage_with_nothing_to_do(tmp_path: Path) -> None:
    arguments = [*collection(tmp_path / "schemas"), *tiny(tmp_path), "builder=fixed"]
    done = pipeline(tmp_path, "run", *arguments, "grammar.sample=4", "grammar.limit=2")
    assert done.table("replay")["schema"].n_unique() == 2
    wrong = pipeline(tmp_path, "run", "grammar=enum", "stages=[replay]", "run.name=wrong")
    assert wrong.code == 2
    assert "no suite or collection is chosen for these stages" in wrong.err


# --- splits and walks -----------------------------------------------------------------------------

TEXT = '{"name": "Ada  Lovelace", "x": [1, 22, 333], "é": "\\n 😀"}'.encode()


@pytest.mark.parametrize("name", ["mistral_v1", "llama_bpe"])
def test_every_split_writes_exactly_the_text(
    name: str, open_vocabulary: Callable[[str], Opened]
) -> None:
    opened = open_vocabulary(name)
    tokenize = bridge.raw_tokenize(opened.material.vocab)
    splits = Splits(opened.vocabulary, Spelling(opened.vocabulary), tokenize)
    found = dict(splits.of(TEXT, "seed"))
    assert [*found] == [*SPLITS]
    for ids in found.values():
        assert b"".join(opened.vocabulary.rendered[token] for token in ids) == TEXT
    assert len(found[Split.RANDOM]) > len(found[Split.CANONICAL])
    assert found == dict(splits.of(TEXT, "seed"))
    assert found[Split.RANDOM] != dict(splits.of(TEXT, "other"))[Split.RANDOM]
    if name == "llama_bpe":
        assert found[Split.CANONICAL] == tokenize(TEXT)


def test_a_wrong_end_is_the_builders_and_shows_only_at_the_end(
    open_vocabulary: Callable[[str], Opened],
) -> None:
    opened = open_vocabulary("mistral_v1")
    table = replace(opened.table("fixed"), eos=opened.vocabulary.eos + 1)
    text = b'{"name": "a", "age": 1}'
    ids = [token for piece in (bytes([b]) for b in text) for token in _ids(opened, piece)]
    grammar = Grammar("json", json.dumps(PERSON)).engine_text()
    with closing(opened.engine.compile(table, *grammar)) as matcher:
        walked = walk(matcher, ids, text, opened.vocabulary, Meter(), time.monotonic() + 60)
    assert walked == WalkResult(InstanceEnd.NO_STOP, len(ids))
    assert judge(True, walked, by_bytes=True, by_truth=True) == (
        InstanceVerdict.NO_STOP,
        Cause.BUILDER,
    )


def _ids(opened: Opened, piece: bytes) -> list[int]:
    found = Spelling(opened.vocabulary).ids([piece])
    assert found is not None
    return found


def test_a_limit_and_a_late_walk_are_never_the_builders() -> None:
    """The builder gets the blame for a refused text only if bytes and true table accept it."""
    for valid, end, by_bytes, by_truth, witness in itertools.product(
        (True, False), InstanceEnd, (True, False), (True, False), (True, False, None)
    ):
        verdict, cause = judge(valid, WalkResult(end, 3), by_bytes, by_truth, witness)
        if cause is Cause.CHECKER:
            assert witness is by_bytes is not valid
            continue
        if end in {InstanceEnd.NO_MASK, InstanceEnd.LATE}:
            assert cause is Cause.ENGINE
        if verdict is InstanceVerdict.VALID_REFUSED:
            assert (cause is Cause.BUILDER) == (by_bytes and by_truth)
        if verdict is InstanceVerdict.INVALID_ACCEPTED:
            assert (cause is Cause.BUILDER) == (not by_bytes)
        assert (verdict is InstanceVerdict.OK) == (cause is Cause.NONE)
