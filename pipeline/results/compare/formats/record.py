"""A comparison as JSON for other programs; its schema is `docs/comparison.schema.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import polars as pl

from ....model.verdicts import Change
from ...tables import schemas
from ..comparison import Comparison
from ..pairing import STILL
from ..side import KEY, Side
from . import words

_FORMAT = 1


_CHUNK = 10_000
"""Cells written at a time, to bound the memory that a large comparison takes."""


def lines(comparison: Comparison, fail_on: str) -> Iterator[str]:
    """The whole file, in pieces; one changed cell a line."""
    head = json.dumps(_record(comparison, fail_on), indent=2)
    moved = ~pl.col("change").is_in([c.value for c in STILL]) | pl.col("output_changed")
    cells = comparison.cells.filter(moved)
    yield head.removesuffix("\n}") + ',\n  "cells": [\n'
    for start in range(0, cells.height, _CHUNK):
        made = _cells(cells.slice(start, _CHUNK)).to_list()
        # Terminal control and text-direction characters are escaped, as `json.dumps` does.
        made = [line if line.isascii() else json.dumps(json.loads(line)) for line in made]
        more = start + _CHUNK < cells.height
        yield ",\n".join(f"    {line}" for line in made) + (",\n" if more else "\n")
    yield "  ]\n}\n"


def _record(comparison: Comparison, fail_on: str) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "schema_version": schemas.SCHEMA_VERSION,
        "versions": [
            {"name": name, "before": was, "after": now} for name, was, now in comparison.versions
        ],
        "before": _side(comparison.before),
        "after": _side(comparison.after),
        "allow": list(comparison.allow),
        "allowed": [asdict(found) for found in comparison.allowed],
        "fail_on": fail_on,
        "exit_code": comparison.exit_code(fail_on),
        "n_cells": comparison.cells.height,
        "n_worse": comparison.n_worse,
        "n_tables_worse": comparison.n_tables_worse,
        "counts": {change.value: comparison.count(change) for change in Change},
        "outputs_changed": comparison.cells["output_changed"].sum(),
        "tables": [
            asdict(finding) | {"examples": list(finding.examples)}
            for finding in words.findings(comparison)
        ],
        "rates": [
            {
                "scope": rate.scope,
                "pairs": rate.pairs,
                "before": dict(zip(("rate", "low", "high"), rate.before, strict=True)),
                "after": dict(zip(("rate", "low", "high"), rate.after, strict=True)),
                "regressed": rate.regressed,
                "fixed": rate.fixed,
                "mcnemar_p": rate.p,
            }
            for rate in comparison.rates
        ],
        "known": [asdict(one) for one in comparison.known],
        "hints": list(comparison.hints),
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "kind": "baseline" if side.folder is None else "run",
        "builder": side.part.get("builder"),
        "target": side.part.get("target"),
    }


def _cells(cells: pl.DataFrame) -> pl.Series:
    """Every row as a JSON object, made together: a comparison can have 100,000 rows."""
    if "repeat" not in cells.columns:
        cells = cells.with_columns(repeat=pl.lit(None, dtype=pl.Int64))
    names = (*KEY, "repeat", "change", "output_changed")
    row = pl.struct(*names, before=_half("before"), after=_half("after"))
    return cells.select(row.struct.json_encode().alias("line"))["line"]


def _half(end: str) -> pl.Expr:
    """One side of a pair, null if the cell does not exist; bytes as hexadecimal."""
    names = ("verdict", "cause", "reason", "step", "token")
    fields = [pl.col(f"{name}_{end}").alias(name) for name in names]
    fields += [
        pl.col(f"{name}_{end}").bin.encode("hex").alias(f"{name}_hex")
        for name in ("output", "true", "claimed")
    ]
    return pl.when(pl.col(f"verdict_{end}").is_not_null()).then(pl.struct(fields))
