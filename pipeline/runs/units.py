"""What a job owes, unit by unit, and which of it is a shard's.

Parent and workers read it alike: neither polars nor a native library is imported here.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from itertools import compress, product

from ..model.names import Unit
from .protocol import Job, repeats

STAGE_OF = {
    "prefix": "audit",
    "engine": "audit",
    "audit": "audit",
    "walks": "audit",
    "cell": "generate",
    "replay": "replay",
}
"""The stage that brings a kind of unit to its rows."""


def owed(job: Job) -> Iterator[Unit]:
    """Every unit that a job must end with rows for, whatever happens."""
    others = set(job.plan.others)
    for unit in _dealt(job):
        if unit not in others:
            yield unit
    if "replay" in job.plan.stages:
        for collection in job.plan.collections:
            for name in collection.ids:
                for builder in job.plan.builders:
                    yield ("replay", builder, collection.name, name)


def less(job: Job, done: Collection[Unit]) -> Job:
    """The job as a worker is told it: without the units that are done, or other shards' to do.

    They are marked, not named: of a hundred thousand cells the names are megabytes.
    """
    whole = job.planned(others=(), pending="")
    gone = {*done, *job.plan.others}
    return whole.planned(pending="".join("01"[unit not in gone] for unit in owed(whole)))


def pending(job: Job) -> set[Unit]:
    """What a worker is to do of the job that it was told."""
    return set(compress(owed(job), map(int, job.plan.pending)) if job.plan.pending else owed(job))


def others(job: Job, count: int, index: int) -> tuple[Unit, ...]:
    """The units but for replay that fall to other shards than `index` of `count`."""
    return tuple(unit for n, unit in enumerate(_dealt(job)) if n % count != index)


def _dealt(job: Job) -> Iterator[Unit]:
    """The units that are dealt out in turn: those of a kind cost about the same."""
    if "audit" in job.plan.stages:
        yield ("prefix",)
        for engine in job.audit.engines:
            yield ("engine", engine)
        for kind in ("walks", "audit"):
            for builder in job.plan.builders:
                yield (kind, builder)
    if "generate" in job.plan.stages:
        for suite in job.plan.suites:
            for case in suite.cases:
                for builder, repeat in product(job.plan.builders, repeats(job.repeats)):
                    one_of = () if repeat is None else (f"{repeat}",)
                    yield ("cell", builder, suite.name, case, *one_of)


def even(costs: Sequence[int], count: int, index: int) -> list[int]:
    """The places of what falls to shard `index` of `count`: the dearest first, to the emptiest.

    Ties go to the lower number, so that every machine deals alike.
    """
    heap = [(0, shard) for shard in range(count)]
    mine: list[int] = []
    for place in sorted(range(len(costs)), key=lambda at: (-costs[at], at)):
        load, shard = heapq.heappop(heap)
        heapq.heappush(heap, (load + costs[place] + 1, shard))
        if shard == index:
            mine.append(place)
    return sorted(mine)
