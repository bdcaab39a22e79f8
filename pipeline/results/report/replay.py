"""The replay: the number of right walks under each builder, and a list of all other walks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from ...model.verdicts import Cause, InstanceVerdict
from ...system.text import visible
from ..summary import replay as summary_replay
from ..summary.replay import share
from .row_budget import Index, Rows
from .run_view import RunView
from .sections import ReportData, register
from .site import TABLE, Page

FILE = "replay.html"
_CULPRITS = 8
_BLAME = tuple(cause.value for cause in (Cause.BUILDER, Cause.ENGINE, Cause.CHECKER, Cause.NONE))


@register
class Replay:
    """See `sections.Section`."""

    name, file, title, place = "replay", FILE, "Replay", 50

    def pages(self, data: ReportData) -> Iterator[Page]:
        """See the module."""
        yield _page(data.run)


def _page(run: RunView) -> Page:
    """`replay.html`."""
    replay = run.table("replay")
    grid = summary_replay.rows(replay, run.table("replay_times"))
    shared = Index()
    rows = Rows(_rows(_failed(replay), shared))
    return Page(
        file=FILE,
        template="replay.html",
        title="Replay",
        needs=(TABLE,),
        script="replay",
        values={
            "lead": _result_sentence(replay),
            "grid": [[visible(cell, 300) for cell in row] for row in grid],
            "share": share(run.manifest) if run.manifest_part("volatile", "replay_cpu_ns") else "",
            "culprits": list(_culprits(replay)),
            "rows": rows,
            "data": {"shared": shared.values},
        },
    )


def _result_sentence(replay: pl.DataFrame) -> str:
    """The result of the walks in one sentence; empty if there were none."""
    walked = replay.filter(pl.col("split").is_not_null())
    said: list[str] = []
    for builder in replay["builder"].unique().sort().to_list():
        n_walks = walked.filter(builder=builder).height
        faults = replay.filter(builder=builder, cause=Cause.BUILDER).height
        at_fault = f"{faults:,}" if faults else "none"
        said.append(f"{visible(builder, 60)} is at fault in {at_fault} of {n_walks:,} walks")
    return f"{'; '.join(said)}." if said else ""


def _failed(replay: pl.DataFrame) -> pl.DataFrame:
    """The walks that were not right, faults of builders first."""
    blame = pl.col("cause").replace_strict(_BLAME, range(len(_BLAME)), default=len(_BLAME))
    return replay.filter(pl.col("verdict") != InstanceVerdict.OK).sort(blame, maintain_order=True)


def _rows(failed: pl.DataFrame, shared: Index) -> Iterator[list[Any]]:
    """[tokenizer, builder, schema, instance, split, verdict, cause, reason, token, true, claimed].

    Texts are indices into a shared list; token and bytes are 0 if no token is at fault.
    """
    for row in failed.iter_rows(named=True):
        names = ("tokenizer", "builder", "schema", "instance", "split", "verdict", "cause")
        yield [
            *(shared[visible(row[name] or "", 120)] for name in names),
            shared[visible(row["reason"] or "", 240)],
            *(
                (0, 0, 0)
                if row["culprit"] is None
                else (row["culprit"], visible(row["true"], 60), visible(row["claimed"], 60))
            ),
        ]


def _culprits(replay: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """The wrong tokens of builders, by the number of walks that each broke."""
    by = ["tokenizer", "builder", "culprit", "true", "claimed"]
    broke = replay.filter(pl.col("culprit").is_not_null() & (pl.col("true") != pl.col("claimed")))
    counted = broke.group_by(by, maintain_order=True).len("n")
    for row in counted.sort("n", descending=True, maintain_order=True).head(_CULPRITS).to_dicts():
        yield {
            "n": row["n"],
            "token": row["culprit"],
            **{
                name: visible(row[name], 60) for name in ("tokenizer", "builder", "true", "claimed")
            },
        }
