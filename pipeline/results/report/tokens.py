"""The token tables: counts of wrong tokens by kind and vocabulary, and a list of them all."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from ...model.verdicts import Status, TokenizeMode
from ...system.text import visible
from . import charts
from .row_budget import Index, Rows
from .run_view import RunView
from .sections import ReportData, register
from .site import CHART, TABLE, Page

_BY = ("token", "attribute", "true", "claimed", "damage")


@register
class Tokens:
    """See `sections.Section`."""

    name, file, title, place = "tokens", "tokens.html", "Token tables", 30

    def pages(self, data: ReportData) -> Iterator[Page]:
        """See the module."""
        yield from _pages(data.run)


def _pages(run: RunView) -> Iterator[Page]:
    """`tokens.html`, and one page for the wrong tokens of each vocabulary."""
    tokens = run.table("tokens")
    counts = (
        tokens.group_by(["tokenizer", "builder", "damage"])
        .len()
        .sort("tokenizer", "builder", "damage")
    )
    files = {name: _path(name) for name in tokens["tokenizer"].unique().sort().to_list()}
    shown = counts.with_columns(
        *(
            pl.col(name).map_elements(lambda value: visible(value, 60), return_dtype=pl.String())
            for name in ("tokenizer", "builder")
        ),
        pl.col("damage").str.replace_all("_", " "),
    )
    yield Page(
        file="tokens.html",
        template="tokens.html",
        title="Token tables",
        needs=(CHART,) if counts.height else (),
        values={
            "chart": charts.damage(shown) if counts.height else None,
            "counts": shown.rows(named=True),
            "total": tokens.height,
            "files": {visible(name, 60): path for name, path in files.items()},
            "audited": run.table("tokenizers").height,
            "wrong_marks": _notable(run),
        },
    )
    for name, path in files.items():
        yield _list(name, path, tokens.filter(tokenizer=name))


def _list(tokenizer: str, path: str, tokens: pl.DataFrame) -> Page:
    """The wrong tokens of one vocabulary; builders with the same wrong bytes share a row."""
    builders = tokens["builder"].unique().sort().to_list()
    by = [name for name in _BY if name in tokens.columns]
    wrong = tokens.group_by(by, maintain_order=True).agg(pl.col("builder"))
    wrong = wrong.sort("token", maintain_order=True)
    shared = Index()
    rows = Rows(
        [
            row["token"],
            shared[row["attribute"] or ""],
            visible(row["true"], 120),
            visible(row["claimed"], 120) if row["claimed"] != row["true"] else 0,
            shared[(row["damage"] or "").replace("_", " ")],
            shared[", ".join(visible(builder, 40) for builder in row["builder"])],
        ]
        for row in wrong.iter_rows(named=True)
    )
    return Page(
        file=path,
        template="wrong_tokens.html",
        title=f"Wrong tokens of {visible(tokenizer, 60)}",
        needs=(TABLE,),
        script="tokens",
        section="tokens.html",
        values={
            "tokenizer": visible(tokenizer, 60),
            "builders": [visible(builder, 60) for builder in builders],
            "rows": rows,
            "data": {"shared": shared.values},
        },
    )


def _notable(run: RunView) -> list[dict[str, Any]]:
    """Builders whose table is wrong in something other than bytes, or was not built."""
    found: list[dict[str, Any]] = []
    for row in run.table("tokenizers").iter_rows(named=True):
        said: list[str] = []
        if row["status"] != Status.OK:
            said.append(f"{row['status']}: {row['reason'] or ''}")
        if row.get("end_is_wrong"):
            said.append(f"the runtime does not stop on the end id {row['claimed_end']}")
        if row["tokenize"] == TokenizeMode.INEXACT:
            said.append("forced text is tokenized to other bytes")
        if said:
            who = {name: visible(row[name], 60) for name in ("tokenizer", "builder")}
            found.append(who | {"said": visible("; ".join(said), 300)})
    return found


def _path(tokenizer: str) -> str:
    word = re.sub(r"[^A-Za-z0-9_.]+", "_", tokenizer)[:60].strip("._")
    return f"tokens/{word}-{hashlib.sha256(tokenizer.encode()).hexdigest()[:8]}.html"
