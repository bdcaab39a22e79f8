"""A comparison as annotations in a GitHub Actions log."""

from __future__ import annotations

from collections.abc import Iterator

from ....model.verdicts import Change
from ..comparison import Comparison
from ..pairing import WORSE
from . import words

MAX = 10
"""GitHub shows this number of errors for a step; if there are more, the last one counts them."""


def lines(comparison: Comparison) -> Iterator[str]:
    """One `::error` for each worse cell or finding, up to the number that GitHub shows."""
    told = [
        (f"{change.value}: {words.place(row, comparison)}", f"{words.flip(row)}. {words.why(row)}")
        for change in WORSE
        if not (change is Change.REMOVED and "cases" in comparison.allow)
        for row in words.listed(comparison, change).head(MAX).iter_rows(named=True)
    ]
    worse = words.worse(comparison)
    told += [(f"table {finding.change}: {finding.table}", finding.line) for finding in worse]
    total = comparison.n_worse + len(worse)
    shown = told[:MAX] if total <= MAX else told[: MAX - 1]
    for title, message in shown:
        yield f"::error title={_property(title)}::{_data(message)}"
    if total > len(shown):
        yield f"::error title=byte-exact::{total - len(shown)} more are worse; see the log above."


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
