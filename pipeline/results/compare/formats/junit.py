"""A comparison as JUnit XML: one test for each pair. Worse pairs fail; old failures are skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from xml.sax.saxutils import escape, quoteattr

import polars as pl

from ....model.verdicts import Change, Verdict
from ....system.text import visible
from ..comparison import Comparison
from ..kept_changes import KnownFailure
from ..pairing import WORSE
from . import words


def lines(comparison: Comparison) -> Iterator[str]:
    """The whole file, line by line."""
    cells, failing = comparison.cells, _failing(comparison)
    worse = words.worse(comparison)
    names = ["model", "tokenizer", "builder", "suite", "case"]
    names += ["repeat"] if "repeat" in cells.columns else []
    failed = cells.filter(pl.col("change").is_in(failing)).height + len(worse)
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    total = cells.height + len(worse) + len(comparison.known)
    yield f'<testsuites name="byte-exact" tests="{total}" failures="{failed}">\n'
    for (tokenizer, suite), group in cells.group_by(["tokenizer", "suite"], maintain_order=True):
        n = group.filter(pl.col("change").is_in(failing)).height
        skipped = group.filter(_skipped(failing)).height
        name = _attribute(f"{tokenizer} {suite}")
        yield (
            f'  <testsuite name={name} tests="{group.height}" failures="{n}" '
            f'errors="0" skipped="{skipped}">\n'
        )
        passed = group.filter(verdict_after=Verdict.OK)
        told = group.filter(pl.col("verdict_after").ne_missing(pl.lit(Verdict.OK)))
        yield from (_case(row, failing) for row in told.iter_rows(named=True))
        yield from (f"{_head(row)}/>\n" for row in passed.select(names).iter_rows(named=True))
        yield "  </testsuite>\n"
    if worse:
        n = len(worse)
        yield f'  <testsuite name="tables" tests="{n}" failures="{n}" errors="0" skipped="0">\n'
        for finding in worse:
            name = f"{finding.tokenizer} {finding.builder or ''} {finding.key or ''}"
            yield (
                f"    <testcase classname={_attribute(finding.table)} "
                f"name={_attribute(f'{name} {finding.column}')}>"
                f'<failure type="table">{escape(finding.line)}</failure></testcase>\n'
            )
        yield "  </testsuite>\n"
    if comparison.known:
        yield from _known(comparison.known)
    yield "</testsuites>\n"


def _known(known: Sequence[KnownFailure]) -> Iterator[str]:
    """Known failures of a baseline: skipped with their link, or passed unexpectedly."""
    failing = sum(not one.passes for one in known)
    yield (
        f'  <testsuite name="known failures" tests="{len(known)}" failures="0" errors="0" '
        f'skipped="{failing}">\n'
    )
    for one in known:
        head = f'    <testcase classname="known" name={_attribute(one.line)}>'
        said = f"<skipped message={_attribute(one.url)}/>"
        if one.passes:
            said = f"<system-out>unexpected pass: {escape(visible(one.url, 200))}</system-out>"
        yield f"{head}{said}</testcase>\n"
    yield "  </testsuite>\n"


def _failing(comparison: Comparison) -> list[str]:
    allowed = "cases" in comparison.allow
    return [c.value for c in WORSE if not (allowed and c is Change.REMOVED)]


def _skipped(failing: list[str]) -> pl.Expr:
    """Pairs that do not pass and do not count as worse."""
    return ~pl.col("change").is_in(failing) & pl.col("verdict_after").ne_missing(pl.lit(Verdict.OK))


def _head(row: words.Row) -> str:
    """The start of a test's element, not yet closed."""
    name = row["case"] if row.get("repeat") is None else f"{row['case']} repeat {row['repeat']}"
    where = f"{row['model']}.{row['tokenizer']}.{row['builder']}.{row['suite']}"
    return f"    <testcase classname={_attribute(where)} name={_attribute(name)}"


@lru_cache(4096)
def _attribute(value: str) -> str:
    """A quoted attribute; cached, because a run has few names and many cells."""
    return quoteattr(visible(value, 200))


def _case(row: words.Row, failing: list[str]) -> str:
    head, change = _head(row), row["change"]
    if change in failing:
        said = _attribute(f"{change}: {words.flip(row)}")
        failure = f"<failure type={_attribute(change)} message={said}>{escape(words.why(row))}"
        return f"{head}>{failure}</failure></testcase>\n"
    return f"{head}><skipped message={_attribute(f'{change}: {words.flip(row)}')}/></testcase>\n"
