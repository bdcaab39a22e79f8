"""Cells of two sides joined by their names, each pair with its change, worst first."""

from __future__ import annotations

import polars as pl

from ...model.verdicts import BADNESS, Change, Verdict
from ..tables import parquet
from .side import KEY, PARTS, Side

WORSE = (Change.REGRESSED, Change.FAILURE_WORSE, Change.REMOVED)
STILL = (Change.STILL_FAILING, Change.STILL_PASSING)

_BADNESS = {verdict.value: BADNESS[verdict] for verdict in Verdict}
_OK = Verdict.OK.value
_ENDS = ("before", "after")


def pair_cells(before: pl.DataFrame, after: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """The full join of both sides on `key`. Other columns end in `_before` and `_after`."""
    if "repeat" in before.columns or "repeat" in after.columns:
        key = [*key, "repeat"]
        none = pl.lit(None, dtype=pl.Int64).alias("repeat")
        before, after = (
            side if "repeat" in side.columns else side.with_columns(none)
            for side in (before, after)
        )
    left, right = (
        side.rename({name: f"{name}_{end}" for name in side.columns if name not in key})
        for side, end in ((before, "before"), (after, "after"))
    )
    pairs = left.join(right, on=key, how="full", coalesce=True, nulls_equal=True)
    return pairs.with_columns(
        pl.coalesce(f"{part}_after", f"{part}_before").alias(part)
        for part in PARTS
        if part not in key
    )


def classify(pairs: pl.DataFrame) -> pl.DataFrame:
    """Every pair with its `change` and `output_changed`, worst first."""
    was, now = pl.col("verdict_before"), pl.col("verdict_after")
    bad_was, bad_now = (
        verdict.replace_strict(_BADNESS, default=None, return_dtype=pl.Int64)
        for verdict in (was, now)
    )
    change = (
        pl.when(was.is_null())
        .then(pl.lit(Change.ADDED.value))
        .when(now.is_null())
        .then(pl.lit(Change.REMOVED.value))
        .when(now == _OK)
        .then(
            pl.when(was == _OK)
            .then(pl.lit(Change.STILL_PASSING.value))
            .otherwise(pl.lit(Change.FIXED.value))
        )
        .when(was == _OK)
        .then(pl.lit(Change.REGRESSED.value))
        .when(bad_now > bad_was)
        .then(pl.lit(Change.FAILURE_WORSE.value))
        .when(bad_now < bad_was)
        .then(pl.lit(Change.FAILURE_BETTER.value))
        .otherwise(pl.lit(Change.STILL_FAILING.value))
    )
    order = {change.value: place for place, change in enumerate(Change)}
    both = was.is_not_null() & now.is_not_null()
    known = pl.col("output_before").is_not_null() | pl.col("output_after").is_not_null()
    known &= pl.col("cell_hash_before").is_not_null() & pl.col("cell_hash_after").is_not_null()
    return (
        pairs.with_columns(
            change=change,
            output_changed=both
            & known
            & pl.col("output_before").ne_missing(pl.col("output_after")),
        )
        .sort(
            pl.col("change").replace_strict(order, return_dtype=pl.Int64),
            pl.max_horizontal(bad_was, bad_now),
            pl.col("case") == "founding",
            *(pl.col(name) for name in KEY),
            descending=[False, True, True, *(False for _ in KEY)],
            maintain_order=True,
        )
        .select(_columns(pairs.columns))
    )


def _columns(there: list[str]) -> list[str]:
    sided = ("verdict", "cause", "output", "reason", "cell_key", "cell_hash")
    both = [f"{name}_{end}" for name in sided for end in ("before", "after")]
    steps = [f"{name}_{end}" for name in ("culprit_step", "lost_at_step") for end in _ENDS]
    repeat = ["repeat"] if "repeat" in there else []
    return [*KEY, *repeat, "change", "output_changed", *both, *steps]


def with_tokens(cells: pl.DataFrame, before: Side, after: Side) -> pl.DataFrame:
    """Add the token at which each changed cell left its grammar or lost its constraint.

    The columns are `step`, `token`, `claimed` and `true`, each ending in `_before` and `_after`.
    """
    for side, end in ((before, "before"), (after, "after")):
        names = {name: f"{name}_{end}" for name in ("token", "claimed", "true")}
        step = pl.col(f"culprit_step_{end}")  # a mask that was lost has no token
        cells = cells.with_columns(step.alias(f"step_{end}")).drop(
            f"culprit_step_{end}", f"lost_at_step_{end}"
        )
        on = [f"cell_key_{end}", f"step_{end}"]
        moved = cells.filter(
            ~pl.col("change").is_in([c.value for c in STILL]) & pl.col(f"step_{end}").is_not_null()
        ).select(on)
        if side.folder is None or not (side.folder / "steps.parquet").exists():
            moved = moved.clear()
        if moved.height:
            assert side.folder is not None
            at = parquet.scan(side.folder, "steps").select(
                pl.col("cell_key").alias(on[0]),
                pl.col("step").alias(on[1]),
                *(pl.col(name).alias(named) for name, named in names.items()),
            )
            at = at.join(moved.unique().lazy(), on=on, how="semi")
            found = parquet.collect(at, side.folder, "steps")
            found = found.unique(on, keep="first")  # repeats share a key
            cells = cells.join(found, on=on, how="left", maintain_order="left")
        else:
            kinds = (pl.Int64, pl.Binary, pl.Binary)
            cells = cells.with_columns(
                pl.lit(None, dtype=kind).alias(name)
                for name, kind in zip(names.values(), kinds, strict=True)
            )
    return cells
