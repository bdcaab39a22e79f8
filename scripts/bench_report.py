"""Build time, page sizes and filter speed of a report of 10,000 cells.

    python scripts/bench_report.py [cells] [steps of each cell]

Prints wall and CPU seconds of the build, the size of the largest page, and the milliseconds from
changing a filter until Chromium has drawn the table (the median of several).
"""

from __future__ import annotations

import importlib
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


from pipeline.__main__ import main  # noqa: E402

report_runs: Any = importlib.import_module("support.report_runs")

_FILTER = """(value) => new Promise((done) => {
  const select = document.getElementById('by-verdict');
  select.value = value;
  const start = performance.now();
  select.dispatchEvent(new Event('change', {bubbles: true}));
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
})"""
_SEARCH = """(value) => new Promise((done) => {
  const input = document.querySelector('.dt-search input');
  input.value = value;
  const start = performance.now();
  input.dispatchEvent(new Event('input', {bubbles: true}));
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
})"""


def bench(cells: int, steps: int) -> None:
    """Build and measure once."""
    with tempfile.TemporaryDirectory() as folder:
        results, site = Path(folder) / "runs", Path(folder) / "site"
        report_runs.large(results / "large", cells, steps)
        wall, processor = time.perf_counter(), time.process_time()
        assert main(["report", f"results_dir={results}", f"out={site}"]) == 0
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        pages = [*site.rglob("*.html")]
        largest = max(pages, key=lambda page: page.stat().st_size)
        print(f"{cells:,} cells of {steps} steps: built in {wall:.1f} s ({processor:.1f} s of CPU)")
        print(f"{len(pages)} pages; the largest, {largest.name}: {_mb(largest.stat().st_size)}")
        print(f"all pages: {_mb(sum(page.stat().st_size for page in pages))}")
        _browse(site)


def _browse(site: Path) -> None:
    with sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        start = time.perf_counter()
        page.goto((site / "matrix.html").as_uri())
        page.wait_for_selector("#table tbody tr")
        print(f"matrix.html opened in {1000 * (time.perf_counter() - start):.0f} ms")
        for name, script, values in (
            ("filter by verdict", _FILTER, ["silent_corruption", "ok", "-ok", "", "timeout"]),
            ("search", _SEARCH, ["case_0001", "vocabulary_7", "", "unenforced", "suite_3"]),
        ):
            first, *taken = [float(page.evaluate(script, value)) for value in values]
            print(f"{name}: first {first:.0f} ms, then {statistics.median(taken):.0f} ms")
        browser.close()


def _mb(size: int) -> str:
    return f"{size / 1e6:.2f} MB"


if __name__ == "__main__":
    bench(*(int(value) for value in (sys.argv[1:] + ["10000", "40"][len(sys.argv) - 1 :])))
