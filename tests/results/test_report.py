"""The report as files: the text of each page for complete, partial, foreign and large runs."""

import html
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipeline.__main__ import main
from pipeline.cli import site
from pipeline.model.verdicts import Verdict
from pipeline.results.report import replay
from pipeline.results.report.sections import sections
from pipeline.results.report.site import embed_json, to_json
from pipeline.results.report.verdict_looks import LOOKS, Group
from pipeline.system.rerun import Recipe
from support import report_runs
from support.command import ROOT, Finished
from support.report_runs import (
    Row,
    cell,
    cut_short,
    made,
    nothing,
    reported,
    row,
    server,
    step,
    truncated,
)

PAGES = [section.file for section in sections() if section.title]
MB = 1_000_000


def text(site: Path, file: str) -> str:
    """The text of a page, without its scripts, styles and tags."""
    page = (site / file).read_text("utf-8")
    page = re.sub(r"(?s)<(script|style)\b.*?</\1>", " ", page)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def data(site: Path, file: str, name: str) -> Any:
    """The JSON that a page has in the element with this id."""
    page = (site / file).read_text("utf-8")
    found = re.search(rf'(?s)<script type="application/json" id="{name}">(.*?)</script>', page)
    assert found is not None, name
    return json.loads(found[1])


def test_the_report_of_a_real_run(default_run: Finished, tmp_path: Path) -> None:
    sides = ("before.builder=unfixed", "after.builder=fixed")
    site = tmp_path / "site"
    results = default_run.folder.parent
    named = (f"results_dir={results}", f"run={default_run.folder.name}", f"out={site}")
    assert main(["report", *named, *sides]) == 0
    first = text(site, "index.html")
    assert "PASS: nothing is worse" in first, "the comparison comes first"
    assert "unfixed on mistral_v1 is unsafe; fixed on mistral_v1 is safe within" in first
    assert 'token 9830 {" (the table says {"' in first, "the token that broke most cells"
    assert "tiny mistral_v1/SPM 0/3, 1/40, 27 err 3/3, 40/40, 0 err, greedy" in first
    assert "15763/32000 15749" in first
    assert "llguidance 1.9.1" in first
    assert "40 cells: 39 fixed, 1 still passing" in text(site, "changes.html")
    assert len(data(site, "matrix.html", "rows")) == 40
    assert "leading space lost 15,747" in text(site, "tokens.html")
    [wrong] = (site / "tokens").iterdir()
    assert len(data(site, f"tokens/{wrong.name}", "rows")) == 15763
    assert "1 finished run " in text(site, "trend.html")
    pages = sorted((site / "cells").iterdir())
    assert len(pages) == 6, "three suites under two builders"
    cells = [one for page in pages for one in data(site, f"cells/{page.name}", "cells")]
    assert len(cells) == 80
    assert sum(len(one["steps"]) for one in cells) == default_run.table("steps").height
    assert max(file.stat().st_size for file in site.rglob("*.html")) < 5 * MB


def test_the_same_run_gives_the_same_files(tmp_path: Path) -> None:
    report_runs.hostile(tmp_path / "runs" / "a")
    first = {f: f.read_bytes() for f in reported(tmp_path / "runs").rglob("*.html")}
    second = {f: f.read_bytes() for f in reported(tmp_path / "runs").rglob("*.html")}
    assert first == second


def test_a_cell_page_shows_the_steps(tmp_path: Path) -> None:
    bad = cell(case="c", verdict="unenforced", lost_at_step=1, culprit_step=0, n_legal_bytes=1)
    state = row(
        "states",
        tokenizer="t",
        builder="b",
        grammar="s/c",
        walk="generate/m",
        step=0,
        verdict="unsound",
        ids=[7, 8],
        reason="why",
    )
    made(
        tmp_path / "runs" / "a",
        {
            "cells": [bad, cell(case="c", builder="other")],
            "steps": [
                step(bad, 0, token=7, true=b" x", claimed=b"x", origin="forced"),
                step(bad, 1, true=b"y", rendered=b"", n_allowed=None, origin="unconstrained"),
            ],
            "states": [state],
        },
    )
    site = reported(tmp_path / "runs")
    page = next(file for file in (site / "cells").iterdir() if "-b-" in file.name)
    [one] = data(site, f"cells/{page.name}", "cells")
    assert one["steps"] == [
        [0, 7, "NORMAL", " x", "x", 0, 3, "forced", "unsound", [7, 8], "why"],
        [1, 1, "NORMAL", "y", 0, "", None, "unconstrained"],
    ]
    assert one["output"] == ["{", "}"], "split where the grammar was left"
    [[other, verdict, href]] = data(site, f"cells/{page.name}", "others-data")["c"]
    assert (other, verdict) == ("other", "ok")
    assert (page.parent / href.partition("#")[0]).resolve().exists()


def test_unknown_bytes_of_a_server_are_not_called_wrong(tmp_path: Path) -> None:
    """A server returns the ids that it sampled, but not its token table and not its masks."""
    bad = cell(target="server", case="c", verdict="silent_corruption", culprit_step=0)
    unsaid = step(bad, 0, token=7, true=b" x", claimed=None, n_allowed=None, origin=None)
    made(tmp_path / "runs" / "a", {"cells": [bad], "steps": [unsaid]})
    site = reported(tmp_path / "runs")
    assert "token 7 x ; its claimed bytes are not known" in text(site, "index.html")
    [page] = (site / "cells").iterdir()
    [one] = data(site, f"cells/{page.name}", "cells")
    assert one["steps"] == [[0, 7, "NORMAL", " x", None, 0, None, None]]


def test_repeats_of_one_cell_each_have_their_place_and_their_steps(tmp_path: Path) -> None:
    cells = [cell(case="c", repeat=n) for n in (0, 1)]
    steps = [step(one, 0, token=7 + n, repeat=n) for n, one in enumerate(cells)]
    found: Row = {"tokenizer": "t", "builder": "b", "grammar": "s/c", "step": 0, "ids": []}
    states = [
        row("states", **found, walk=f"generate/m#{n}", verdict=verdict)
        for n, verdict in enumerate(("exact", "unsound"))
    ]
    made(tmp_path / "runs" / "a", {"cells": cells, "steps": steps, "states": states})
    site = reported(tmp_path / "runs")
    assert [one[4] for one in data(site, "matrix.html", "rows")] == ["c (0)", "c (1)"]
    [page] = (site / "cells").iterdir()
    taken = [one["steps"] for one in data(site, f"cells/{page.name}", "cells")]
    assert [[(s[1], s[8]) for s in one] for one in taken] == [[(7, "exact")], [(8, "unsound")]]


def test_a_replay_shows_who_is_at_fault_in_each_walk(tmp_path: Path) -> None:
    report_runs.replay(tmp_path / "runs" / "a")
    site = reported(tmp_path / "runs")
    told = "fixed is at fault in none of 2 walks; unfixed is at fault in 2 of 3 walks."
    assert "unfixed on t is unsafe" in text(site, "index.html")
    page = text(site, replay.FILE)
    assert told in page
    assert "t fixed 2 2 1 none none 1 grammar_error, 1 invalid_accepted none 9 µs" in page
    assert "t unfixed 1 3 1 none 2 valid_refused none none 9 µs" in page
    assert "2 walks token 7 x (the table says x" in page
    shared = data(site, replay.FILE, "data")["shared"]
    rows = data(site, replay.FILE, "rows")
    assert [[shared[n] for n in one[1:8]] + one[8:] for one in rows] == [
        ["unfixed", "a", "i", "greedy", "valid_refused", "builder", "refused", 7, " x", "x"],
        ["unfixed", "a", "i", "random", "valid_refused", "builder", "refused", 7, " x", "x"],
        ["fixed", "a", "j", "canonical", "invalid_accepted", "engine", "", 0, 0, 0],
        ["fixed", "b", "", "", "grammar_error", "engine", "no such keyword", 0, 0, 0],
    ], "the builders' faults first"


def test_the_field_page_has_the_proof_of_each_fault(tmp_path: Path) -> None:
    """A row has builder, release, vocabulary, numbers, status, smallest mask, files and report."""
    report_runs.field(tmp_path / "runs")
    site = reported(tmp_path / "runs")
    said = text(site, "field.html")
    assert "1 of 3 token tables, of 3 builders and releases" in said
    assert "1 was refused" in said
    assert "lmfe 0.11.3 128" in said
    [lmfe, *others] = data(site, "field.html", "builder-rows")
    proof = ["start: /(é|z)/", "", "incomplete", "198", "\\xc3", "\ufffd", 0]
    link = "https://github.com/noamgat/lm-format-enforcer/issues/92"
    known = [["noamgat/lm-format-enforcer#92", link], ["by its use", ""]]
    assert lmfe == ["lmfe", "0.11.3", "llama_spm", 31740, 128, "ok", "", proof, known]
    assert ["fixed", "ours", "llama_spm", 31740, 0, "ok", "", 0, []] in others
    refused = next(row for row in others if row[0] == "outlines")
    assert refused[4:8] == [None, "builder refused", "no 'eos_token'", 0]
    [engine] = data(site, "field.html", "engine-rows")
    assert engine[3:7] == ["unsound", "special", 4, 63]
    assert engine[7][4:] == ["<unk>", "", 1]
    assert [name for name, _ in engine[8]] == [
        "noamgat/lm-format-enforcer#54",
        "noamgat/lm-format-enforcer#80",
    ]
    assert "python -m pipeline run grammar=path builder=lmfe" in said
    assert "suite: reproducer" in said

    first = text(site, "index.html")
    assert "1 of 3 token tables of 3 builders have tokens with wrong bytes; 1 was refused" in first
    assert "Look at the released libraries: 1 of their token tables are wrong" in first
    assert 'href="field.html"' in (site / "index.html").read_text("utf-8")


def test_without_a_released_builder_the_field_says_how_to_get_them(
    default_run: Finished, tmp_path: Path
) -> None:
    named = (f"results_dir={default_run.folder.parent}", f"run={default_run.folder.name}")
    assert main(["report", *named, f"out={tmp_path / 'site'}"]) == 0
    said = text(tmp_path / "site", "field.html")
    assert "1 of 2 token tables" in said
    assert "No released library's builder was chosen" in said
    assert "audit.engines=[xgrammar" in said


# Every page says what is missing.


def without_steps(results: Path) -> None:
    broken = cell(case="c", verdict="unenforced", culprit_step=0)
    made(
        results / "a",
        {
            "cells": [broken],
            "tokenizers": [
                row(
                    "tokenizers",
                    tokenizer="t",
                    builder="b",
                    status="ok",
                    n_tokens=3,
                    n_wrong=0,
                    tokenize="exact",
                )
            ],
        },
    )


def damaged(results: Path) -> None:
    run = made(results / "a", {"cells": [cell(case="c")]})
    (run / "steps.parquet").write_bytes(b"PAR1 cut")


def fewer_rows(results: Path) -> None:
    run = made(results / "a", {"cells": [cell(case="c")]})
    path = run / "manifest.json"
    path.write_text(path.read_text().replace('"cells": 1', '"cells": 2'))


def from_tomorrow(results: Path) -> None:
    made(results / "a", {"cells": [cell(case="c"), cell(case="d", verdict="haunted")]})


def audit_alone(results: Path) -> None:
    made(
        results / "a",
        {
            "tokenizers": [
                row(
                    "tokenizers",
                    tokenizer="t",
                    builder="b",
                    status="ok",
                    n_tokens=3,
                    n_wrong=2,
                    tokenize="exact",
                )
            ]
        },
    )


NO_TABLES = "This run has no token tables"
NOT_ASKED = "No comparison was requested"
PARTIAL: list[tuple[Callable[[Path], None], dict[str, list[str]]]] = [
    (
        nothing,
        {
            "*": ["runs holds no run; make one with python -m pipeline run"],
            "index.html": ["There is nothing to show yet.", "No run was found."],
            "matrix.html": ["This run has no cells"],
            "tokens.html": [NO_TABLES],
            "replay.html": ["This run replayed nothing."],
            "field.html": ["This run has no token tables to compare"],
            "changes.html": [NOT_ASKED],
            "trend.html": ["there is no trend"],
        },
    ),
    (
        without_steps,
        {
            "index.html": ["No token can be named: this run recorded no steps"],
            "tokens.html": ["Every token of every table has its true bytes."],
            "changes.html": [NOT_ASKED],
            "cells/*": ["This run recorded no steps", "There is no reproducer"],
        },
    ),
    (
        server,
        {
            "index.html": [
                NO_TABLES,
                "No mask of this run was judged",
                "a server does not show its masks",
            ],
            "matrix.html": ["2 cells"],
            "tokens.html": [NO_TABLES],
            "cells/*": [
                "This run recorded no steps: its target does not show steps, as with a server"
            ],
        },
    ),
    (
        truncated,
        {
            "*": ["This run has no manifest (manifest.json): it was interrupted"],
            "index.html": ["Finish the run or start it again", NO_TABLES],
            "matrix.html": ["1 cells"],
            "trend.html": ["has no manifest"],
            "cells/*": ["it was interrupted"],
        },
    ),
    (damaged, {"*": ["steps.parquet is damaged or truncated"], "cells/*": ["recorded no steps"]}),
    (fewer_rows, {"*": ["cells.parquet holds 1 rows, the manifest says 2"]}),
    (from_tomorrow, {"*": ["does not know their verdicts: 1."]}),
    (
        audit_alone,
        {
            "index.html": ["b on t is unsafe", "2 tokens have wrong bytes", "no cells"],
            "matrix.html": ["This run has no cells: nothing was generated"],
        },
    ),
]


@pytest.mark.parametrize(("make", "wanted"), PARTIAL, ids=[make.__name__ for make, _ in PARTIAL])
def test_each_page_says_what_is_missing(
    make: Callable[[Path], None], wanted: dict[str, list[str]], tmp_path: Path
) -> None:
    results = tmp_path / "runs"
    make(results)
    site = reported(results)
    for file in PAGES:
        said = text(site, file)
        for phrase in [*wanted.get("*", []), *wanted.get(file, [])]:
            assert phrase in said, (file, phrase)
    for phrase in wanted.get("cells/*", []):
        pages = [*(site / "cells").iterdir()]
        assert pages
        assert all(phrase in text(site, f"cells/{page.name}") for page in pages), phrase


def test_a_comparison_with_an_interrupted_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truncated(tmp_path)
    code = main(["report", f"results_dir={tmp_path}", "before.builder=b", "after.builder=b"])
    assert code == 2
    assert "has no manifest" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


# The folder.


def test_only_a_report_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server(tmp_path / "runs")
    site = reported(tmp_path / "runs")
    stale = site / "cells" / "of-an-earlier-run.html"
    stale.write_text("")
    reported(tmp_path / "runs")
    assert not stale.exists()

    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.txt").write_text("years of work")
    assert main(["report", f"results_dir={tmp_path / 'runs'}", f"out={other}"]) == 2
    assert "holds something other than a report" in capsys.readouterr().err
    assert [file.name for file in other.iterdir()] == ["chapter.txt"]


def test_a_report_in_the_results_folder_is_not_a_run(tmp_path: Path) -> None:
    server(tmp_path)
    for _ in range(2):
        assert main(["report", f"results_dir={tmp_path}"]) == 0
    assert "1 finished run " in text(tmp_path / "report", "trend.html")


def test_an_unwritable_folder_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server(tmp_path / "runs")
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "site"
    assert main(["report", f"results_dir={tmp_path / 'runs'}", f"out={out}"]) == 2
    assert "Choose another folder with out=…" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run=nowhere"], "There is no run 'nowhere'"),
        (["colour=red"], "report --help"),
        (["before.builder=b"], "or neither"),
        (["before.run=a", "after.run=a", "allow=[all]"], "choose from suites, vocabulary"),
    ],
)
def test_bad_usage_is_reported(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server(tmp_path)
    assert main(["report", f"results_dir={tmp_path}", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_missing_packages_come_with_the_install_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(site, "PACKAGES", ("jinja2", "no_such_package"))
    assert main(["report", f"results_dir={tmp_path}"]) == 2
    err = capsys.readouterr().err
    assert "(no_such_package)" in err
    assert "pip install -c constraints.txt -e '.[report]'" in err


def test_the_help_loads_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--help"]) == 0
    assert "Exit codes" in capsys.readouterr().out
    code = (
        "import sys; from pipeline.__main__ import main; main(['report', '--help']);"
        "print([m for m in ('polars', 'hydra', 'altair', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


# The trend.


def test_the_trend_counts_every_run_by_version(tmp_path: Path) -> None:
    for day, version, verdict in ((1, "0.3.35", "unenforced"), (2, "0.3.36", "ok")):
        made(
            tmp_path / "runs" / f"day{day}",
            {"cells": [cell(case="c", verdict=verdict), cell(case="d")]},
            versions={"llama-cpp-python": version, "llguidance": "1.9.1"},
            volatile={"finished": f"2026-11-0{day}T00:00:00+00:00"},
        )
    cut_short(tmp_path / "runs" / "killed", {"cells": [cell(case="c")]})
    site = reported(tmp_path / "runs", "run=day2")
    said = text(site, "trend.html")
    assert "day2 2026-11-02 00:00:00 0.3.36 1.9.1 2 – 2 day1 2026-11-01" in said
    assert "0.3.35 1.9.1 2 1 1" in said
    assert "killed has no manifest" in said
    chart = data(site, "trend.html", "chart-data")
    [points] = chart["datasets"].values()
    assert [(p["run"], p["verdict"], p["cells"]) for p in points if p["run"] == "day2"] == [
        ("day2", "ok", 2)
    ]
    assert {p["versions"] for p in points} == {
        "llama-cpp-python 0.3.35, llguidance 1.9.1",
        "llama-cpp-python 0.3.36, llguidance 1.9.1",
    }


# Sizes.


@pytest.fixture(scope="module")
def large_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("large") / "runs"
    report_runs.large(results / "a", steps=4)
    return reported(results)


def test_ten_thousand_cells_stay_under_five_megabytes_a_page(large_site: Path) -> None:
    sizes = {file.name: file.stat().st_size for file in large_site.rglob("*.html")}
    assert max(sizes.values()) < 5 * MB, max(sizes, key=lambda name: sizes[name])
    rows = data(large_site, "matrix.html", "rows")
    assert len(rows) == 5_000, "two builders side by side"
    assert rows[0][5][0][0] == "silent_corruption", "the worst first"


def test_rows_that_do_not_fit_on_a_page_are_counted(tmp_path: Path) -> None:
    wide = "w" * 190
    cells = [cell(case=f"{wide}{i}", verdict="ok" if i else "timeout") for i in range(16_000)]
    made(tmp_path / "runs" / "a", {"cells": cells})
    site = reported(tmp_path / "runs")
    rows = data(site, "matrix.html", "rows")
    assert f"{16_000 - len(rows):,} more rows, the least bad ones, did not fit" in text(
        site, "matrix.html"
    )
    assert rows[0][5][0][0] == "timeout"
    sizes = [file.stat().st_size for file in site.rglob("*.html")]
    assert max(sizes) < 5 * MB
    parts = [*(site / "cells").iterdir()]
    assert sum(len(data(site, f"cells/{part.name}", "cells")) for part in parts) == 16_000


# Small parts.


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists, max_leaves=8))
def test_embedded_json_cannot_end_its_element(value: object) -> None:
    shown = str(embed_json(to_json(value)))
    assert not set("<>&'") & set(shown)
    assert shown.isascii()
    assert json.loads(shown) == value


def test_every_verdict_has_a_look_and_says_what_it_means() -> None:
    assert set(LOOKS) == set(Verdict)
    for verdict, look in LOOKS.items():
        assert look.when
        assert (look.advice == "") == (verdict is Verdict.OK)
    assert {look.group for look in LOOKS.values()} == set(Group)


KNOWN = {
    "model": frozenset({"tiny"}),
    "tokenizer": frozenset({"mistral_v1"}),
    "grammar": frozenset({"enum"}),
    "builder": frozenset({"fixed"}),
}
ENUM = {"enum": {"file": "enum.yaml"}}
OWN = {"path": {"file": "my suite.yaml"}}


@pytest.mark.parametrize(
    ("chosen", "changes", "wanted"),
    [
        (ENUM, {}, "model=tiny tokenizer=mistral_v1 grammar=enum"),
        (ENUM, {"tokenizer": "own"}, "model=tiny tokenizer=path tokenizer.path=own.gguf"),
        (ENUM, {"model": "own", "tokenizer": "own"}, "model=path model.path=own.gguf grammar"),
        (OWN, {"suite": "mine"}, "grammar=path 'grammar.path=\"my suite.yaml\"'"),
        ({}, {"suite": "enum"}, "grammar=enum"),
        (ENUM, {"target": "server", "builder": "b10450"}, "target=server target.label=b10450"),
    ],
)
def test_the_command_names_what_the_tables_know(
    chosen: dict[str, Any], changes: Row, wanted: str
) -> None:
    of = {"target": "inprocess", "model": "tiny", "tokenizer": "mistral_v1", "suite": "enum"}
    of |= {"case": "cjk"}
    command = Recipe.of(chosen, KNOWN).command(of | {"builder": "fixed"} | changes)
    assert wanted in command


@pytest.mark.parametrize("case", ["founding", "a 'quoted' \"case\", [odd]"])
def test_the_command_is_one_that_the_pipeline_takes(case: str) -> None:
    of = {"target": "inprocess", "model": "tiny", "tokenizer": "mistral_v1", "suite": "enum"}
    of |= {"builder": "fixed"}
    command = Recipe.of(ENUM, KNOWN).command(of | {"case": case})
    arguments = shlex.split(command)[3:]
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", *arguments, "--cfg", "job"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["grammar"]["cases"] == [case]
