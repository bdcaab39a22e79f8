"""Builders in the field: the token tables of each release, and engines' own masks.

Every fault is shown with the smallest mask that shows it, as a file and as a command.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from ...model.verdicts import Status
from ...system.text import visible
from ..tables import released
from .row_budget import ROOM, Rows
from .run_view import RunView
from .sections import ReportData, register
from .site import TABLE, Page

_FILE = "field.html"
_IDS = 8


@register
class Released:
    """See `sections.Section`."""

    name, file, title, place = "released", _FILE, "Field", 40

    def pages(self, data: ReportData) -> Iterator[Page]:
        """See the module."""
        yield _page(data.run)


def _page(run: RunView) -> Page:
    """`field.html`."""
    rows, findings = run.table("field"), run.table("engine_findings")
    shown = _Reproducers(run)
    builders = Rows(_builders(rows, shown), room=ROOM // 4)
    engines = Rows(_engines(findings, shown), room=ROOM // 4)
    any_rows = rows.height or findings.height
    return Page(
        file=_FILE,
        template="field.html",
        title="Builders in the field",
        needs=(TABLE,) if any_rows else (),
        script="field" if any_rows else None,
        values={
            "n": rows.height,
            "n_wrong": rows.filter(pl.col("n_wrong") > 0).height,
            "n_refused": rows.filter(pl.col("status") == Status.BUILDER_REFUSED).height,
            "n_releases": rows.select("builder", "version").n_unique() if rows.height else 0,
            "released": rows["version"].is_not_null().any(),
            "tokenizers": [visible(name, 60) for name in _each(rows, "tokenizer")],
            "grid": list(_grid(rows)),
            "builders": builders,
            "walked": sorted(
                visible(name, 60) for name in run.table("engines")["made_by"].drop_nulls().unique()
            ),
            "engines": engines,
            "reproducers": shown.kept,
            "left_out": shown.left_out,
        },
    )


class _Reproducers:
    """The reproducers that fit the page, each with an anchor."""

    def __init__(self, run: RunView) -> None:
        self.kept: list[dict[str, Any]] = []
        self.left_out = 0
        self._places: dict[str, int] = {}
        room = ROOM // 2
        for table, who in (("reproducers", "builder"), ("engine_findings", "engine")):
            for row in run.table(table).iter_rows(named=True):
                one = _reproducer(row, visible(row[who], 60))
                room -= len(one["suite_file"]) + len(one["report"])
                if row["file"] is None or room < 0:
                    self.left_out += room < 0
                    continue
                self._places[row["file"]] = len(self.kept)
                self.kept.append(one)

    def place(self, file: str | None) -> int | None:
        """The anchor of a reproducer; None if it does not fit the page."""
        return None if file is None else self._places.get(file)


def _reproducer(row: dict[str, Any], who: str) -> dict[str, Any]:
    release = f" ({visible(row['made_by'], 60)})" if row["made_by"] else ""
    return {
        "who": f"{who}{release} on {visible(row['tokenizer'], 60)}",
        "verdict": visible(row["verdict"], 60).replace("_", " "),
        "kind": visible(row["kind"], 60).replace("_", " "),
        "command": visible(row["command"], 600),
        "file": visible(row["file"], 200),
        "suite_file": lines(row["suite_file"]),
        "report": lines(row["report"]),
    }


def lines(text: str | None) -> str:
    """A text of several lines, escaped except for line ends."""
    return "\n".join(visible(line, 2_000) for line in (text or "").split("\n"))


def _grid(rows: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """A row for each builder and release, an entry for each vocabulary: wrong tokens or status."""
    for (name, version), group in rows.group_by(["builder", "version"], maintain_order=True):
        of = {row["tokenizer"]: row for row in group.iter_rows(named=True)}
        yield {
            "builder": visible(str(name), 60),
            "version": _release(version, group["status"][0]),
            "entries": [_entry(of.get(tokenizer)) for tokenizer in _each(rows, "tokenizer")],
        }


def _release(version: object, status: str) -> str:
    """The release; for a builder without one, `ours` or `not known`."""
    if isinstance(version, str):
        return visible(version, 40)
    return "ours" if status == Status.OK else "not known"


def _entry(row: dict[str, Any] | None) -> dict[str, str]:
    if row is None:
        return {"text": "", "look": ""}
    if row["status"] != Status.OK:
        status = row["status"].removeprefix("builder_").replace("_", " ")
        return {"text": visible(status, 40), "look": "held"}
    wrong = row["n_wrong"] or 0
    return {"text": f"{wrong:,}", "look": "broken" if wrong else "ok"}


def _each(rows: pl.DataFrame, column: str) -> list[str]:
    return rows[column].unique(maintain_order=True).to_list()


def _builders(rows: pl.DataFrame, shown: _Reproducers) -> Iterator[list[Any]]:
    """[builder, release, vocabulary, tokens, wrong, status, why, proof, links], the worst first."""
    order = pl.col("n_wrong").fill_null(0)
    for row in rows.sort(order, descending=True, maintain_order=True).iter_rows(named=True):
        yield [
            visible(row["builder"], 60),
            _release(row["version"], row["status"]),
            visible(row["tokenizer"], 60),
            row["n_normal"],
            row["n_wrong"],
            visible(row["status"], 40).replace("_", " "),
            visible(row["reason"], 400),
            _proof(row, shown),
            _links(row["known"]),
        ]


def _engines(findings: pl.DataFrame, shown: _Reproducers) -> Iterator[list[Any]]:
    """[engine, release, vocabulary, verdict, kind, states, ids, proof, links]."""
    for row in findings.iter_rows(named=True):
        yield [
            visible(row["engine"], 60),
            visible(row["made_by"], 80),
            visible(row["tokenizer"], 60),
            visible(row["verdict"], 40).replace("_", " "),
            visible(row["kind"], 40).replace("_", " "),
            row["n_states"],
            row["n_ids"],
            _proof(row, shown),
            _links(released.known_engine(row["engine"], row["verdict"], row["kind"])),
        ]


def _proof(row: dict[str, Any], shown: _Reproducers) -> list[Any] | int:
    """[grammar, tokens before, verdict, ids, true bytes, claimed bytes, place] or 0."""
    if row["grammar"] is None:
        return 0
    ids: list[int] = row["ids"] or []
    more = f" and {len(ids) - _IDS} more" if len(ids) > _IDS else ""
    return [
        visible(row["grammar"], 160),
        ", ".join(map(str, row["tokens"] or [])),
        visible(row["verdict"], 40).replace("_", " "),
        ", ".join(map(str, ids[:_IDS])) + more,
        None if row["true"] is None else visible(row["true"], 80),
        None if row["claimed"] is None else visible(row["claimed"], 80),
        shown.place(row["file"]),
    ]


def _links(known: str | None) -> list[list[str]]:
    return [[visible(text, 120), address] for text, address in released.links(known)]
