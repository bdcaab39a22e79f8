"""`compare`: its outputs, sampled repeats, its imports, and its documented exit codes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pipeline.cli import compare
from pipeline.model.verdicts import Change
from pipeline.results.compare import comparison, pairing
from pipeline.results.compare.formats import github, junit, markdown
from pipeline.results.compare.repeats import mcnemar, wilson
from pipeline.results.compare.side import SideRequest, load
from pipeline.system.text import visible
from support import compare_runs
from support.command import ROOT
from support.compare_runs import failing, made, matrix
from support.comparisons import Out, both, builders, compared, ran

matrix_run = compare_runs.matrix_run

# ── outputs ─────────────────────────────────────────────────────────────────────────────────────

HOSTILE = (
    b"\x1b[2J\x00\xff|`` </failure>]]> \"'\\\n::error::x\r##[error]y %0A @team <script>"
    + "\u202e".encode()
)


def hostile(tmp_path: Path) -> tuple[Path, Path]:
    bad = failing("x", output=HOSTILE.decode("latin-1"), reason="a\x1b[31m\n::error::z|`b`")
    names = {"tokenizer": "to|`k\x1b[1m\n::warning::"}
    return (
        made(tmp_path / "before", [{"case": "x"} | names]),
        made(tmp_path / "af\x1b[1mter", [bad | names]),
    )


def test_all_files_are_written_and_valid(tmp_path: Path, capsys: Out) -> None:
    out = tmp_path / "out"
    code, console, _ = ran(capsys, *builders("fixed", "unfixed"), f"out={out}")
    assert code == 1
    names = {path.name for path in out.iterdir()}
    assert all(f"comparison.{kind}" in names for kind in ("parquet", "md", "xml", "json"))
    assert names == {*re.split(r", |: ", console.splitlines()[-1])[1:]}
    changes = pl.read_parquet(out / "comparison.parquet")["change"]
    assert set(changes) <= {change.value for change in Change}
    record = json.loads((out / "comparison.json").read_text())
    _schema().validate(record)
    assert record["counts"]["regressed"] == 39 == len(record["cells"])
    suites = ElementTree.parse(out / "comparison.xml").getroot()
    assert int(suites.attrib["failures"]) == len(suites.findall(".//failure"))
    assert len(suites.findall(".//testcase[failure]")) == 39 + record["n_tables_worse"] - sum(
        t["n"] - 1 for t in record["tables"] if t["change"] == "worse"
    )
    assert "39 cells" in (out / "comparison.md").read_text().splitlines()[0]


def _schema() -> Any:
    schema = json.loads((ROOT / "docs/comparison.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_an_unwritable_output_folder_is_reported(tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = ran(capsys, *builders("unfixed", "fixed"), f"out={tmp_path / 'file/x'}")
    assert code == 2
    assert "cannot be written" in err and "out=" in err


def test_junit_skips_old_failures_and_fails_new_ones(tmp_path: Path) -> None:
    a = made(tmp_path / "a", [{"case": "x"}, failing("y"), {"case": "z"}, {"case": "gone"}])
    b = made(tmp_path / "b", [failing("x"), failing("y"), {"case": "z"}, failing("new")])
    root = ElementTree.fromstring("".join(junit.lines(compared(a, b))))
    kinds = {case.attrib["name"]: [child.tag for child in case] for case in root.iter("testcase")}
    assert kinds == {
        "x": ["failure"],
        "gone": ["failure"],
        "y": ["skipped"],
        "new": ["skipped"],
        "z": [],
    }
    allowed = ElementTree.fromstring("".join(junit.lines(compared(a, b, "cases"))))
    assert allowed.attrib["failures"] == "1"


def test_markdown_is_cut_with_a_count_never_silently(tmp_path: Path) -> None:
    names = [f"case_{number}" for number in range(3000)]
    a = made(tmp_path / "a", [{"case": name} for name in names] + [failing("mended")])
    b = made(tmp_path / "b", [failing(name, output="é|`" * 50) for name in names])
    text = markdown.text(compared(a, b), "regression")
    assert len(text) <= markdown.MAX_CHARS
    shown = text.count("`m/t b s/case_")
    assert "\n### Regressed (3000)\n" in text
    assert shown > 50
    assert f"- … and {3000 - shown} more; all are in `comparison.parquet`" in text
    assert "### Removed (1)" in text  # a long section leaves room for the next one


@settings(derandomize=True, deadline=None)
@given(st.integers(200, 5000))
def test_markdown_never_exceeds_its_room(limit: int) -> None:
    text = markdown.text(_wide(), "regression", limit)
    assert len(text) <= limit
    assert "more" in text


_WIDE: list[comparison.Comparison] = []


def _wide() -> comparison.Comparison:
    if not _WIDE:
        one, two = (
            load(SideRequest(str(matrix()), builder=name), Path()) for name in ("fixed", "unfixed")
        )
        _WIDE.append(comparison.compare(one, two))
    return _WIDE[0]


def test_console_is_cut_with_a_count(capsys: Out) -> None:
    _, out, _ = ran(capsys, *builders("fixed", "unfixed"), "limit=2")
    assert "… and 37 more; raise limit=, or write them all with out=DIR" in out


def test_hostile_text_reaches_no_output_raw(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = hostile(tmp_path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.chdir(tmp_path)
    found = compared(*runs)
    (tmp_path / "results").mkdir()
    os.utime(runs[0] / "manifest.json", (1, 1))
    arguments = ["results_dir=.", "before.run=before", "after.run=latest", "out=out"]
    code, out, err = ran(capsys, *arguments)
    assert code == 1, err
    markdown_text = (tmp_path / "out/comparison.md").read_text()
    xml = (tmp_path / "out/comparison.xml").read_text()
    for text in (out, markdown_text, xml):
        odd = [char for char in text if not char.isprintable() and char != "\n"]
        assert odd == []
    commands = [line for line in out.splitlines() if line.lstrip().startswith("::")]
    assert len(commands) == 2 and commands[0].startswith("::error title=regressed%3A ")
    assert commands[1].startswith("::error title=table worse%3A standings::")
    assert "##[" not in out
    assert commands == list(github.lines(found))
    root = ElementTree.fromstring(xml)
    assert len(root.findall(".//failure")) == 2 and "</failure>" in (root[0][0][0].text or "")
    assert "<script>" not in re.sub(r"(`+).*?\1(?!`)", "", markdown_text)
    _schema().validate(json.loads((tmp_path / "out/comparison.json").read_text()))


def test_annotations_only_on_github_and_no_more_than_it_shows(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert "::error" not in ran(capsys, *builders("fixed", "unfixed"))[1]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    lines = ran(capsys, *builders("fixed", "unfixed"))[1].splitlines()
    told = [line for line in lines if line.startswith("::error")]
    assert len(told) == github.MAX
    assert re.search(r"::\d+ more are worse", told[-1])
    assert "::error" not in ran(capsys, *builders("unfixed", "fixed"))[1]


@given(st.text() | st.binary())
def test_visible_text_is_printable_and_stays_so(value: str | bytes) -> None:
    shown = visible(value, 10_000)
    assert shown.isprintable()
    assert visible(shown, 100_000) == shown


@given(st.text(min_size=1))
def test_a_code_span_holds_all_of_its_text(text: str) -> None:
    span = markdown.code(text)
    fence = re.match("`+", span)
    assert fence and span.endswith(fence[0]) and "\n" not in span
    inner = span[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inner)


# ── sampled repeats ─────────────────────────────────────────────────────────────────────────────


def test_repeats_give_rates_and_an_exact_test(tmp_path: Path, capsys: Out) -> None:
    def run(name: str, wrong: int) -> Path:
        cells = [(failing("x") if n < wrong else {"case": "x"}) | {"repeat": n} for n in range(20)]
        return made(tmp_path / name, cells)

    out = tmp_path / "out"
    code, console, _ = ran(capsys, *both(run("a", 2), run("b", 10)), f"out={out}")
    assert code == 1
    assert "ok 90.0% [69.9%, 97.2%] → 50.0% [29.9%, 70.1%] of 20 pairs" in console
    assert "8 regressed, 0 fixed, McNemar exact p = 0.00781" in console
    record = json.loads((out / "comparison.json").read_text())
    _schema().validate(record)
    assert record["rates"][0]["pairs"] == 20


def test_greedy_cells_show_no_rates(tmp_path: Path, capsys: Out) -> None:
    a = made(tmp_path / "a", [{"case": "x", "repeat": None}])
    b = made(tmp_path / "b", [failing("x")])
    for runs in ((a, b), (b, a)):
        assert "McNemar" not in ran(capsys, *both(*runs))[1]
    assert compared(a, b).rates == ()
    assert "McNemar" not in ran(capsys, *builders("fixed", "unfixed"))[1]


def test_wilson_and_mcnemar_against_known_values() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.27753), abs=1e-5)
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)  # Newcombe 1998
    assert wilson(0, 0) == (0.0, 1.0)
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(6, 0) == pytest.approx(2 / 64)
    assert mcnemar(5, 5) == 1.0
    assert mcnemar(3000, 2000) == mcnemar(2000, 3000) < 1e-40


# ── imports and exit codes ──────────────────────────────────────────────────────────────────────


def in_a_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compare_needs_neither_llama_cpp_nor_llguidance(tmp_path: Path) -> None:
    arguments = ["compare", *builders("unfixed", "fixed"), f"out={tmp_path}"]
    in_a_process(
        "import sys\n"
        "for name in ('llama_cpp', 'llguidance'): sys.modules[name] = None\n"
        "from pipeline.__main__ import main\n"
        f"assert main({arguments!r}) == 0\n"
        "loaded = {'pipeline.native', 'pipeline.runs', 'pipeline.engines', 'gguf'}\n"
        "assert not loaded & sys.modules.keys(), loaded & sys.modules.keys()\n"
    )


@pytest.mark.parametrize("command", ["compare", "baseline"])
def test_help_loads_nothing_heavy(command: str) -> None:
    out = in_a_process(
        "import sys\n"
        "from pipeline.__main__ import main\n"
        f"assert main([{command!r}, '--help']) == 0\n"
        "heavy = {'polars', 'llama_cpp', 'llguidance', 'hydra', 'omegaconf', 'numpy', 'gguf'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    assert f"python -m pipeline {command}" in out
    assert "Exit codes" in out


def test_only_the_settings_know_hydra() -> None:
    parts = [*(ROOT / "pipeline/results/compare").rglob("*.py")]
    parts += [ROOT / "pipeline/cli/compare.py", ROOT / "pipeline/system/text.py"]
    for path in parts:
        assert not re.search(r"(import|from) (hydra|omegaconf)", path.read_text()), path


def test_documented_exit_codes_are_the_real_ones() -> None:
    pages = [ROOT / "README.md", ROOT / "docs/compare.md"]
    page = "\n".join(path.read_text() for path in pages if path.exists())
    rows = [f"| {code} | {meaning} |" for code, meaning in compare.EXIT_CODES.items()]
    assert "\n".join(rows) in page
    for change in Change:
        assert f"`{change.value}`" in page
    assert pairing.WORSE == (Change.REGRESSED, Change.FAILURE_WORSE, Change.REMOVED)
