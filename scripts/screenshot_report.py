"""Make the README's picture of the report: a failing cell of the main job.

    python scripts/screenshot_report.py [docs/report.png]

Makes the run in a temporary folder, builds its report and takes the picture in Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import ViewportSize, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
_SIZE: ViewportSize = {"width": 1280, "height": 860}
_LIMIT = 300_000
"""Largest size of the picture, in bytes."""


def picture(out: Path) -> None:
    """Take the picture. Raises SystemExit if it is too large."""
    with tempfile.TemporaryDirectory() as folder:
        common = [f"results_dir={folder}", "run.name=readme", "grammar=enum", "audit.walks=4"]
        subprocess.run(
            [sys.executable, "-m", "pipeline", "run", *common], cwd=ROOT, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        site = Path(folder) / "report"
        subprocess.run(
            [sys.executable, "-m", "pipeline", "report", f"results_dir={folder}"],
            cwd=ROOT,
            check=True,
        )
        page = next(site.glob("cells/*-unfixed-*.html"))
        with sync_playwright() as driver:
            chromium = shutil.which("chromium") or shutil.which("chromium-browser")
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            tab = browser.new_page(viewport=_SIZE, color_scheme="light")
            tab.goto(page.as_uri() + "#founding")
            tab.wait_for_selector("#steps tr.culprit")
            tab.screenshot(path=str(out))
            browser.close()
    size = out.stat().st_size
    print(f"{out}: {size:,} bytes")
    if size > _LIMIT:
        raise SystemExit(f"more than {_LIMIT:,} bytes: take a smaller picture")


if __name__ == "__main__":
    picture(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "report.png")
