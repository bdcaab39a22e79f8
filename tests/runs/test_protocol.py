"""The protocol: all that both sides send matches the committed JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pipeline.audit.settings import AuditSettings
from pipeline.generation.settings import EngineSettings, Sampling, TargetSettings
from pipeline.model.errors import ResultsError, TablesError
from pipeline.results.tables import parquet, schemas
from pipeline.runs import protocol
from pipeline.runs.parent.journal import Group
from pipeline.runs.parent.supervise import supervise
from pipeline.runs.protocol import CollectionRef, FileRef, Message, SuiteRef
from support.command import ROOT
from support.vocabularies import vocabulary_file
from support.workers import job

SCHEMA = ROOT / "pipeline" / "runs" / "protocol.schema.json"
FIXTURES = ROOT / "tests" / "fixtures"


@pytest.fixture(scope="module")
def checked() -> Callable[[str, object], None]:
    """Checks a `job` or a `message` against the committed schema."""
    whole = json.loads(SCHEMA.read_text("utf-8"))

    def check(kind: str, value: object) -> None:
        jsonschema.validate(value, {"$defs": whole["$defs"], **whole["properties"][kind]})

    return check


def test_the_committed_schema_matches_the_types() -> None:
    """Update it with: python -c 'from pipeline.runs import protocol; print(protocol.schema())'."""
    assert SCHEMA.read_text("utf-8") == protocol.schema()


def test_a_job_fits_and_comes_back_equal(
    checked: Callable[[str, object], None], tmp_path: Path
) -> None:
    sent = job(
        tmp_path,
        suites=(SuiteRef("/x/é.yaml", ("a", "b"), "é"),),
        collections=(CollectionRef("c", "maskbench", "/x", ("1",)),),
        others=(("cell", "fixed", "s", "c"),),
        weights=FileRef("/x/model.gguf", "0" * 64),
        engine=EngineSettings(max_tokens=3),
        sampling=Sampling(0.5),
        target=TargetSettings("server", url="http://127.0.0.1:1"),
        audit=AuditSettings(engines=("gbnf",)),
    )
    checked("job", json.loads(sent.to_json()))
    assert protocol.read_job(sent.to_json()) == sent


@pytest.mark.slow
@pytest.mark.parametrize(
    "suite", [(), (SuiteRef(str(ROOT / "datasets" / "enum.yaml"), ("founding",), "enum"),)]
)
def test_every_line_of_a_worker_fits(
    suite: tuple[SuiteRef, ...], checked: Callable[[str, object], None]
) -> None:
    """All messages, in order, of a worker that audits and of one that generates."""
    lines: list[str] = []
    stages = ("audit", "generate") if suite else ("audit",)
    one = job(vocabulary_file("llama_spm"), suites=suite, stages=stages)
    assert supervise(one, lines.append, time_limit=120) is None
    said = [json.loads(line) for line in lines]
    for message in said:
        checked("message", message)
    assert (said[0]["type"], said[-1]["type"]) == ("hello", "end")
    kinds = {message["type"] for message in said}
    assert kinds >= {"started", "rows", "done"} | ({"timings"} if suite else set[str]())


def test_a_refusal_fits(checked: Callable[[str, object], None], tmp_path: Path) -> None:
    lines: list[str] = []
    (tmp_path / "no.gguf").write_bytes(b"nothing")
    assert supervise(job(tmp_path / "no.gguf"), lines.append, time_limit=60) is None
    [*_, last] = map(json.loads, lines)
    checked("message", last)
    assert last["type"] == "refused"


EXAMPLES: list[Message] = [
    protocol.Over(("cell", "fixed", "s", "c")),
    protocol.Answered(),
    protocol.Spent(1, 2),
    protocol.Rows("cells", [{"case": "c", "ids": [1], "ok": None}]),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: message.type)
def test_messages_that_few_jobs_send_fit(
    message: Message, checked: Callable[[str, object], None]
) -> None:
    plain = json.loads(json.dumps(asdict(message)))
    checked("message", plain)
    for wrong in (plain | {"more": 1}, {k: v for k, v in plain.items() if k != "type"}):
        with pytest.raises(jsonschema.ValidationError):
            checked("message", wrong)


def test_a_job_of_another_version_is_refused(tmp_path: Path) -> None:
    sent = replace(job(tmp_path), protocol=protocol.VERSION + 1)
    said = f"protocol version {protocol.VERSION + 1}; this worker needs {protocol.VERSION}"
    with pytest.raises(ValueError, match=said):
        protocol.read_job(sent.to_json())


def test_a_journal_of_the_release_before_the_protocol_is_refused(tmp_path: Path) -> None:
    """Its job has no `protocol`, so it can neither be resumed nor merged."""
    path = tmp_path / "old.jsonl"
    path.write_bytes((FIXTURES / "journal_v0.jsonl").read_bytes())
    with pytest.raises(ResultsError, match=r"\(its protocol version is 0, this release has 2"):
        Group(path)


def test_a_journal_of_older_rows_is_refused_and_so_is_a_merge_of_it(tmp_path: Path) -> None:
    """Finished tables are converted; part files are not, because new units would be added."""
    path = tmp_path / "old.jsonl"
    path.write_bytes((FIXTURES / "journal_v1.jsonl").read_bytes())
    with pytest.raises(ResultsError, match=r"\(its protocol version is 1, this release has 2\)"):
        Group(path)
    said = (
        f"has rows of schema version 1, and this byte-exact writes version {schemas.SCHEMA_VERSION}"
    )
    with pytest.raises(TablesError, match=said):
        parquet.merge([path], tmp_path)


def test_older_rows_are_refused_whatever_the_protocol(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    first, *rest = (FIXTURES / "journal_v1.jsonl").read_text("utf-8").splitlines(keepends=True)
    message: dict[str, Any] = json.loads(first)
    message["job"]["protocol"] = protocol.VERSION
    path.write_text("".join([json.dumps(message) + "\n", *rest]), "utf-8")
    with pytest.raises(ResultsError, match="has rows of schema version 1"):
        Group(path)


def test_a_journal_records_the_schema_version_of_its_rows(tmp_path: Path) -> None:
    group = Group(tmp_path / "g.jsonl")
    group.begin(job(tmp_path), {"a": "1"})
    first: dict[str, Any] = json.loads(group.path.read_text("utf-8"))
    assert first["schema"] == schemas.SCHEMA_VERSION
    assert Group(group.path).jobs == [first["job"]]


def test_the_kept_journal_is_a_real_one() -> None:
    line: dict[str, Any] = json.loads(
        (FIXTURES / "journal_v0.jsonl").read_text("utf-8").splitlines()[0]
    )
    assert line["type"] == "job"
    assert {"oracle_budget", "walks_suite", "fast_forward"} <= line["job"].keys()
