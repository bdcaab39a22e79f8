"""`baseline`: a readable file of verdicts, a ratchet, and a gate."""

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from pipeline.__main__ import main
from pipeline.results.tables import parquet, schemas
from support import compare_runs
from support.command import ROOT
from support.compare_runs import copied, failing, made, matrix

Out = pytest.CaptureFixture[str]

matrix_run = compare_runs.matrix_run
"""The fixture that `matrix` needs; pytest finds it only in the module of the tests."""


def ran(capsys: Out, command: str, *arguments: object) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command."""
    capsys.readouterr()
    code = main([*command.split(), *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def saved(capsys: Out, run: Path, file: Path, *more: str) -> int:
    return ran(capsys, "baseline save", f"run={run}", f"file={file}", *more)[0]


def gated(capsys: Out, file: Path, run: Path, *more: str) -> tuple[int, str, str]:
    arguments = ["before.run=baseline", f"baseline={file}", f"after.run={run}", *more]
    return ran(capsys, "compare", *arguments)


def cell_lines(file: Path) -> list[str]:
    lines = file.read_text().splitlines()
    return [line for line in lines if not re.match(r"#|[a-z]+=", line)]


def test_the_file_is_one_sorted_verdict_per_cell(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "baseline.txt"
    assert saved(capsys, matrix(), file) == 0
    cells = parquet.read(matrix(), "cells").select("verdict", "cell_key").rows()
    lines = [tuple(line.split()) for line in cell_lines(file)]
    assert lines == sorted(cells, key=lambda row: row[1])
    text = file.read_text()
    assert f"# schema {schemas.SCHEMA_VERSION}\n" in text
    assert "# version llguidance = " in text and "# suite enum = " in text
    for volatile in ("commit", "python", "device", "library"):
        assert f"# version {volatile}" not in text
    assert saved(capsys, matrix(), file) == 0
    assert file.read_text() == text


def test_the_projects_own_baseline_holds(capsys: Out) -> None:
    """The gate of the project's own CI, on the embedded matrix.

    Library versions may differ from those in the baseline. Nothing else may.
    """
    code, out, err = gated(capsys, ROOT / "baseline.txt", matrix())
    assert code == 0, out + err
    assert "PASS: nothing" in out


def test_a_regression_fails_the_gate_and_is_not_saved(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "baseline.txt"
    good = made(tmp_path / "good", [{"case": "x"}, failing("y")])
    bad = made(tmp_path / "bad", [failing("x"), {"case": "y"}])
    assert saved(capsys, good, file) == 0
    before = file.read_text()
    code, out, _ = gated(capsys, file, bad)
    assert code == 1
    assert "Regressed (1)" in out and "Fixed (1)" in out
    code, out, err = ran(capsys, "baseline save", f"run={bad}", f"file={file}")
    assert code == 1
    assert "worse than" in err and "allow_regressions=true" in err and "Regressed (1)" in out
    assert file.read_text() == before
    assert saved(capsys, bad, file, "allow_regressions=true") == 0
    assert gated(capsys, file, bad)[0] == 0


def test_improvements_and_new_cells_are_saved_on_request(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "baseline.txt"
    old = made(tmp_path / "old", [{"case": "x"}, failing("y")])
    new = made(tmp_path / "new", [{"case": "x"}, {"case": "y"}, {"case": "z"}])
    assert saved(capsys, old, file) == 0
    assert gated(capsys, file, new)[0] == 0
    assert gated(capsys, file, new, "fail_on=any_change")[0] == 1
    assert saved(capsys, new, file) == 0
    assert gated(capsys, file, old)[0] == 1  # the ratchet has moved


def test_a_missing_cell_fails_the_gate_and_is_not_saved(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "baseline.txt"
    assert saved(capsys, made(tmp_path / "a", [{"case": "x"}, {"case": "y"}]), file) == 0
    fewer = made(tmp_path / "b", [{"case": "x"}])
    assert gated(capsys, file, fewer)[0] == 1
    assert saved(capsys, fewer, file) == 1


def test_a_changed_case_is_refused_even_if_others_were_added(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "baseline.txt"
    assert saved(capsys, made(tmp_path / "a", [{"case": "x"}]), file) == 0
    more = made(tmp_path / "b", [{"case": "x"}, {"case": "y"}])
    assert gated(capsys, file, more)[0] == 0
    other = made(tmp_path / "c", [{"case": "x", "case_hash": "other"}, {"case": "y"}])
    code, _, err = gated(capsys, file, other)
    assert code == 2
    assert "suites: suite s differs from the one in baseline.txt" in err
    assert gated(capsys, file, other, "allow=[suites]")[0] == 0


def test_cells_that_died_before_their_case_was_read_are_regressions_not_refusals(
    tmp_path: Path, capsys: Out
) -> None:
    file = tmp_path / "baseline.txt"
    assert saved(capsys, made(tmp_path / "a", [{"case": "x"}, {"case": "y"}]), file) == 0
    nothing = {"case_hash": None, "vocab_hash": None, "model_sha256": None}
    dead = made(tmp_path / "b", [{"case": "x"}, {"case": "y", "verdict": "crashed"} | nothing])
    code, out, _ = gated(capsys, file, dead)
    assert code == 1
    assert "ok → crashed" in out


@pytest.mark.parametrize(
    ("column", "kind"), [("vocab_hash", "vocabulary"), ("model_sha256", "model")]
)
def test_another_vocabulary_or_model_is_refused(
    column: str, kind: str, tmp_path: Path, capsys: Out
) -> None:
    file = tmp_path / "baseline.txt"
    assert saved(capsys, made(tmp_path / "a", [{"case": "x"}]), file) == 0
    code, _, err = gated(capsys, file, made(tmp_path / "b", [{"case": "x", column: "other"}]))
    assert code == 2
    assert f"{kind}: {kind} " in err and f"allow=[{kind}]" in err


def test_one_builder_of_the_baseline(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "baseline.txt"
    assert saved(capsys, matrix(), file) == 0
    worse = pl.when(builder="unfixed").then(pl.lit("crashed")).otherwise("verdict")
    run = copied(tmp_path / "worse", lambda cells: cells.with_columns(verdict=worse))
    only = ["before.builder=fixed", "after.builder=fixed"]
    assert gated(capsys, file, run, *only)[0] == 0
    code, out, _ = gated(capsys, file, run)
    assert code == 1
    assert "Regressed (1)" in out and "Failure better (39)" in out
    assert gated(capsys, file, run, "before.builder=fixed", "after.builder=unfixed")[0] == 1


def test_show_lists_failures_and_escapes_text(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "baseline.txt"
    run = made(tmp_path / "a", [{"case": "x"}, failing("y", builder="b\x1b[1m")])
    assert saved(capsys, run, file) == 0
    code, out, _ = ran(capsys, "baseline show", f"file={file}")
    assert code == 0
    assert "2 cells: 1 unenforced, 1 ok" in out
    assert "  unenforced  inprocess/m/t/b\\x1b[1m/s/y" in out and "\x1b" not in out


@pytest.mark.parametrize("rest", ["", "; written by `byte-exact baseline save`", "; 40 cells"])
def test_the_text_after_the_format_number_may_change(
    rest: str, tmp_path: Path, capsys: Out
) -> None:
    """The whole first line was compared, so that a change of its wording broke every baseline."""
    file = tmp_path / "baseline.txt"
    assert saved(capsys, matrix(), file) == 0
    first, _, cells = file.read_text().partition("\n")
    assert first.startswith("# byte-exact baseline, format 2;")
    file.write_text(f"# byte-exact baseline, format 2{rest}\n{cells}")
    assert gated(capsys, file, matrix())[0] == 0


_SCHEMA = f"# schema {schemas.SCHEMA_VERSION}\n"


@pytest.mark.parametrize("version", range(1, schemas.SCHEMA_VERSION + 1))
def test_a_baseline_of_every_schema_version_is_read(
    version: int, tmp_path: Path, capsys: Out
) -> None:
    """A cell's verdicts and keys have the same words in all of them."""
    file = tmp_path / "baseline.txt"
    assert saved(capsys, matrix(), file) == 0
    file.write_text(file.read_text("utf-8").replace(_SCHEMA, f"# schema {version}\n"), "utf-8")
    assert gated(capsys, file, matrix())[0] == 0


NO_BASELINES: list[tuple[Callable[[str], str], str]] = [
    (lambda text: text[: text.rindex("ok")], "cut short or merged by hand"),
    (lambda text: text[:-12], "the file was cut short, or a merge conflict is left in it"),
    (
        lambda text: text + "<<<<<<< HEAD\n",
        "the file was cut short, or a merge conflict is left in it",
    ),
    (lambda text: text.replace("format 2", "format 3"), "has format 3"),
    (lambda text: text.replace("format 2", "format 12"), "has format 12"),
    (
        lambda text: text.replace("format 2", "format x"),
        "does not begin with `# byte-exact baseline, format N`",
    ),
    (lambda text: text.replace(_SCHEMA, "# schema 99\n"), "schema version 99"),
    (lambda text: text.replace("ok  ", "fine"), "unknown verdicts: ['fine']"),
    (lambda text: text + text.splitlines()[-1] + "\n", "cut short or merged by hand"),
    (lambda text: "", "does not begin with `# byte-exact baseline, format N`"),
    (lambda text: "\udcff", "cannot be read"),
]
"""How each test damages the baseline file, and a part of the error message."""


@pytest.mark.parametrize(("edit", "said"), NO_BASELINES)
def test_a_damaged_baseline_is_refused(
    edit: Callable[[str], str], said: str, tmp_path: Path, capsys: Out
) -> None:
    file = tmp_path / "baseline.txt"
    run = made(tmp_path / "a", [{"case": "x"}, {"case": "y"}])
    assert saved(capsys, run, file) == 0
    assert callable(edit)
    file.write_text(edit(file.read_text()), errors="surrogateescape")
    for code, _, err in (
        gated(capsys, file, run),
        ran(capsys, "baseline show", f"file={file}"),
        ran(capsys, "baseline save", f"run={run}", f"file={file}"),
    ):
        assert code == 2
        assert said in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("baseline", 2, ""),
        ("baseline keep", 2, "use save or show"),
        ("baseline show file=none.txt", 2, "make one with"),
        ("baseline save run=none", 2, "There is no run 'none'"),
        ("baseline save fail=x", 2, "baseline --help"),
        ("baseline save file=none/x.txt run=RUN", 2, "cannot be written"),
    ],
)
def test_bad_usage(arguments: str, code: int, said: str, capsys: Out) -> None:
    got, _, err = ran(capsys, arguments.replace("RUN", str(matrix())))
    assert got == code
    assert said in err


def test_repeats_have_no_baseline(tmp_path: Path, capsys: Out) -> None:
    run = made(tmp_path / "a", [{"case": "x", "repeat": n} for n in (0, 1)])
    code, _, err = ran(capsys, "baseline save", f"run={run}", f"file={tmp_path / 'b.txt'}")
    assert code == 2
    assert "sampled repeats" in err
