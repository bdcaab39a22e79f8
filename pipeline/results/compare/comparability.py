"""Whether two sides may be compared: the same cases, vocabularies, models and settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from .side import Side, digests

ALLOW = ("suites", "vocabulary", "model", "settings", "cases")
"""Differences that `allow` can name. With `cases`, removed cells do not count as worse."""

_UNSEEN_BY_SERVERS = ("stages", "engine.oracle", "engine.oracle_budget", "engine.time_limit")
"""Settings that do not affect servers: an in-process run and a server run may differ in them."""

_SHOWN = 5
"""Number of names shown for each kind of difference."""


@dataclass(frozen=True)
class Difference:
    """One difference between the sides."""

    kind: str
    """A word of `ALLOW`."""
    text: str


def differences(before: Side, after: Side, pairs: pl.DataFrame) -> list[Difference]:
    """All differences between the sides; `pairs` is their full join."""
    return [
        *_settings(before, after),
        *_definitions(before, after, pairs),
        *_schemas(before, after),
    ]


def _settings(before: Side, after: Side) -> Iterator[Difference]:
    """Differences in settings that both sides have. A setting of one side only does not count."""
    keys = before.settings.keys() & after.settings.keys()
    if set(before.cells["target"]).isdisjoint(after.cells["target"]):
        keys -= set(_UNSEEN_BY_SERVERS)
    for key in sorted(keys):
        was, now = before.settings[key], after.settings[key]
        if was != now:
            yield Difference("settings", f"{key} was {was}, is {now}")


def _definitions(before: Side, after: Side, pairs: pl.DataFrame) -> Iterator[Difference]:
    """Paired cells that do not have the same case, vocabulary, model or seed."""
    if before.digests:
        yield from _against_digests(before, after)
        return
    suite = pl.concat_str("suite", "case", separator="/")
    model = pl.concat_str("model", "tokenizer", separator="/")
    case = _differ("case_hash") | (_one_null("case_hash") & _differ("grammar_hash"))
    for kind, name, differ, words in (
        ("suites", suite, case, "cases with different definitions"),
        ("vocabulary", pl.col("tokenizer"), _differ("vocab_hash"), "vocabularies that differ"),
        ("model", model, _differ("model_sha256"), "models that differ"),
        ("settings", model, _differ("seed"), "models with different seeds"),
    ):
        names = pairs.filter(differ).select(name.alias("name"))["name"].unique().sort().to_list()
        if names:
            yield Difference(kind, f"{len(names)} {words}: {_some(names)}")


def _schemas(before: Side, after: Side) -> Iterator[Difference]:
    """Replayed schemas that differ between the sides."""
    if not all(side.rows.get("replay") for side in (before, after)):
        return
    of = ["collection", "schema"]
    was, now = (
        side.table("replay").select(*of, "grammar_hash").drop_nulls("grammar_hash").unique(of)
        for side in (before, after)
    )
    both = was.join(now, on=of, suffix="_after").sort(of)
    other = both.filter(pl.col("grammar_hash") != pl.col("grammar_hash_after"))
    if names := ["/".join(row) for row in other.select(of).iter_rows()]:
        yield Difference(
            "suites", f"{len(names)} schemas with different definitions: {_some(names)}"
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _differ(name: str) -> pl.Expr:
    return pl.col(f"{name}_before") != pl.col(f"{name}_after")


def _one_null(name: str) -> pl.Expr:
    return pl.col(f"{name}_before").is_null() | pl.col(f"{name}_after").is_null()


def _against_digests(before: Side, after: Side) -> Iterator[Difference]:
    """Differences from a baseline, which has one hash for each suite, vocabulary and model.

    A suite is not compared if the other side does not have all of its cases.
    """
    kinds = {"suite": "suites", "vocabulary": "vocabulary", "model": "model"}
    cases = before.cells.select("suite", "case").unique()
    now = digests(after.cells, cases)
    gone = set(cases.join(after.cells, on=["suite", "case"], how="anti")["suite"].to_list())
    for (kind, name), digest in before.digests.items():
        other = now.get((kind, name))
        if other is not None and other != digest and not (kind == "suite" and name in gone):
            yield Difference(kinds[kind], f"{kind} {name} differs from the one in {before.name}")
