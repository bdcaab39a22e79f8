"""The cell pages: transcripts step by step, one file for the cells of one suite under one builder.

The scripts of the page show one cell at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...system.text import visible
from . import released
from .run_view import RunView
from .sections import ReportData, register
from .site import Page, embed_json
from .transcripts import Name, Transcripts, label


@register
class Cells:
    """See `sections.Section`; the matrix links to these pages."""

    name, file, title, place = "cells", "", "", 80

    def pages(self, data: ReportData) -> Iterator[Page]:
        """One page for each file of cells."""
        yield from _pages(data.transcripts, _reproducers(data.run))


def _pages(
    made: Transcripts, reproducers: Mapping[tuple[str, str], list[dict[str, Any]]]
) -> Iterator[Page]:
    """Every cell page; `reproducers` by tokenizer and builder."""
    builders: dict[Name, list[str]] = {}
    for name, builder in made.where:
        builders.setdefault(name, []).append(builder)
    parts: dict[tuple[Any, ...], list[str]] = {}
    for file in made.files:
        parts.setdefault(tuple(file.about.values()), []).append(file.path)
    for file in made.files:
        about = {part: visible(value, 120) for part, value in file.about.items()}
        others = {
            label(name): [
                [visible(b, 80), made.where[name, b][1], made.href(name, b, "../")]
                for b in sorted(builders[name])
                if b != file.about["builder"]
            ]
            for name in file.names
        }
        yield Page(
            file=file.path,
            template="cell.html",
            title=f"{about['suite']} under {about['builder']}",
            script="cell",
            section="matrix.html",
            values={
                "about": about,
                "part": file.part,
                "parts": [f"../{path}" for path in parts[tuple(file.about.values())]],
                "cells": embed_json("[" + ",".join(file.cells) + "]"),
                "others": others,
                "has_steps": made.has_steps,
                "reproducers": reproducers.get(
                    (file.about["tokenizer"], file.about["builder"]), []
                ),
            },
        )


def _reproducers(run: RunView) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The reproducers by (tokenizer, builder); their texts are escaped, except for line ends."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in run.table("reproducers").iter_rows(named=True):
        shown = {
            "name": visible(row["name"], 120),
            "verdict": visible(row["verdict"], 60),
            "kind": visible(row["kind"], 60).replace("_", " "),
            "suite_file": released.lines(row["suite_file"]),
            "report": released.lines(row["report"]),
        }
        found.setdefault((row["tokenizer"], row["builder"]), []).append(shown)
    return found
