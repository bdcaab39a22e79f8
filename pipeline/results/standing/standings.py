"""The table `standings`: one closed word per builder, with its reasons and its bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from ...model.names import IN_PROCESS
from ...model.verdicts import (
    Agreement,
    Cause,
    InstanceVerdict,
    RunStatus,
    Standing,
    Status,
    Verdict,
    WalkVerdict,
)
from ..tables import schemas
from . import evidence, faults, missing, words
from .evidence import Evidence, Tables
from .faults import Fault


def of(
    tables: Tables,
    manifest: Mapping[str, Any] | None,
    unreadable: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """The standings of a run; columns as in `schemas`, sorted.

    `tables` has every table that can be read; `unreadable` names the others, with the reason.
    `manifest` is empty or None for a run that has none: such a run is not finished.
    """
    rows = [
        _row(found, [*_unfinished(manifest), *_damaged(unreadable or {})])
        for found in evidence.subjects(tables, axes(manifest or {}))
    ]
    table = pl.DataFrame(rows, schema=schemas.SCHEMAS["standings"])
    return table.sort(schemas.SORT_KEYS["standings"])


def axes(manifest: Mapping[str, Any]) -> str:
    """The axes of repeated cells: settings that do not stand at their default."""
    sampling: Mapping[str, Any] = manifest.get("settings", {}).get("sampling", {})
    said = {f"sampling.{name}": sampling.get(name) for name in ("temperature",)}
    named = [f"{name}={value:g}" for name, value in said.items() if value]
    return ",".join(["repeats", *named])


def _unfinished(manifest: Mapping[str, Any] | None) -> Iterator[str]:
    if not manifest:
        yield "the run is not finished"
    elif manifest.get("status") != RunStatus.COMPLETE:
        gaps: list[str] = manifest.get("missing") or []
        yield "the run is interrupted" + (f": {gaps[0]}" if gaps else "")


def _damaged(unreadable: Mapping[str, str]) -> Iterator[str]:
    for table, reason in unreadable.items():
        yield f"{table}.parquet cannot be read: {reason}"


def _row(found: Evidence, of_the_run: list[str]) -> dict[str, Any]:
    its_faults, gaps = list(faults.of(found)), [*of_the_run, *missing.of(found)]
    bounds = _bounds(found)
    if not any(bounds.values()) and not its_faults and not gaps:
        gaps = ["nothing was judged"]
    standing = _standing(its_faults, gaps)
    reasons = [_reason(fault) for fault in sorted(its_faults, key=lambda f: bool(f.needs))]
    reasons += [f"Not judged: {gap.rstrip('.')}." for gap in gaps]
    reasons += _notes(found)
    reasons.append(_spoke(found, bounds))
    subject = found.subject
    return {
        "tokenizer": subject.tokenizer,
        "builder": subject.builder,
        "target": subject.target,
        "axes": subject.axes,
        "standing": standing.value,
        "reasons": reasons,
        **bounds,
    }


def _standing(its_faults: list[Fault], gaps: list[str]) -> Standing:
    if any(not fault.needs for fault in its_faults):
        return Standing.UNSAFE
    if its_faults:
        return Standing.LIMITED
    return Standing.UNPROVED if gaps else Standing.SAFE


def _reason(fault: Fault) -> str:
    needs = f" This needs {fault.needs}." if fault.needs else ""
    text = fault.text[0].upper() + fault.text[1:]
    return f"{text.rstrip('.')} ({fault.table}.parquet).{needs}"


def _bounds(found: Evidence) -> dict[str, int]:
    """What was judged, in numbers."""
    states = found.table("states").filter(~pl.col("verdict").is_in(missing.UNJUDGED))
    walks = found.table("walks").filter(status=Status.OK)
    strings, replay = found.table("strings"), found.table("replay").drop_nulls("split")
    return {
        "n_grammars": states["grammar"].n_unique(),
        "n_states": states.height,
        "n_walks": walks.height,
        "n_strings": strings.height + replay.height,
        "n_probes": found.table("exactness").height,
        "n_cells": found.table("cells").filter(pl.col("verdict").is_in(_JUDGED_CELLS)).height,
    }


_JUDGED_CELLS = [
    verdict.value for verdict in Verdict if verdict not in (*missing.UNFINISHED, Verdict.TRUNCATED)
]


def _notes(found: Evidence) -> Iterator[str]:
    """Faults of other parts, and notes of the builder."""
    for row in found.table("tokenizers").filter(status=Status.OK).iter_rows(named=True):
        if row["reason"]:
            yield f"Note: {row['reason'].rstrip('.')}."
    others = [cause.value for cause in faults.OTHERS]
    if found.subject.target == IN_PROCESS:
        cells = found.table("cells").filter(
            (pl.col("verdict") != Verdict.OK) & pl.col("cause").is_in(others)
        )
        yield from _of_others(cells, "cell", "cells")
    differing = found.table("states").filter(engine_free=Agreement.DISAGREES)
    if n := differing.height:
        masks, where = ("mask" if n == 1 else "masks"), differing.sort("grammar")["grammar"][0]
        yield (
            f"In {n:,} {masks} the suite's checker, read without an engine, differs from the "
            f"grammar, such as {where} (states.parquet): the checker is wider or narrower, or the "
            "engine reads a lexeme greedily. This is not the builder's fault."
        )
    disagreeing = found.table("walks").filter(verdict=WalkVerdict.CHECKER_DISAGREES)
    if disagreeing.height:
        one, where = disagreeing.height, disagreeing["grammar"][0]
        yield (
            f"The checker of the suite rejects the text of {one:,} finished "
            f"{'walk' if one == 1 else 'walks'} that the grammar accepts, such as {where} "
            "(walks.parquet). This is not the builder's fault."
        )
    for table, one, more in (
        ("strings", "string", "strings"),
        ("replay", "replayed walk", "replayed walks"),
    ):
        wrong = found.table(table).filter(
            pl.col("verdict").is_in(_WRONG) & pl.col("cause").is_in(others)
        )
        yield from _of_others(wrong, one, more, table)


_WRONG = [
    *(InstanceVerdict.VALID_REFUSED.value, InstanceVerdict.INVALID_ACCEPTED.value),
    *(InstanceVerdict.NO_STOP.value, InstanceVerdict.GRAMMAR_ERROR.value),
]


def _of_others(rows: pl.DataFrame, one: str, more: str, table: str = "cells") -> Iterator[str]:
    for cause in Cause:
        n = rows.filter(cause=cause).height
        if n:
            are = f"{one} is" if n == 1 else f"{more} are"
            yield (
                f"{n:,} {are} not right because of the {cause} ({table}.parquet). "
                "This is not the builder's fault."
            )


def _spoke(found: Evidence, bounds: Mapping[str, int]) -> str:
    """What was judged, with numbers."""
    spoke: list[str] = []
    ok = found.table("tokenizers").filter(status=Status.OK)
    if ok.height and ok["n_tokens"][0]:
        spoke.append(f"the bytes and marks of {ok['n_tokens'][0]:,} tokens")
    spoke += words.bounds(bounds)
    return f"Judged: {', '.join(spoke) or 'nothing'}."
