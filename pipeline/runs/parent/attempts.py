"""Run one group in as many workers as it needs. A crash costs only the unit that caused it.

When a worker dies, the units it had started are suspects. All unfinished units are run again, cell
by cell, so that the next death has one suspect. A unit that was open at two deaths is the culprit
and gets its verdict; the other units are run again. A unit is therefore not lost if something else
kills a worker once.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...model.names import Unit
from ...model.verdicts import End
from ...results.tables import parquet
from .. import units
from ..protocol import Job
from . import placeholders, row_check
from .journal import Group
from .placeholders import LOAD, Fate
from .supervise import Death, Garbage, supervise

_LOST = (End.CRASHED.value, End.TIMEOUT.value)
_IN_A_ROW = 16
"""Consecutive crashes, with no finished unit between, after which the job is abandoned."""
_BUDGET = "the run's time limit (run.budget) was reached before this was done"


@dataclass(frozen=True)
class Limits:
    """Time limits of a worker."""

    silence: float
    """Longest silence, in seconds."""
    deadline: float | None = None
    """`time.monotonic()` at which the run's budget is spent."""

    def spent(self) -> bool:
        """Whether the budget is spent."""
        return self.deadline is not None and time.monotonic() >= self.deadline


@dataclass
class _Worker:
    """The state of one worker, according to its messages so far."""

    group: Group
    remote: bool
    """True for server targets, whose own crash and timeout rows also count as lost."""
    progress: Callable[[Unit], None]
    open: dict[Unit, None] = field(default_factory=dict[Unit, None])
    over: Unit | None = None
    """The unit whose time limit ended the worker."""
    refusal: str | None = None
    finished: int = 0
    held: list[str] = field(default_factory=list[str])
    """Rows of a unit that is not done yet."""
    lost: bool = False
    """Whether one of these rows has no result."""

    def take(self, line: str) -> None:
        """Process one line; rows are kept in `held` until their unit is done."""
        match parquet.message(line):
            case {"type": "rows", **rest}:
                if fault := row_check.misfit(rest):
                    raise Garbage(fault)
                self.held.append(line)
                self.lost |= self.remote and any(
                    row.get("verdict") in _LOST for row in rest["rows"]
                )
            case {"type": "started", "unit": [*names]} as message:
                self.open[_unit(names)] = None
                self.group.write(message)
            case {"type": "done", "unit": [*names]}:
                unit = _unit(names)
                self.open.pop(unit, None)
                if self.held or unit[0] in units.STAGE_OF:
                    self.group.finish_with_lines(unit, self.held, lost=self.lost)
                    self.finished += 1
                    self.progress(unit)
                self.held, self.lost = [], False
            case {"type": "over", "unit": [*names]}:
                self.over = _unit(names)
            case {"type": "refused", "message": str(text)}:
                self.refusal = text
            case {"type": "hello" | "spent" | "timings"} as message:
                self.group.write(message)
            case {"type": "end"} if self.held:
                raise Garbage("rows that belong to no unit")
            case _:
                pass  # other output of that process

    def suspects(self) -> list[Unit]:
        """The units that were open when the worker died; `LOAD` if there were none."""
        return list(self.open) or [LOAD]


def work(group: Group, job: Job, limits: Limits, progress: Callable[[Unit], None]) -> str | None:
    """Run a job until every unit has rows. Returns why its input could not be used, or None."""
    deaths: Counter[Unit] = Counter()
    in_a_row = 0

    def record_fate(culprit: Unit, fate: Fate) -> None:
        for unit in placeholders.failing_with(job, culprit):
            if unit not in group.done:
                group.finish(unit, placeholders.rows(job, unit, fate), lost=fate.lost)
                progress(unit)

    while any(unit not in group.done for unit in units.required(job)):
        if limits.spent():
            record_fate(LOAD, Fate(End.TIMEOUT, _BUDGET))
            break
        worker, death = _attempt(group, job, limits, progress)
        if death is None:
            if worker.refusal is not None:
                return worker.refusal
            record_fate(LOAD, Fate(End.CRASHED, "the worker ended before its job was done."))
            break
        if limits.spent():
            continue
        suspects = [worker.over] if worker.over is not None else worker.suspects()
        group.write({"type": "died", "at": suspects, "reason": death.reason})
        deaths.update(suspects)
        in_a_row = 0 if worker.finished else in_a_row
        if worker.over is not None or len(suspects) == 1 or job.plan.apart:
            for culprit in (unit for unit in suspects if deaths[unit] > 1 or unit == worker.over):
                in_a_row += 1
                record_fate(LOAD if in_a_row >= _IN_A_ROW else culprit, _fate(death, worker.over))
                job = placeholders.without(job, culprit)
        job = job.planned(apart=True)
    return None


def _fate(death: Death, over: Unit | None) -> Fate:
    if over is not None:
        said = "it exceeded the time limit of a case (engine.case_limit)."
        return Fate(End.TIMEOUT, said, lost=False)
    return Fate(End.TIMEOUT if death.hung else End.CRASHED, death.reason)


def _attempt(
    group: Group, job: Job, limits: Limits, progress: Callable[[Unit], None]
) -> tuple[_Worker, Death | None]:
    """Run the unfinished units of a job in one worker."""
    worker = _Worker(group, job.remote, progress)
    missing = {units.STAGE_OF[unit[0]] for unit in units.required(job) if unit not in group.done}
    stages = tuple(stage for stage in job.plan.stages if stage in missing)
    rest = units.for_worker(job.planned(stages=stages), group.done)
    death = supervise(rest, worker.take, time_limit=limits.silence, deadline=limits.deadline)
    return worker, death


def _unit(names: list[Any]) -> Unit:
    if not names or not all(isinstance(name, str) for name in names):
        raise Garbage(f"{json.dumps(names)[:80]} is not the name of a unit")
    return tuple(names)
