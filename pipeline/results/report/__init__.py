"""The dashboard: tables and a comparison → a static site that opens from the file system.

It only renders: it reads what `run` and `compare` wrote. It judges and changes nothing.

    run_view     the results that exist, and notes on what is missing
    verdict_looks, headline
                 verdicts as colours and shapes; the run in one sentence, and what to do next
    transcripts  every cell with its steps, and the page that shows it
    sections     the registry of pages, in the order of the navigation
    overview, matrix, cells, tokens, released, replay, changes, trend
                 one kind of page each: tables → a `site.Page`
    charts       the plots
    row_budget   rows that fit on a page
    site         pages → files with inlined scripts; a policy blocks all other scripts
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...model.errors import ReportError
from ...system.rerun import Recipe
from ...system.text import visible
from ..compare.comparison import Comparison
from . import verdict_looks
from .run_view import RunView
from .sections import ReportData, Section, sections
from .site import Site
from .transcripts import transcripts

__all__ = ["build", "run_view", "sections"]

_MARK = "byte-exact report"
"""Mark of the first page of a report. Only a folder with this mark is overwritten."""


def build(
    run: RunView,
    results: Path,
    comparison: Comparison | None,
    known: Mapping[str, frozenset[str]],
    out: Path,
) -> list[Path]:
    """Write the site of a run into `out`, replacing an earlier report; returns the files.

    `results` is the folder in which the trend looks for runs. `known` are the names that the
    command line accepts (see `rerun`). Raises ReportError if `out` holds anything but a report.
    """
    _replaceable(out)
    fresh = out.with_name(f".{out.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        fresh.mkdir(parents=True)
        made = transcripts(
            run, Recipe.of(run.manifest_part("settings", "grammar", "suites"), known)
        )
        data = ReportData(run, made, results, comparison)
        chosen = sections()
        pages = [page for one in chosen for page in one.pages(data)]  # reading may add to the notes
        site = Site(fresh, _common(run, chosen))
        written = [site.write(page).relative_to(fresh) for page in pages]
        shutil.rmtree(out, ignore_errors=True)
        fresh.replace(out)
    except OSError as error:
        raise ReportError(
            f"{error.filename or out} cannot be written: {error.strerror}. "
            "Choose another folder with out=…."
        ) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return [out / file for file in written]


def _common(run: RunView, chosen: Sequence[Section]) -> dict[str, Any]:
    """What every page shows."""
    versions = run.manifest_part("versions")
    return {
        "mark": _MARK,
        "navigation": [(one.file, one.title) for one in chosen if one.title],
        "run": visible(run.name, 120),
        "notes": list(dict.fromkeys(run.notes)),
        "versions": {
            name: visible(str(versions[package]), 40)
            for name, package in (
                ("llama-cpp-python", "llama-cpp-python"),
                ("llguidance", "llguidance"),
                ("byte-exact", "byte-exact"),
            )
            if package in versions
        },
        "looks": verdict_looks.catalogue(),
    }


def _replaceable(out: Path) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    first = out / "index.html"
    if (
        not first.is_file()
        or _MARK not in first.read_text(encoding="utf-8", errors="replace")[:2000]
    ):
        raise ReportError(
            f"{out} holds something other than a report, which would be lost. "
            "Choose another folder with out=…."
        )
