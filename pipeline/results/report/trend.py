"""The trend: verdict counts of every run found, by version of llama.cpp and llguidance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ...model.errors import CompareError, TablesError
from ...system.text import visible
from ..tables import parquet, run_folder
from . import charts
from .sections import ReportData, register
from .site import CHART, Page
from .verdict_looks import GROUP_WORDS, look, worst_first

_RUNS = 200
"""Number of runs shown, the newest ones."""


@dataclass(frozen=True)
class FinishedRun:
    """One finished run."""

    run: str
    finished: str
    llama_cpp: str
    llguidance: str
    counts: dict[str, int]

    @property
    def versions(self) -> str:
        """The versions by which runs are grouped."""
        return f"llama-cpp-python {self.llama_cpp}, llguidance {self.llguidance}"


@register
class Trend:
    """See `sections.Section`."""

    name, file, title, place = "trend", "trend.html", "Trend", 70

    def pages(self, data: ReportData) -> Iterator[Page]:
        """See the module."""
        yield _page(data.results)


def _page(results: Path) -> Page:
    """`trend.html`."""
    runs, unread = _runs(results)
    shown = runs[-_RUNS:]
    points = _points(shown)
    verdicts = worst_first(sorted({name for run in shown for name in run.counts}))
    return Page(
        file="trend.html",
        template="trend.html",
        title="Trend",
        needs=(CHART,) if points.height else (),
        values={
            "chart": charts.trend(points) if points.height else None,
            "shown": [look(name) for name in verdicts],
            "runs": [
                {
                    "run": visible(run.run, 80),
                    "finished": visible(run.finished, 40).replace("T", " ").removesuffix("+00:00"),
                    "llama_cpp": visible(run.llama_cpp, 40),
                    "llguidance": visible(run.llguidance, 40),
                    "counts": [run.counts.get(name, 0) for name in verdicts],
                    "n": sum(run.counts.values()),
                }
                for run in reversed(shown)
            ],
            "left_out": len(runs) - len(shown),
            "unread": [visible(line, 300) for line in unread],
            "results": visible(results.name, 120),
        },
    )


def _runs(results: Path) -> tuple[list[FinishedRun], list[str]]:
    """The finished runs by end time, and a message for each that cannot be read."""
    runs: list[FinishedRun] = []
    unread: list[str] = []
    for folder in run_folder.runs(results):
        try:
            manifest = run_folder.complete_manifest(folder)
            cells = parquet.read(folder, "cells", ["verdict"])
            counts = dict(cells["verdict"].value_counts().iter_rows())
            runs.append(_finished_run(folder.name, manifest, counts))
        except (CompareError, TablesError) as error:
            unread.append(str(error).replace(str(folder), folder.name))
        except (ValueError, AttributeError) as error:  # an unknown kind of manifest or verdict
            unread.append(f"{folder.name} cannot be counted: {error}")
    runs.sort(key=lambda run: (run.finished, run.run))
    return runs, unread


def _finished_run(name: str, manifest: dict[str, Any], counts: dict[str, int]) -> FinishedRun:
    versions: dict[str, Any] = manifest.get("versions") or {}
    volatile: dict[str, Any] = manifest.get("volatile") or {}
    for verdict in counts:
        look(verdict)
    return FinishedRun(
        run=name,
        finished=str(volatile.get("finished") or ""),
        llama_cpp=str(versions.get("llama-cpp-python") or "unknown"),
        llguidance=str(versions.get("llguidance") or "unknown"),
        counts=counts,
    )


def _points(shown: list[FinishedRun]) -> pl.DataFrame:
    """One row for each run and verdict, for the chart."""
    rows = [
        {
            "order": place,
            "run": visible(run.run, 40),
            "versions": visible(run.versions, 120),
            "verdict": verdict,
            "outcome": GROUP_WORDS[look(verdict).group],
            "badness": look(verdict).badness,
            "cells": n,
            "share": n / max(1, sum(run.counts.values())),
        }
        for place, run in enumerate(shown)
        for verdict, n in run.counts.items()
    ]
    return pl.DataFrame(rows, infer_schema_length=None)
