"""Sentences that all formats of a comparison share: cells, flips, tokens, findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from ....model.names import IN_PROCESS
from ....model.verdicts import Cause, Change, Verdict
from ....system.text import quoted, visible
from ..comparison import Comparison

Row = dict[str, Any]

_EXAMPLES = 3


def place(row: Row, comparison: Comparison) -> str:
    """The name of a cell, without the compared part."""
    target = "" if row["target"] == IN_PROCESS else row["target"]
    parts = {"target": target, "builder": row["builder"]}
    parts |= dict.fromkeys(comparison.before.part, "")
    names = (
        parts["target"],
        "{model}/{tokenizer}".format_map(row),
        parts["builder"],
        "{suite}/{case}".format_map(row),
        "" if row.get("repeat") is None else f"repeat {row['repeat']}",
    )
    return visible(" ".join(name for name in names if name), 300)


def flip(row: Row) -> str:
    """The verdict before and after, with the cause of the failing one."""
    was, now = (_verdict(row, end) for end in ("before", "after"))
    if row["change"] == Change.ADDED:
        return now
    if row["change"] == Change.REMOVED:
        return f"{was} → missing"
    return was if was == now else f"{was} → {now}"


def _verdict(row: Row, end: str) -> str:
    verdict, cause = row[f"verdict_{end}"], row[f"cause_{end}"]
    return f"{verdict} ({cause})" if cause and cause != Cause.NONE else f"{verdict}"


def why(row: Row) -> str:
    """The fault on the failing side, with its token and the output."""
    end = "after" if row["verdict_after"] not in (None, Verdict.OK) else "before"
    parts: list[str] = []
    reason = row[f"reason_{end}"] or ""
    if row[f"true_{end}"] is not None and f"token {row[f'token_{end}']} " not in reason:
        token, true, claimed = (row[f"{name}_{end}"] for name in ("token", "true", "claimed"))
        known = claimed is not None and true != claimed
        said = f" (the table says {quoted(claimed, 40)})" if known else ""
        parts.append(f"token {token} {quoted(true, 40)}{said}, at step {row[f'step_{end}']}")
    if reason:
        parts.append(visible(reason, 300))
    if row[f"output_{end}"] is not None:
        parts.append(f"output {quoted(row[f'output_{end}'], 60)}")
    prefix = "was: " if parts and row["change"] == Change.FIXED else ""
    return prefix + "; ".join(parts)


def sentence(comparison: Comparison) -> str:
    """The number of cells with each change, in one sentence."""
    counts = [(change, comparison.count(change)) for change in Change]
    told = ", ".join(f"{n} {change.value.replace('_', ' ')}" for change, n in counts if n)
    changed = comparison.cells["output_changed"].sum()
    other = f"; {changed} outputs differ" if changed else ""
    return f"{comparison.cells.height} cells: {told or 'none'}{other}."


def verdict(comparison: Comparison, fail_on: str) -> str:
    """The result of the gate in one sentence: PASS or FAIL, the reason, and the exit code."""
    code = comparison.exit_code(fail_on)
    if comparison.is_worse:
        found = f"{comparison.n_worse} cells and {comparison.n_tables_worse} table rows are worse"
    elif comparison.n_changed:
        found = "nothing is worse, but something changed"
    else:
        found = "nothing changed"
    return f"{'FAIL' if code else 'PASS'}: {found} (fail_on={fail_on}, exit {code})."


@dataclass(frozen=True)
class Finding:
    """All findings of one kind: one table, one column, one direction."""

    table: str
    tokenizer: str | None
    builder: str | None
    key: str | None
    column: str
    change: str
    n: int
    examples: tuple[str, ...]

    @property
    def line(self) -> str:
        """The finding in one line."""
        names = (self.tokenizer, self.builder, self.key)
        where = " ".join(visible(name, 100) for name in names if name)
        told = ", ".join(self.examples) + (", …" if self.n > len(self.examples) else "")
        ids = f"{self.n} ids: " if self.examples[0][:1].isdigit() and self.n > 1 else ""
        return f"{self.table} {where}: {self.column} {self.change}: {ids}{told}"


def findings(comparison: Comparison) -> Iterator[Finding]:
    """The findings of the tables, grouped; worst first."""
    by = ["table", "tokenizer", "builder", "key", "column", "change"]
    for names, group in comparison.tables.group_by(by, maintain_order=True):
        table, tokenizer, builder, key, column, change = (
            None if name is None else str(name) for name in names
        )
        rows = group.head(_EXAMPLES).iter_rows(named=True)
        examples = tuple(_example(row) for row in rows)
        yield Finding(
            str(table), tokenizer, builder, key, str(column), str(change), group.height, examples
        )


def worse(comparison: Comparison) -> list[Finding]:
    """The findings that count as worse."""
    counted = comparison.worse_in_tables
    return [finding for finding in findings(comparison) if finding.change in counted]


def _example(row: Row) -> str:
    if row["token"] is None:
        if row["before"] is None and row["after"] is None:
            return "the row" if row["column"] == "" else f"the row ({row['change']})"
        return f"{visible(row['before']) or '-'} → {visible(row['after']) or '-'}"
    told = f"{row['token']}"
    if row["true"] is not None:
        told += f" {quoted(row['true'], 30)}"
    if row["before"] is not None or row["after"] is not None:
        was, now = (
            "right" if row[end] is None else f"claimed {quoted(row[end], 30)}"
            for end in ("before", "after")
        )
        told += f" ({was} → {now})"
    return told


def versions(comparison: Comparison) -> list[tuple[str, str, str]]:
    """The changed versions, escaped for display."""
    return [
        (visible(name), visible(was, 60), visible(now, 60))
        for name, was, now in comparison.versions
    ]


def listed(comparison: Comparison, change: Change) -> pl.DataFrame:
    """The cells with this change, worst first."""
    return comparison.cells.filter(pl.col("change") == change.value)


def known(comparison: Comparison) -> list[str]:
    """One line for each known failure of a baseline; unexpected passes come first."""
    ordered = sorted(comparison.known, key=lambda one: not one.passes)
    return [
        f"{'unexpected pass' if one.passes else 'still failing'}: {visible(one.line, 200)} "
        f"({visible(one.url, 200)})"
        for one in ordered
    ]


def rates(comparison: Comparison) -> list[str]:
    """One line for each group of sampled repeats."""
    lines: list[str] = []
    for rate in comparison.rates:
        was, now = (
            f"{middle:.1%} [{low:.1%}, {high:.1%}]"
            for middle, low, high in (rate.before, rate.after)
        )
        lines.append(
            f"{rate.scope}: ok {was} → {now} of {rate.pairs} pairs; {rate.regressed} regressed, "
            f"{rate.fixed} fixed, McNemar exact p = {rate.p:.3g}"
        )
    return lines
