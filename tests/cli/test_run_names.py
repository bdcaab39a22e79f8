"""Every command accepts the same names of a run: `latest`, a name, a folder."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.__main__ import main
from pipeline.cli.console import complain
from pipeline.model.errors import PipelineError
from pipeline.results.tables import parquet
from pipeline.runs.parent import resume
from pipeline.runs.parent.command import INVOCATION, Command, claim, release
from support import compare_runs

Ask = Callable[[Path, str], int]
"""(results folder, RUN) → exit code; the command prints its output."""


def _compare(results: Path, run: str) -> int:
    before = results.parent / "before"
    if not before.exists():
        compare_runs.made(before, [{"case": "x"}])
    return main(["compare", f"results_dir={results}", f"before.run={before}", f"after.run={run}"])


def _report(results: Path, run: str) -> int:
    pytest.importorskip("jinja2")
    out = results.parent / "site"
    code = main(["report", f"results_dir={results}", f"run={run}", f"out={out}"])
    if code == 0:
        print(re.findall("<title>.*</title>", (out / "index.html").read_text("utf-8")))
    return code


def _baseline(results: Path, run: str) -> int:
    file = f"file={results.parent}/baseline.txt"
    return main(["baseline", "save", f"results_dir={results}", f"run={run}", file])


def _collect(results: Path, run: str) -> int:
    return main(["collect", f"results_dir={results}", f"run={run}"])


def _resume(results: Path, run: str) -> int:
    try:
        print(resume.command([f"resume={run}"], str(results)).arguments)
    except PipelineError as error:
        return complain(error)
    return 0


COMMANDS: dict[str, Ask] = {
    "compare": _compare,
    "report": _report,
    "baseline": _baseline,
    "collect": _collect,
    "resume": _resume,
}
TAKES = {
    "compare": "After:  {}\n",
    "report": "Overview · {} · byte-exact",
    "baseline": "1 verdicts of {} saved",
    "collect": "/{}\n  manifest.json",
    "resume": "run.name='{}'",
}
"""Text that each command prints about the run it uses."""


@pytest.fixture(autouse=True)
def _own_command(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv(INVOCATION, os.urandom(8).hex())


def _results(folder: Path, *statuses: str | None) -> Path:
    """Runs `a`, `b`, …, one day after another; None for one without a manifest."""
    folder.mkdir()
    for day, status in enumerate(statuses, start=1):
        run = compare_runs.made(folder / "abc"[day - 1], [{"case": "x"}])
        claim(run, Command("run", (f"seed={day}",), str(folder)))
        release(run)
        record = json.loads((run / "manifest.json").read_text("utf-8"))
        ended = datetime.datetime(2026, 1, day, tzinfo=datetime.UTC)
        record |= {"status": status, "volatile": {"finished": ended.isoformat()}}
        (run / "manifest.json").write_text(json.dumps(record), "utf-8")
        if status is None:
            (run / "manifest.json").unlink()
            os.utime(run / "parts", (ended.timestamp(), ended.timestamp()))
    return folder


DONE, CUT, KILLED = "complete", "interrupted", None


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("statuses", "outcomes"),
    [
        ((DONE, CUT, DONE), {"*": "c", "resume": "b"}),
        (
            (DONE, KILLED, CUT),
            dict.fromkeys(("compare", "baseline"), "c is interrupted, not complete") | {"*": "c"},
        ),
        (
            (DONE, DONE, KILLED),
            dict.fromkeys(("compare", "baseline"), "c has no manifest") | {"*": "c"},
        ),
        ((DONE, DONE), {"*": "b", "resume": "holds no unfinished run: all of its runs are comp"}),
        ((), {"*": "holds no run; make one with", "report": ""}),
    ],
)
def test_latest_is_the_newest_run_and_for_resume_the_newest_unfinished_one(
    command: str,
    statuses: tuple[str | None, ...],
    outcomes: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Commands that need a complete run reject an incomplete one; they do not use an older run."""
    results = _results(tmp_path / "runs", *statuses)
    wanted = outcomes.get(command, outcomes["*"])
    capsys.readouterr()
    code = COMMANDS[command](results, "latest")
    said = capsys.readouterr()
    if not wanted:
        assert code == 0, "its pages say that there is no run"
    elif len(wanted) == 1:
        assert (code, TAKES[command].format(wanted) in said.out) == (0, True), said
    else:
        assert (code, wanted in said.err) == (2, True), said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_has_one_name_in_every_command(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = _results(tmp_path / "runs", DONE, DONE)
    ask = COMMANDS[command]
    for run in ("b", str(results / "b"), f"{results}/a/../b"):
        capsys.readouterr()
        assert ask(results, run) == 0
        release(results / "b")
        assert TAKES[command].format("b") in capsys.readouterr().out
    for run, words in (
        ("none", f"There is no run 'none' in {results} (b, a), and no folder of that name."),
        ("baseline", "The baseline can only be the before side: before.run=baseline."),
    ):
        assert ask(results, run) == 2
        assert words in capsys.readouterr().err


def test_tables_without_parts_are_not_merged_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Happens if only the tables of a run were copied."""
    run = compare_runs.made(tmp_path / "copied", [{"case": "x"}])
    assert _collect(tmp_path, "latest") == 2
    assert "copied has no parts/ to merge" in capsys.readouterr().err
    assert parquet.read(run, "cells").height == 1
