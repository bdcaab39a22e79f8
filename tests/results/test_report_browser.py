"""The report in a real browser: pages opened as files and used with mouse and keyboard."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from pipeline.__main__ import main
from support import report_runs
from support.command import Finished
from support.report_runs import HOSTILE, cell, made, nothing, reported, server, truncated

axe: Any = import_module("axe_playwright_python.sync_playwright")  # it has no type annotations

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: apt-get install --no-install-recommends chromium"
)
# True if the page is wider than the screen: a phone then scrolls sideways.
TOO_WIDE = "document.documentElement.scrollWidth > innerWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@dataclass
class Watched:
    """A tab, and its faults: console messages, errors, dialogs and requests to the network."""

    tab: Page
    faults: list[str] = field(default_factory=list[str])

    def open(self, file: Path, at: str = "") -> Page:
        self.tab.goto(file.as_uri() + at)
        plot = self.tab.locator("#chart")
        if plot.count():
            expect(self.tab.locator("#chart[data-drawn] svg")).to_be_visible()
        return self.tab


def watched(context: BrowserContext) -> Watched:
    made = Watched(context.new_page())
    made.tab.on("console", lambda said: made.faults.append(f"{said.type}: {said.text}"))
    made.tab.on("pageerror", lambda error: made.faults.append(str(error)))
    made.tab.on("dialog", lambda dialog: made.faults.append(f"dialog {dialog.message}"))
    made.tab.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(("file:", "data:image/"))
            else made.faults.append(request.url)
        ),
    )
    return made


@pytest.fixture
def watch(browser: Browser) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    made = watched(context)
    yield made
    context.close()
    assert made.faults == []


@pytest.fixture(scope="module")
def real(default_run: Finished, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the main job, with a comparison of its two builders."""
    out = tmp_path_factory.mktemp("real") / "site"
    results, name = default_run.folder.parent, default_run.folder.name
    sides = ("before.builder=fixed", "after.builder=unfixed")
    assert main(["report", f"results_dir={results}", f"run={name}", f"out={out}", *sides]) == 0
    return out


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run whose texts all try to break a page, compared with another such run."""
    results = tmp_path_factory.mktemp("hostile") / "runs"
    report_runs.hostile(results / "<b>before")
    report_runs.hostile(results / "after", verdict="crashed")
    return reported(results, "before.run='<b>before'", "after.run=after")


def serious_faults(tab: Page) -> list[dict[str, Any]]:
    """The accessibility faults on a page that axe rates as serious or critical."""
    found: list[dict[str, Any]] = axe.Axe().run(tab).response["violations"]
    return [fault for fault in found if fault["impact"] in ("serious", "critical")]


def pages(site: Path) -> list[Path]:
    """All pages of the top folder, and up to nine pages of its subfolders."""
    return [*sorted(site.glob("*.html")), *sorted(site.glob("*/*.html"))[:9]]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_is_sound_and_accessible(
    real: Path, browser: Browser, width: int, scheme: Any
) -> None:
    """No console message, no request, no sideways scrolling, no serious fault by axe."""
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    watch = watched(context)
    one_of_each = [
        *sorted(real.glob("*.html")),
        *(next(real.glob(f"{d}/*.html")) for d in ("cells", "tokens")),
    ]
    try:
        for file in one_of_each:
            tab = watch.open(file)
            assert not tab.evaluate(TOO_WIDE), file.name
            serious = [
                (file.name, fault["id"], fault["nodes"][0]["html"][:200])
                for fault in serious_faults(tab)
            ]
            assert serious == []
    finally:
        context.close()
    assert watch.faults == []


def test_no_text_of_a_hostile_run_does_anything(hostile: Path, watch: Watched) -> None:
    for file in pages(hostile):
        tab = watch.open(file)
        assert tab.evaluate("document.body.dataset.hit") is None, file.name
        assert tab.locator("main h1, main h2").first.is_visible(), file.name
        assert not tab.evaluate(TOO_WIDE), file.name
        shown = tab.evaluate("document.documentElement.innerText")
        assert not [c for c in shown if ord(c) < 32 and c not in "\n\t"], file.name
        assert not set("\u202e\u2066\u2069\u200f\u2028\u2029\x7f\x9b") & set(shown), file.name


def test_every_hostile_cell_is_shown_unchanged(hostile: Path, watch: Watched) -> None:
    tab = watch.open(hostile / "matrix.html")
    expect(tab.locator("#table tbody tr")).to_have_count(len(HOSTILE))
    expect(tab.locator("#table")).to_contain_text("</script><script>document.body.dataset.hit=1")
    expect(tab.locator("#table")).to_contain_text("\\u202e")
    tab.locator("#table tbody tr", has_text="not_utf8").locator("a").click()
    expect(tab.locator("#name")).to_contain_text("not_utf8")
    expect(tab.locator("#output")).to_contain_text("( \\xf0")
    expect(tab.locator("#steps tbody tr.culprit td").nth(1)).to_have_text(
        "\\xff\\xfe\\xc3( \\xf0\\x9f\\x92"
    )
    expect(tab.locator("#steps tbody tr.culprit mark").first).to_have_text("\\xff")


def test_the_policy_blocks_other_scripts(real: Path, browser: Browser) -> None:
    """If an escape were missing, the page's content policy would still block the script."""
    context = browser.new_context()
    tab = watched(context).open(real / "index.html")
    tab.evaluate(
        """() => { document.body.insertAdjacentHTML('beforeend',
             '<img src="data:," onerror="document.body.dataset.hit = 1">');
           const made = document.createElement('script');
           made.textContent = 'document.body.dataset.hit = 2';
           document.body.append(made); }"""
    )
    tab.wait_for_timeout(200)
    assert tab.evaluate("document.body.dataset.hit") is None
    assert tab.evaluate("fetch('https://example.com').then(() => 'sent', () => 'refused')") == (
        "refused"
    )
    context.close()


def test_filter_search_and_keyboard_of_the_matrix(real: Path, watch: Watched) -> None:
    tab = watch.open(real / "matrix.html")
    rows = tab.locator("#table tbody tr")
    expect(rows).to_have_count(40)
    tab.get_by_label("Verdict", exact=True).select_option("silent_corruption")
    expect(rows).to_have_count(12)
    tab.get_by_label("Suite", exact=True).select_option("half_free")
    expect(rows).to_have_count(4)
    tab.get_by_role("button", name="Clear").click()
    expect(rows).to_have_count(40)
    tab.get_by_label("builders differ").check()
    expect(rows).to_have_count(39)
    tab.get_by_role("button", name="mistral_v1, enum, unfixed").click()
    expect(rows).to_have_count(12)
    tab.get_by_role("button", name="Clear").click()

    tab.locator("body").press("/")
    expect(tab.locator(".dt-search input")).to_be_focused()
    tab.keyboard.type("enum founding")
    expect(rows).to_have_count(1)
    for key in ("ArrowDown", "ArrowRight"):
        tab.keyboard.press(key)
    expect(rows.locator("a").nth(1)).to_be_focused()
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("Enter")
    expect(tab.locator("#name")).to_have_text("founding")
    expect(tab).to_have_title("founding | enum under unfixed · run · byte-exact")


@pytest.mark.parametrize("width", [1280, 390])
def test_walks_of_a_replay_are_filtered_by_whose_fault_they_are(
    width: int, browser: Browser, tmp_path: Path
) -> None:
    report_runs.replay(tmp_path / "runs" / "a")
    context = browser.new_context(viewport={"width": width, "height": 844})
    watch = watched(context)
    tab = watch.open(reported(tmp_path / "runs") / "replay.html")
    rows = tab.locator("#table tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text("7  x as x")
    expect(rows.first.locator("mark")).to_have_text(" ")
    tab.get_by_label("Whose fault", exact=True).select_option("engine")
    expect(rows).to_have_count(2)
    tab.get_by_label("Verdict", exact=True).select_option("grammar_error")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("no such keyword")
    tab.get_by_role("button", name="Clear").click()
    expect(rows).to_have_count(4)
    assert not tab.evaluate(TOO_WIDE)
    assert [fault["id"] for fault in serious_faults(tab)] == []
    context.close()
    assert watch.faults == []


def test_a_cell_shows_the_token_at_fault(real: Path, watch: Watched) -> None:
    file = next(real.glob("cells/*enum-unfixed*.html"))
    tab = watch.open(file, "#founding")
    did_it = tab.locator("#steps tr.culprit")
    expect(did_it).to_have_count(1)
    expect(did_it.locator("td").nth(0)).to_contain_text("9830")
    expect(did_it.locator("td").nth(1)).to_have_text(' {"')
    expect(did_it.locator("td").nth(2)).to_have_text('{"')
    expect(did_it.locator("mark")).to_have_text(" ")
    expect(did_it).to_contain_text("unsound")
    expect(tab.locator("#verdict")).to_have_text("✕ silent corruption")
    expect(tab.locator("#cell .copied pre").first).to_have_text(
        "python -m pipeline run model=tiny tokenizer=mistral_v1 grammar=enum "
        "'grammar.cases=[founding]' 'builder=[unfixed]'"
    )

    tab.locator("body").press("ArrowRight")
    expect(tab.locator("#name")).to_have_text("mixed_scalars")
    expect(tab.locator("#steps tr.lost")).to_contain_text("The constraint was lost here")
    expect(tab.locator("#name")).to_be_focused()
    tab.locator("#others a").click()
    expect(tab.locator("#verdict")).to_have_text("✓ ok")
    expect(tab.locator("#steps tr.culprit, #steps tr.lost")).to_have_count(0)
    expect(tab.locator("#output")).to_contain_text("{")


def test_the_command_can_be_copied(real: Path, browser: Browser) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    watch = watched(context)
    page = min((real / "cells").iterdir())
    tab = watch.open(page)
    tab.get_by_role("button", name="Copy the command").last.click()
    expect(tab.get_by_text("Copied")).to_be_visible()
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("python -m pipeline run")
    assert copied in tab.content()
    context.close()
    assert watch.faults == []


def test_the_wrong_tokens_are_found_by_damage_and_by_bytes(real: Path, watch: Watched) -> None:
    tab = watch.open(real / "tokens.html")
    tab.get_by_role("link", name="mistral_v1").first.click()
    info = tab.locator(".dt-info")
    expect(info).to_have_text("1–50 of 15,763")
    tab.get_by_label("Damage", exact=True).select_option("run shortened")
    expect(info).to_have_text("1–14 of 14 (of 15,763)")
    expect(tab.locator("#table tbody tr").first.locator("mark")).to_have_count(1)
    tab.get_by_label("Damage", exact=True).select_option("")
    tab.get_by_label("Search", exact=True).fill("9830")
    expect(tab.locator("#table tbody tr").first).to_contain_text('{"')


def test_before_and_after_is_filtered_by_change(real: Path, watch: Watched) -> None:
    tab = watch.open(real / "changes.html")
    rows = tab.locator("#table tbody tr")
    expect(rows).to_have_count(39)
    expect(rows.first).to_contain_text("regressed")
    expect(tab.get_by_role("button", name="fixed 0")).to_be_disabled()
    regressed = tab.get_by_role("button", name="regressed 39")
    regressed.click()
    expect(regressed).to_have_attribute("aria-pressed", "true")
    expect(rows).to_have_count(39)
    rows.first.locator("td a").last.click()
    expect(tab.locator("#verdict")).to_have_text("✕ silent corruption")


def test_every_kind_of_change_has_its_filter(tmp_path: Path, watch: Watched) -> None:
    bad = {"verdict": "unenforced", "cause": "bytes"}
    both = {"one": {}, "worse": bad, "better": {"verdict": "silent_corruption"}, "out": {}}
    was = [cell(case=c, **v, cell_hash="1") for c, v in both.items()]
    was += [cell(case="mended", **bad), cell(case="gone"), cell(case="same")]
    now = [
        cell(case="one", **bad),
        cell(case="worse", verdict="silent_corruption"),
        cell(case="better", **bad),
        cell(case="out", output=b"other", cell_hash="2"),
        *(cell(case=c) for c in ("mended", "new", "same")),
    ]
    made(tmp_path / "runs" / "was", {"cells": was})
    made(tmp_path / "runs" / "now", {"cells": now})
    site = reported(tmp_path / "runs", "before.run=was", "after.run=now")
    tab = watch.open(site / "changes.html")
    rows = tab.locator("#table tbody tr")
    expect(rows).to_have_count(7)
    for name, cases in {
        "regressed 1": ["one"],
        "fixed 1": ["mended"],
        "changed 3": ["worse", "better", "out"],
        "added 1": ["new"],
        "removed 1": ["gone"],
    }.items():
        tab.get_by_role("button", name=name).click()
        expect(rows).to_have_count(len(cases))
        for row, case in zip(rows.all(), cases, strict=True):
            expect(row.locator("th")).to_have_text(f"m/t b s/{case}")


@pytest.mark.parametrize("make", [nothing, truncated, server])
def test_partial_runs_show_without_a_fault(
    make: Callable[[Path], None], tmp_path: Path, watch: Watched
) -> None:
    results = tmp_path / "runs"
    make(results)
    for file in reported(results).rglob("*.html"):
        tab = watch.open(file)
        expect(tab.locator("main h1").first).not_to_be_empty()


def test_ten_thousand_cells_are_filtered(
    tmp_path_factory: pytest.TempPathFactory, watch: Watched
) -> None:
    results = tmp_path_factory.mktemp("large") / "runs"
    report_runs.large(results / "a", steps=1)
    tab = watch.open(reported(results) / "matrix.html")
    info = tab.locator(".dt-info")
    expect(info).to_have_text("1–50 of 5,000")
    tab.get_by_label("Verdict", exact=True).select_option("silent_corruption")
    expect(info).to_have_text("1–50 of 1,667 (of 5,000)")
    tab.get_by_label("Search", exact=True).fill("case_00003")
    expect(tab.locator("#table tbody tr")).to_have_count(1)


def test_the_field_is_filtered_and_its_reproducers_open(
    tmp_path_factory: pytest.TempPathFactory, watch: Watched
) -> None:
    results = tmp_path_factory.mktemp("field") / "runs"
    report_runs.field(results)
    tab = watch.open(reported(results) / "index.html")
    tab.get_by_role("link", name="Look at the released libraries").click()
    expect(tab.locator("h1")).to_have_text("Builders in the field")
    rows = tab.locator("#table tbody tr")
    expect(rows).to_have_count(3)
    tab.get_by_label("wrong or refused").check()
    expect(rows).to_have_count(2)
    tab.get_by_label("Builder", exact=True).select_option("lmfe")
    expect(rows).to_have_count(1)
    expect(rows.locator("mark").first).to_have_text("\\xc3")
    issue = rows.get_by_role("link", name="noamgat/lm-format-enforcer#92")
    assert (issue.get_attribute("href") or "").endswith("/issues/92")
    expect(tab.locator("#r0")).not_to_have_attribute("open", "")
    rows.get_by_role("link", name="reproduce").click()
    expect(tab.locator("#r0")).to_have_attribute("open", "")
    expect(tab.locator("#r0")).to_contain_text("builder=lmfe")
    expect(tab.locator("#engines tbody tr")).to_have_count(1)
    assert [fault["id"] for fault in serious_faults(tab)] == []


def test_on_paper_there_is_no_navigation(real: Path, watch: Watched) -> None:
    tab = watch.open(next(real.glob("cells/*enum-unfixed*.html")))
    tab.emulate_media(media="print", color_scheme="dark")
    for hidden in ("header nav", "nav.cases", "[data-copy] >> nth=0"):
        expect(tab.locator(hidden)).to_be_hidden()
    expect(tab.locator("#steps")).to_be_visible()
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
