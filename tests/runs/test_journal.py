"""The journal: incomplete entries are removed, no unit counts twice, one process writes a run."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.model.errors import ConfigError, ResultsError
from pipeline.model.verdicts import End, Verdict
from pipeline.results.tables import parquet, schemas
from pipeline.runs import units
from pipeline.runs.parent import attempts, placeholders, resume, row_check
from pipeline.runs.parent.attempts import Limits
from pipeline.runs.parent.command import INVOCATION, Command, claim, release
from pipeline.runs.parent.journal import Group
from pipeline.runs.parent.placeholders import Fate
from pipeline.runs.protocol import CollectionRef, SuiteRef, read_job
from support.command import ROOT
from support.workers import audit, job, stub

COMMAND = Command("run", ("tokenizer=path", "run.name=run"), "/")


@pytest.fixture(autouse=True)
def _own_command(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv(INVOCATION, os.urandom(8).hex())


def audit_row(builder: str) -> dict[str, Any]:
    return dict.fromkeys(schemas.SCHEMAS["tokenizers"]) | {"tokenizer": "t", "builder": builder}


NO_UNIT = {"type": "rows", "table": "tokenizers", "rows": [audit_row("fixed")]}


def begun(path: Path) -> Group:
    group = Group(path)
    group.begin(job(path), {"a": "1"})
    return group


def test_an_incomplete_unit_is_removed_and_done_units_stay(tmp_path: Path) -> None:
    group = begun(tmp_path / "g.jsonl")
    group.finish(("audit", "fixed"), [("tokenizers", [audit_row("fixed")])])
    whole = group.path.read_bytes()
    rows = json.dumps({"type": "rows", "table": "tokenizers", "rows": [audit_row("unfixed")]})
    for torn in ("", rows[:20], rows + "\n", rows + '\n{"type": "done", "unit": ["audit", "unf'):
        group.path.write_bytes(whole + torn.encode())
        again = Group(group.path)
        assert again.done == {("audit", "fixed")}
        assert again.path.read_bytes() == whole
    assert parquet.merge([group.path], tmp_path)["tokenizers"] == 1


def test_a_kill_at_any_byte_loses_and_doubles_no_unit(tmp_path: Path) -> None:
    """A journal cut at any byte, then reopened and finished, gives the same rows."""
    builders = ("a", "b", "c")
    group = begun(tmp_path / "whole.jsonl")
    for builder in builders:
        group.finish(("audit", builder), [("tokenizers", [audit_row(builder)])])
    group.close()
    data = group.path.read_bytes()
    for cut in range(0, len(data), 7):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(data[:cut])
        again = begun(path)
        for builder in builders:
            again.finish(("audit", builder), [("tokenizers", [audit_row(builder)])])
        found = [row["builder"] for each in parquet.settled(path) for row in each["rows"]]
        assert found == list(builders), cut


def test_a_unit_done_twice_counts_once(tmp_path: Path) -> None:
    group = begun(tmp_path / "g.jsonl")
    for _ in range(2):
        group.done.clear()
        group.finish(("audit", "fixed"), [("tokenizers", [audit_row("fixed")])])
    assert len(list(parquet.settled(group.path))) == 1


def test_every_required_unit_gets_a_row_that_fits_its_table(tmp_path: Path) -> None:
    one = job(
        tmp_path,
        stages=("audit", "generate"),
        builders=("fixed", "unfixed"),
        suites=(SuiteRef("x", ("c1", "c2"), "s"),),
        audit=audit(engines=("gbnf",)),
    )
    required = list(units.required(one))
    assert len(required) == len(set(required)) == 1 + 1 + 2 * 2 + 2 * 2
    for end in (End.CRASHED, End.TIMEOUT, End.LOAD_REFUSED):
        for unit in required:
            for table, rows in placeholders.rows(one, unit, Fate(end, "why")):
                assert row_check.misfit({"table": table, "rows": rows}) is None
                parquet.frame(table, rows)
                if table == "cells":
                    assert Verdict(str(rows[0]["verdict"])).value == end.value


def test_an_engine_does_not_fail_with_the_builder_of_the_same_name(tmp_path: Path) -> None:
    one = job(tmp_path, builders=("fixed", "xgrammar"), audit=audit(engines=("xgrammar",)))
    failing = set(placeholders.failing_with(one, ("build", "xgrammar")))
    assert failing == {("audit", "xgrammar"), ("walks", "xgrammar")}


@pytest.mark.parametrize("seed", range(8))
def test_the_job_of_a_worker_marks_pending_units_in_a_bitmap(tmp_path: Path, seed: int) -> None:
    """Names of a hundred thousand finished cells would be megabytes for each worker to read."""
    rng = random.Random(seed)
    whole = job(
        tmp_path,
        stages=("audit", "generate", "replay"),
        builders=("fixed", "unfixed"),
        suites=(SuiteRef("x", tuple(f"case_{n}" for n in range(50)), "s"),),
        collections=(CollectionRef("c", "maskbench", "x", tuple(f"s{n}" for n in range(20))),),
    )
    shard = whole.planned(others=units.others(whole, 3, seed % 3))
    done = {unit for unit in units.required(shard) if rng.random() < seed / 7}
    told = units.for_worker(shard, done)
    assert len(told.to_json()) <= len(whole.to_json()) + len(list(units.required(whole)))
    assert units.pending(read_job(told.to_json())) == {*units.required(shard)} - done
    assert units.pending(whole) == {*units.required(whole)}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            'echo \'{"type":"rows","table":"cells","rows":[{"x":1}]}\'; sleep 60',
            "a row of cells with wrong columns",
        ),
        (
            'echo \'{"type":"rows","table":"sells","rows":[]}\'; sleep 60',
            "rows of an unknown table",
        ),
        ('echo \'{"type":"done","unit":[1]}\'; sleep 60', "is not the name of a unit"),
        (
            f"echo '{json.dumps(NO_UNIT)}'; echo '{{\"type\":\"end\"}}'; sleep 60",
            "belong to no unit",
        ),
        ("echo hello; exit 0", "ended before its job was done"),
        ('echo \'{"type":"end"}\'; exit 0', "ended before its job was done"),
        ("kill -SEGV $$", "SIGSEGV"),
    ],
)
def test_garbage_and_deaths_become_typed_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, words: str
) -> None:
    stub(monkeypatch, tmp_path, script)
    group = begun(tmp_path / "g.jsonl")
    assert attempts.work(group, job(tmp_path), Limits(10), lambda _: None) is None
    assert group.done == set(units.required(job(tmp_path)))
    assert group.lost == len(group.done)
    assert parquet.merge([group.path], tmp_path)["tokenizers"] == 1
    row = parquet.read(tmp_path, "tokenizers").row(0, named=True)
    assert row["status"] == "crashed"
    assert words in row["reason"]


def test_text_that_does_not_fit_a_table_is_garbage() -> None:
    row = audit_row("fixed")
    fits = row_check.misfit({"table": "tokenizers", "rows": [row | {"reason": "é"}]})
    assert fits is None
    for name, value in (("reason", "\ud800"), ("eos", 2**63), ("eos", True), ("end_ids", ["1"])):
        assert row_check.misfit({"table": "tokenizers", "rows": [row | {name: value}]}), name
    for schema in schemas.SCHEMAS.values():
        assert {str(kind.base_type()) for kind in schema.values()} <= {
            *("String", "Int64", "Boolean", "Binary", "List", "Float64"),
        }, "a kind of column that intake does not know"


def test_a_run_belongs_to_one_command_and_one_process(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    claim(folder, COMMAND)
    claim(folder, COMMAND)  # the next job of the same command
    code = (
        "import sys; from pathlib import Path; from pipeline.runs.parent import command;"
        "from pipeline.model.errors import PipelineError\n"
        "try: print(command.reclaim(Path(sys.argv[1])).arguments)\n"
        "except PipelineError as error: print(error)\n"
        "try: command.claim(Path(sys.argv[1]), command.Command('run', (), '/'))\n"
        "except PipelineError as error: print(error)"
    )

    def another() -> list[str]:
        env = {name: value for name, value in os.environ.items() if name != INVOCATION}
        command = [sys.executable, "-c", code, str(folder)]
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    first, second = another()
    assert "is being written by another process" in first
    assert "already holds a run" in second
    release(folder)  # as the kernel does when its process dies
    assert another() == [str(COMMAND.arguments)]


def test_resume_names_the_difference(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"llguidance was 1\.9\.1 and is now 1\.9\.2"):
        resume.check_same(
            {"x": "1", "llguidance": "1.9.1"}, {"x": "1", "llguidance": "1.9.2"}, tmp_path
        )
    with pytest.raises(ConfigError, match="There is no run 'none'"):
        resume.command(["resume=none"], str(tmp_path))
    (tmp_path / "odd" / "parts").mkdir(parents=True)
    with pytest.raises(ConfigError, match="its command was not recorded"):
        resume.command(["resume=odd"], str(tmp_path))
    claim(tmp_path / "run", COMMAND)
    for extra, words in (
        ("builder=[fixed]", r"builder=\[fixed\] is not one of them: the run has no builder"),
        ("tokenizer=gpt2", "tokenizer=gpt2 is not one of them: the run has tokenizer=path"),
    ):
        with pytest.raises(ConfigError, match=words):
            resume.command(["resume=run", extra], str(tmp_path))


def test_a_name_of_any_characters_is_resumed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Hydra's grammar has special rules for quotes, brackets, commas and equals signs."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "a,b=(c)'d' é" / "run {1}"
    claim(folder, Command("run", ("run.name=x", "-m"), str(tmp_path)))
    release(folder)
    name, results, flag = resume.command([f"resume={folder}"], "results").arguments
    parsed = OverridesParser.create().parse_overrides([name, results])
    assert [each.value() for each in parsed] == [folder.name, str(folder.parent)]
    assert flag == "-m"
