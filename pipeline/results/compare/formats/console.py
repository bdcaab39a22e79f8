"""A comparison on the console: versions first, then the cells, worst first."""

from __future__ import annotations

from collections.abc import Iterator

from ....model.verdicts import Change
from ....system.text import visible
from ..comparison import Comparison
from ..pairing import STILL
from . import words


def text(comparison: Comparison, fail_on: str, limit: int) -> str:
    """The whole text; at most `limit` lines for each kind of change."""
    lines = "\n".join(_lines(comparison, fail_on, limit)).split("\n")
    return "\n".join(visible(line, 2_000) for line in lines)


def _lines(comparison: Comparison, fail_on: str, limit: int) -> Iterator[str]:
    changed = words.versions(comparison)
    yield "Versions that changed:" if changed else "Versions: the same on both sides."
    yield from (f"  {name}: {was} → {now}" for name, was, now in changed)
    if comparison.allowed:
        yield "Allowed differences:"
        yield from (f"  {found.kind}: {found.text}" for found in comparison.allowed)
    yield f"Before: {comparison.before.label}"
    yield f"After:  {comparison.after.label}"
    yield words.sentence(comparison)
    for change in (change for change in Change if change not in STILL):
        cells = words.listed(comparison, change)
        lines = [
            f"  {words.flip(row)}  {words.place(row, comparison)}\n      {words.why(row)}".rstrip()
            for row in cells.head(limit).iter_rows(named=True)
        ]
        yield from _section(change.value.replace("_", " "), lines, cells.height)
    found = [f"  {finding.line}" for finding in words.findings(comparison)]
    yield from _section("tables", found[:limit], len(found))
    yield from _section("repeats", [f"  {line}" for line in words.rates(comparison)])
    yield from _section("known failures", [f"  {line}" for line in words.known(comparison)])
    yield from _section("note", [f"  {hint}." for hint in comparison.hints])
    yield ""
    yield words.verdict(comparison, fail_on)


def _section(title: str, lines: list[str], total: int | None = None) -> Iterator[str]:
    if not lines:
        return
    yield f"\n{title[0].upper()}{title[1:]} ({len(lines) if total is None else total})"
    yield from lines
    if total is not None and total > len(lines):
        yield f"  … and {total - len(lines)} more; raise limit=, or write them all with out=DIR"
