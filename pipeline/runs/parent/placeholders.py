"""Placeholder rows for units without a result, and which units fail together with another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...model.names import Row, Unit
from ...model.verdicts import Cause, End, InstanceVerdict, Status
from ...results.tables import schemas
from ..protocol import Job
from ..units import required

LOAD: Unit = ("load",)
"""Stands for the work of a worker before its first unit."""


@dataclass(frozen=True)
class Fate:
    """Why a unit has no result of its own."""

    end: End
    reason: str
    lost: bool = True
    """Whether the result counts as lost; False if the limit of the case itself was reached."""


def failing_with(job: Job, culprit: Unit) -> Iterator[Unit]:
    """The units that fail with a culprit: the unit itself, or every unit that needs it."""
    for unit in required(job):
        match culprit:
            case ("load",):
                yield unit
            case ("case", suite, case) if unit[0] == "cell" and unit[2:4] == (suite, case):
                yield unit
            case ("build", builder) if unit[0] != "engine" and unit[1:2] == (builder,):
                yield unit
            case _ if unit == culprit:
                yield unit
            case _:
                pass


def without(job: Job, culprit: Unit) -> Job:
    """The job without a culprit that other units need, such as a builder or a case."""
    match culprit:
        case ("build", builder):
            return job.planned(builders=tuple(b for b in job.plan.builders if b != builder))
        case ("case", suite, case):
            kept = (
                replace(one, cases=tuple(c for c in one.cases if (one.name, c) != (suite, case)))
                for one in job.plan.suites
            )
            return job.planned(suites=tuple(kept))
        case _:
            return job


def rows(job: Job, unit: Unit, fate: Fate) -> list[tuple[str, list[Row]]]:
    """(table, rows) pairs that record a unit's fate. Raises ValueError for an unknown unit."""
    without: Row = {"status": Status(fate.end.value).value, "reason": fate.reason}
    match unit:
        case ("prefix",):
            return [("prefix", [_row("prefix", job) | without])]
        case ("engine", engine):
            return [("engines", [_row("engines", job, engine=engine) | without])]
        case ("cell", builder, suite, case, *one_of):
            row = _cell(job, builder, suite, case, fate)
            return [("cells", [row | {"repeat": int(one_of[0]) if one_of else None}])]
        case ("audit", builder):
            return [("tokenizers", [_row("tokenizers", job, builder=builder) | without])]
        case ("walks", builder):
            return [("walks", [_row("walks", job, builder=builder) | without])]
        case ("replay", builder, collection, name):
            cause = Cause.NONE if fate.end is End.LOAD_REFUSED else Cause.ENGINE
            row: Row = {"verdict": InstanceVerdict(fate.end.value).value, "cause": cause.value}
            names = {"builder": builder, "collection": collection, "schema": name}
            return [("replay", [_row("replay", job, **names) | row | {"reason": fate.reason}])]
        case _:
            raise ValueError(f"{unit} is not a unit that has rows")


def _row(table: str, job: Job, **names: str) -> Row:
    """A row in which only the given names are filled in."""
    return {**dict.fromkeys(schemas.SCHEMAS[table]), "tokenizer": job.tokenizer, **names}


def _cell(job: Job, builder: str, suite: str, case: str, fate: Fate) -> Row:
    cause = Cause.VOCABULARY if fate.end is End.LOAD_REFUSED else Cause.RUNTIME
    return _row("cells", job, builder=builder) | {
        "target": job.target.name,
        "model": job.model,
        "suite": suite,
        "case": case,
        "cell_key": "/".join((job.target.name, job.model, job.tokenizer, builder, suite, case)),
        "verdict": fate.end.value,
        "cause": cause.value,
        "text_valid": False,
        "ended": fate.end.value,
        "reason": fate.reason,
        "seed": job.model_source.seed,
    }
