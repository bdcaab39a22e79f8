"""Standings in words: the only place where a judgement about a builder becomes a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from ...model.names import IN_PROCESS
from ...model.verdicts import Standing

_SHOWN = 4
"""Most reasons of one builder on the console."""

MEANING = {
    Standing.UNSAFE: "a fault was found",
    Standing.LIMITED: "every fault that was found needs a special circumstance in the grammar",
    Standing.UNPROVED: "no fault was found, but not everything could be judged",
    Standing.SAFE: "no fault was found within these bounds",
}
"""What each word means."""


_COUNTED = (
    ("n_probes", "tokenized text", "tokenized texts"),
    ("n_states", "mask", "masks"),
    ("n_grammars", "grammar", "grammars"),
    ("n_walks", "walk", "walks"),
    ("n_strings", "given string", "given strings"),
    ("n_cells", "cell", "cells"),
)
"""The bounds in words; their columns are in `schemas`."""


def bounds(row: Mapping[str, Any]) -> list[str]:
    """The numbers of what was judged, such as `23 walks`; zeros are left out."""
    return [
        f"{row[name]:,} {one if row[name] == 1 else more}"
        for name, one, more in _COUNTED
        if row[name]
    ]


def name(row: dict[str, Any]) -> str:
    """The builder and the vocabulary of a row of `standings`; the target and axes if special."""
    rest = [row["target"]] if row["target"] != IN_PROCESS else []
    rest += [row["axes"]] if row["axes"] else []
    return f"{row['builder']} on {row['tokenizer']}" + (f" ({', '.join(rest)})" if rest else "")


def headline(standings: pl.DataFrame) -> str:
    """All standings of a run in one sentence, the worst first; empty if there are none.

    `safe` comes with its bounds, summed over the builders that are safe.
    """
    told: list[str] = []
    for standing in Standing:
        rows = standings.filter(standing=standing).to_dicts()
        if rows:
            names = [name(row) for row in rows]
            shown = names if len(names) <= _SHOWN else [*names[:_SHOWN], "…"]
            are = "is" if len(rows) == 1 else "are"
            count = "" if len(rows) <= _SHOWN else f"{len(rows)} builders: "
            judged = ""
            if standing is Standing.SAFE:
                total = {name: sum(row[name] for row in rows) for name, _, _ in _COUNTED}
                judged = f" within {', '.join(bounds(total))}"
            told.append(f"{count}{', '.join(shown)} {are} {standing}{judged}")
    return f"{'; '.join(told)}." if told else ""


def worst_first(standings: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of `standings`, worst first."""
    order = {standing.value: place for place, standing in enumerate(Standing)}
    return sorted(standings.to_dicts(), key=lambda row: order[row["standing"]])


def lines(standings: pl.DataFrame) -> Iterator[str]:
    """The standings with their reasons, for the console, worst first."""
    for row in worst_first(standings):
        yield f"{name(row)}: {row['standing'].upper()}, {MEANING[Standing(row['standing'])]}"
        *reasons, judged = row["reasons"]
        for reason in reasons[:_SHOWN]:
            yield f"  {reason}"
        if len(reasons) > _SHOWN:
            yield f"  … and {len(reasons) - _SHOWN} more reasons; see standings.parquet"
        yield f"  {judged}"
