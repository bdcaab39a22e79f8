"""A comparison as JSON for other programs; its schema is `docs/comparison.schema.json`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import polars as pl
import polars.selectors as cs

from pipeline import tables
from pipeline.compare import Comparison
from pipeline.comparison_out import words
from pipeline.pairing import STILL, Change
from pipeline.sides import KEY, Side

FORMAT = 1


def text(comparison: Comparison, fail_on: str) -> str:
    """The whole file, one changed cell a line."""
    record = _record(comparison, fail_on)
    head = json.dumps(record, indent=2, ensure_ascii=True)
    moved = ~pl.col("change").is_in([c.value for c in STILL]) | pl.col("output_changed")
    cells = ",\n    ".join(
        json.dumps(_cell(row), ensure_ascii=True)
        for row in comparison.cells.filter(moved).drop(cs.contains("cell_")).iter_rows(named=True)
    )
    return head.removesuffix("\n}") + f',\n  "cells": [\n    {cells}\n  ]\n}}\n'


def _record(comparison: Comparison, fail_on: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "schema_version": tables.SCHEMA_VERSION,
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
        "hints": list(comparison.hints),
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "kind": "baseline" if side.folder is None else "run",
        "builder": side.part.get("builder"),
        "target": side.part.get("target"),
    }


def _cell(row: words.Row) -> dict[str, Any]:
    return {
        **{name: row[name] for name in KEY},
        "repeat": row.get("repeat"),
        "change": row["change"],
        "output_changed": row["output_changed"],
        "before": _half(row, "before"),
        "after": _half(row, "after"),
    }


def _half(row: words.Row, end: str) -> dict[str, Any] | None:
    """One side of a pair; bytes as hexadecimal."""
    if row[f"verdict_{end}"] is None:
        return None
    names = ("verdict", "cause", "reason", "step", "token")
    sided = {name: row[f"{name}_{end}"] for name in names}
    for name in ("output", "true", "claimed"):
        data: bytes | None = row[f"{name}_{end}"]
        sided[f"{name}_hex"] = None if data is None else data.hex()
    return sided
