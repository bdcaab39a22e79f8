"""The plots, as Vega-Lite made by Altair. They use the page's colours, in light and dark mode."""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from .verdict_looks import GROUP_WORDS, Group

_OUTCOMES = [GROUP_WORDS[group] for group in Group]
_COLOURS = [f"var(--{group.value})" for group in Group]
_KINDS = [f"var(--kind-{i})" for i in range(8)]

_INK = "currentColor"


def damage(counts: pl.DataFrame) -> dict[str, Any]:
    """Wrong tokens by kind for each vocabulary and builder.

    `counts` has the columns tokenizer, builder, damage and len. The scale is logarithmic, so that
    two emptied tokens stay visible beside 15,747 lost spaces.
    """
    kinds = counts.group_by("damage").agg(pl.col("len").sum()).sort("len", descending=True)
    names = kinds["damage"].to_list()
    legend = alt.Legend(title=None, orient="top", columns=4)
    points: Any = (  # Altair's types of a facet are partly unknown
        alt.Chart(counts)
        .mark_point(filled=True, size=120, opacity=1)
        .encode(
            x=alt.X(
                "len:Q",
                title="wrong tokens (logarithmic)",
                scale=alt.Scale(type="log", domainMin=1, nice=True),
                axis=alt.Axis(format="~s", values=[10**i for i in range(7)]),
            ),
            y=alt.Y("builder:N", title=None, axis=alt.Axis(grid=True)),
            color=alt.Color(
                "damage:N", scale=alt.Scale(domain=names, range=_KINDS[: len(names)]), legend=legend
            ),
            shape=alt.Shape("damage:N", scale=alt.Scale(domain=names), legend=legend),
            tooltip=[
                alt.Tooltip("tokenizer:N", title="vocabulary"),
                alt.Tooltip("builder:N"),
                alt.Tooltip("damage:N", title="kind"),
                alt.Tooltip("len:Q", title="wrong tokens", format=","),
            ],
        )
    )
    return _by_row(points, "tokenizer:N")


def trend(points: pl.DataFrame) -> dict[str, Any]:
    """Verdicts of each run, worst first, the newest run on top; one plot for each pair of versions.

    `points` has the rows of `trend._points`.
    """
    newest = points.sort("order", descending=True)
    versions = newest["versions"].unique(maintain_order=True).to_list()
    present = [o for o in _OUTCOMES if o in points["outcome"].unique().to_list()]
    colours = [_COLOURS[_OUTCOMES.index(outcome)] for outcome in present]
    by_time = alt.EncodingSortField("order", op="min", order="descending")
    bars: Any = (
        alt.Chart(points)
        .mark_bar(stroke="var(--panel)", strokeWidth=1, cornerRadius=2)
        .encode(
            x=alt.X(
                "cells:Q", stack="zero", title="cells", axis=alt.Axis(tickCount=6, tickMinStep=1)
            ),
            y=alt.Y("run:N", sort=by_time, title=None),
            color=alt.Color(
                "outcome:N",
                scale=alt.Scale(domain=present, range=colours),
                legend=alt.Legend(title=None, orient="top", columns=3, symbolType="square"),
            ),
            order=alt.Order("badness:Q", sort="descending"),
            tooltip=[
                alt.Tooltip("run:N"),
                alt.Tooltip("versions:N"),
                alt.Tooltip("verdict:N"),
                alt.Tooltip("cells:Q", format=","),
                alt.Tooltip("share:Q", title="share of the run", format=".1%"),
            ],
        )
    )
    return _by_row(bars, "versions:N", versions)


def _by_row(chart: Any, field: str, order: list[str] | None = None) -> dict[str, Any]:
    """A plot for each value of a field, one below the other, each under its name."""
    header = alt.Header(
        labelAngle=0,
        labelOrient="top",
        labelAnchor="start",
        labelFontWeight=600,
        labelLimit=600,
    )
    row = alt.Row(field, title=None, header=header, sort=order or alt.Undefined)
    sized = chart.properties(width=900, height=alt.Step(26))
    return _spec(sized.facet(row=row, spacing=20).resolve_scale(y="independent"))


def _spec(chart: Any) -> dict[str, Any]:
    return (
        chart.configure(background="transparent", font="system-ui, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_INK,
            titleColor=_INK,
            tickColor="var(--line)",
            domainColor="var(--line)",
            gridColor="var(--line)",
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
            labelLimit=220,
        )
        .configure_legend(labelColor=_INK, labelFontSize=12, labelLimit=240)
        .configure_header(labelColor=_INK, labelFontSize=12, titleColor=_INK)
        .to_dict()
    )
