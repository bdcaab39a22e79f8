"""The sections of the report: one file per kind of page, registered by name.

To add one, add a file here with a `Section` decorated by `@register`, its template in `templates/`,
and a test. No other file changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...model.registry import Registry
from ..compare.comparison import Comparison
from .run_view import RunView
from .site import Page
from .transcripts import Transcripts


@dataclass(frozen=True)
class ReportData:
    """The data for all pages."""

    run: RunView
    transcripts: Transcripts
    """Every cell of the run, with the page that shows it."""
    results: Path
    """The folder in which the trend looks for runs."""
    comparison: Comparison | None


class Section(Protocol):
    """An entry of the navigation and its pages."""

    name: str
    file: str
    """The page that the navigation links to."""
    title: str
    """Title in the navigation; empty for pages that only other pages link to."""
    place: int
    """Order in the navigation, ascending."""

    def pages(self, data: ReportData) -> Iterator[Page]:
        """Its pages, in any order."""
        ...


_sections: Registry[Section] = Registry("section of the report", __name__.rpartition(".")[0])
register = _sections.register


def sections() -> list[Section]:
    """All sections, in the order of the navigation."""
    found = map(_sections.get, _sections.names())
    return sorted(found, key=lambda section: (section.place, section.name))
