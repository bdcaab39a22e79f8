"""Console text about generation: rates of samples, and speed."""

from __future__ import annotations

from typing import Any

import polars as pl

from ...model.verdicts import Verdict
from ..compare.repeats import wilson

RATES = "Rates of right cells over repeats (Wilson intervals, 95 %)"
SPEED = "Speed of generation"


def rates(cells: pl.DataFrame) -> list[list[str]]:
    """Rates of right samples; only the header if no cell is repeated."""
    rows = [["model", "tokenizer", "builder", "suite", "ok", "interval", "samples"]]
    names = ["model", "tokenizer", "builder", "suite"]
    repeated = cells.filter(pl.col("repeat").is_not_null())
    for key, group in repeated.group_by(names, maintain_order=True):
        hits, n = group.filter(verdict=Verdict.OK).height, group.height
        low, high = wilson(hits, n)
        between = f"{100 * low:.1f} to {100 * high:.1f} %"
        rows.append([*map(str, key), f"{100 * hits / n:.1f} %", between, f"{n}"])
    return rows


def speed(timings: list[dict[str, Any]]) -> list[list[str]]:
    """Tokens, tokens per second and time shares of each job's generation.

    Judging is not included; the last column gives its time in seconds.
    """
    rows = [["model", "tokenizer", "tokens", "forced", "tokens/s", "in parallel"]]
    rows[0] += ["decode", "mask wait", "select", "python", "judging"]
    for job in timings:
        seconds: dict[str, float] = job["seconds"]
        spent = max(sum(seconds.values()) - seconds["judge"], 1e-9)
        n_tokens = sum(job["tokens"].values())
        rows.append(
            [
                *(job["model"], job["tokenizer"], f"{n_tokens}", f"{job['tokens']['forced']}"),
                *(f"{n_tokens / spent:.0f}", f"{job['n_seq']}"),
                *(
                    f"{100 * seconds[part] / spent:.1f} %"
                    for part in ("decode", "mask_wait", "select", "python")
                ),
                f"{seconds['judge']:.1f} s more",
            ]
        )
    return rows
