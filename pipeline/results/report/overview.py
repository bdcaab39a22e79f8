"""The first page: what was run, the results, the tokens at fault, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from ...model.verdicts import Standing, Verdict
from ...system.text import visible
from ..compare.comparison import Comparison
from ..standing import words
from ..summary import audit, console
from ..summary import replay as summary_replay
from ..summary.replay import REPLAY
from . import headline
from .run_view import RunView
from .sections import ReportData, register
from .site import Page
from .transcripts import Transcripts, name_of
from .verdict_looks import SYMBOLS, Group, look, worst_first

_CULPRITS = 8
_REASONS = 6
_STANDINGS = 60
"""Most standings on the page; the worst come first."""


@register
class Overview:
    """See `sections.Section`."""

    name, file, title, place = "overview", "index.html", "Overview", 10

    def pages(self, data: ReportData) -> Iterator[Page]:
        """See the module."""
        yield _page(data.run, data.transcripts, data.comparison)


def _page(run: RunView, made: Transcripts, comparison: Comparison | None) -> Page:
    """`index.html`."""
    cells = run.cells
    return Page(
        file="index.html",
        template="index.html",
        title="Overview",
        values={
            "headline": headline.headline(run, comparison),
            "details": headline.details(run, comparison),
            "standings": list(_standings(run)),
            "steps": list(headline.next_steps(run, comparison)),
            "no_cells": run.unreadable.get("cells", "There are no cells, so no token is at fault."),
            "bars": [_bar(cells, builder) for builder in console.by_builder(cells)],
            "culprits": _culprits(run, made),
            "worst": _worst(cells, made),
            "grids": list(_grids(run)),
            "facts": _facts(run),
        },
    )


def _standings(run: RunView) -> Iterator[dict[str, Any]]:
    """The standing of each builder, worst first, with its reasons and bounds."""
    for row in words.worst_first(run.standings)[:_STANDINGS]:
        *reasons, judged = row["reasons"]
        yield {
            "name": visible(words.name(row), 160),
            "standing": row["standing"],
            "group": _GROUPS[Standing(row["standing"])],
            "symbol": SYMBOLS[_GROUPS[Standing(row["standing"])]],
            "meaning": words.MEANING[Standing(row["standing"])],
            "reasons": [visible(reason, 400) for reason in reasons[:_REASONS]],
            "left_out": max(0, len(reasons) - _REASONS),
            "judged": judged,
        }


_GROUPS = {
    Standing.UNSAFE: Group.BROKEN,
    Standing.LIMITED: Group.HELD,
    Standing.UNPROVED: Group.DOUBT,
    Standing.SAFE: Group.OK,
}
"""The colour and shape of each standing."""


def _bar(cells: pl.DataFrame, builder: str) -> dict[str, Any]:
    """One builder's verdicts, worst first, with their counts."""
    mine = cells.filter(builder=builder)
    counts = dict(mine["verdict"].value_counts().iter_rows())
    return {
        "builder": visible(builder, 80),
        "n": mine.height,
        "ok": counts.get(Verdict.OK, 0),
        "verdicts": [(look(name), counts[name]) for name in worst_first(list(counts))],
    }


def _culprits(run: RunView, made: Transcripts) -> list[dict[str, Any]]:
    """Tokens at which an output left its grammar or a constraint was lost, by number of cells."""
    broken = run.cells.with_columns(step=pl.col("culprit_step")).filter(
        (pl.col("verdict") != Verdict.OK) & pl.col("step").is_not_null()
    )
    steps = run.table("steps").select("cell_key", "step", "token", "true", "claimed")
    did = broken.join(steps, on=["cell_key", "step"], how="inner", maintain_order="left")
    by = ["tokenizer", "builder", "token", "true", "claimed"]
    found = did.group_by(by, maintain_order=True).agg(pl.len().alias("n"), pl.all().first())
    found = found.sort("n", descending=True, maintain_order=True).head(_CULPRITS)
    return [
        {
            "token": row["token"],
            "true": visible(row["true"], 60),
            "claimed": visible(row["claimed"], 60),
            "claim_known": row["claimed"] is not None,
            "wrong": row["true"] != row["claimed"],
            "tokenizer": visible(row["tokenizer"], 60),
            "builder": visible(row["builder"], 60),
            "n": row["n"],
            "look": look(row["verdict"]),
            "href": made.href(name_of(row), row["builder"]),
            "case": visible(f"{row['suite']}/{row['case']}", 80),
        }
        for row in found.iter_rows(named=True)
    ]


def _worst(cells: pl.DataFrame, made: Transcripts) -> list[dict[str, Any]]:
    """The worst cells, at most one of each verdict, cause, tokenizer and builder."""
    failed = cells.filter(pl.col("verdict") != Verdict.OK).unique(
        ["verdict", "cause", "tokenizer", "builder"], keep="first", maintain_order=True
    )
    rows = sorted(failed.iter_rows(named=True), key=lambda row: -look(row["verdict"]).badness)
    return [
        {
            "look": look(row["verdict"]),
            "cause": visible(row["cause"], 40),
            "href": made.href(name_of(row), row["builder"]),
            "where": visible(f"{row['suite']}/{row['case']}", 80),
            "who": visible(f"{row['tokenizer']} under {row['builder']}", 80),
            "reason": visible(row["reason"], 240),
        }
        for row in rows[:_REASONS]
    ]


def _grids(run: RunView) -> list[dict[str, Any]]:
    """The tables of the console, each with the text for an empty one."""
    cells, tokenizers, states = run.cells, run.table("tokenizers"), run.table("states")
    extra = [
        _grid(title, "", rows, "")
        for title, rows in (
            (console.GREEDY, console.greedy_loses(cells)),
            (console.ENFORCEMENT, console.enforcement(cells)),
            (REPLAY, _replayed(run)),
        )
        if rows
    ]
    always = [
        _grid(
            console.GENERATION,
            console.NOTE,
            console.section8(cells) if cells.height else [],
            run.unreadable.get("cells", "This run generated nothing: it has no cells."),
        ),
        _grid(
            audit.TOKEN_TABLES,
            "wrong: the builder's bytes differ from those that llama.cpp emits",
            audit.token_table_rows(
                tokenizers, *(run.table(name) for name in ("masks", "exactness", "strings"))
            )
            if tokenizers.height
            else [],
            run.unreadable.get(
                "tokenizers",
                "This run has no token tables: a server does not show its table, or the stage "
                "audit was left out.",
            ),
        ),
        _grid(
            audit.MASKS,
            "every mask is compared with the tokens that are legal by their true bytes",
            audit.mask_rows(states, run.table("walks")) if states.height else [],
            run.unreadable.get(
                "states",
                "No mask of this run was judged: a server does not show its masks, or "
                "engine.oracle or audit.walks was off.",
            ),
        ),
    ]
    return [*always[:1], *extra, *always[1:]]


def _replayed(run: RunView) -> list[list[str]]:
    replay = run.table("replay")
    return summary_replay.rows(replay, run.table("replay_times")) if replay.height else []


def _grid(title: str, note: str, rows: list[list[str]], empty: str) -> dict[str, Any]:
    shown = [[visible(cell, 300) for cell in row] for row in rows]
    return {"title": title, "note": note, "head": shown[:1], "rows": shown[1:], "empty": empty}


def _facts(run: RunView) -> list[tuple[str, str]]:
    """What was run and with which versions, from the manifest."""
    record, cells = run.manifest, run.cells
    versions, volatile = run.manifest_part("versions"), run.manifest_part("volatile")
    named = {
        "run": run.name,
        "finished": volatile.get("finished"),
        "llama-cpp-python": versions.get("llama-cpp-python"),
        "llama.cpp's own build": record.get("llama_cpp_build"),
        "llguidance": versions.get("llguidance"),
        "engine": ", ".join(record.get("engine") or []),
        "byte-exact": versions.get("byte-exact"),
        "commit": record.get("commit"),
        "devices": ", ".join(record.get("devices") or []),
        "stages": ", ".join(record.get("stages") or []),
        "refused": "; ".join(record.get("refused") or []),
        "rows lost": record.get("lost") or None,
    }
    for part in ("target", "model", "tokenizer", "suite"):
        names = cells[part].unique().sort().to_list() if cells.height else []
        more = f" and {len(names) - 12} more" if len(names) > 12 else ""
        named[f"{part}s"] = ", ".join(names[:12]) + more
    engine = run.manifest_part("settings", "engine")
    named |= {f"engine.{key}": value for key, value in engine.items()}
    shown = ("run", "finished", "targets", "models", "tokenizers", "suites")
    order = [*shown, *(name for name in named if name not in shown)]
    return [
        (name, visible(str(named[name]), 300)) for name in order if named[name] not in (None, "")
    ]
