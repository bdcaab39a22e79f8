"""Console text about a replay: findings for each builder, and time."""

from __future__ import annotations

from typing import Any

import polars as pl

from ...model.verdicts import Cause, InstanceVerdict
from ..standing.missing import NO_RESULT

REPLAY = "Replay (times: medians over schemas)"
_HEAD = [
    *("tokenizer", "builder", "schemas", "walks", "right", "without a result"),
    *("builder's faults", "engine's own", "suite's faults"),
]


def rows(replay: pl.DataFrame, times: pl.DataFrame) -> list[list[str]]:
    """One row for each tokenizer and builder; the first row is the header."""
    out = [[*_HEAD, "first mask", "mask p50", "mask p99"]]
    keys = ["tokenizer", "builder"]
    for (tokenizer, builder), group in replay.group_by(keys, maintain_order=True):
        mine = times.filter(tokenizer=tokenizer, builder=builder)
        walked = group.filter(pl.col("split").is_not_null())
        out.append(
            [
                str(tokenizer),
                str(builder),
                f"{group['schema'].n_unique()}",
                f"{walked.height}",
                f"{walked.filter(verdict=InstanceVerdict.OK).height}",
                _kinds(group.filter(pl.col("verdict").is_in([str(word) for word in NO_RESULT]))),
                _kinds(group.filter(cause=Cause.BUILDER)),
                _kinds(group.filter(cause=Cause.ENGINE)),
                _kinds(group.filter(cause=Cause.CHECKER)),
                *(_us(mine[column]) for column in ("first_mask_us", "mask_p50_us", "mask_p99_us")),
            ]
        )
    return out


def share(manifest: dict[str, Any]) -> str:
    """The workers' processor time and the share spent in the engine; empty without a replay."""
    spent = manifest["volatile"]["replay_cpu_ns"]
    if not spent["all"]:
        return ""
    return (
        f"Processor time of the replay's workers: {spent['all'] / 1e9:.1f} s, "
        f"{100 * spent['engine'] / spent['all']:.0f} % of it inside llguidance."
    )


def _kinds(group: pl.DataFrame) -> str:
    kinds = group["verdict"].value_counts().sort("verdict").iter_rows()
    return ", ".join(f"{n} {kind}" for kind, n in kinds) or "none"


def _us(column: pl.Series) -> str:
    """The median over schemas."""
    found = column.drop_nulls().median()
    return f"{found:.0f} µs" if isinstance(found, float) else "-"
