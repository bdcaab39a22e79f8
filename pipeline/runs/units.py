"""The units of a job: which must be done, and which belong to a shard.

Parent and workers both use this file, so it imports neither polars nor a native library.
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
"""The stage that makes the rows of each kind of unit."""


def required(job: Job) -> Iterator[Unit]:
    """Every unit that must have rows when the job ends, even if it crashed."""
    others = set(job.plan.others)
    for unit in _shared_in_turn(job):
        if unit not in others:
            yield unit
    if "replay" in job.plan.stages:
        for collection in job.plan.collections:
            for name in collection.ids:
                for builder in job.plan.builders:
                    yield ("replay", builder, collection.name, name)


def for_worker(job: Job, done: Collection[Unit]) -> Job:
    """The job as it is sent to a worker: without units that are done or belong to other shards.

    A bitmap marks them, because the names of a hundred thousand cells would take megabytes.
    """
    whole = job.planned(others=(), pending="")
    gone = {*done, *job.plan.others}
    return whole.planned(pending="".join("01"[unit not in gone] for unit in required(whole)))


def pending(job: Job) -> set[Unit]:
    """The units that a worker must do."""
    units = required(job)
    return set(compress(units, map(int, job.plan.pending)) if job.plan.pending else units)


def others(job: Job, count: int, index: int) -> tuple[Unit, ...]:
    """The units, except replays, of all shards other than `index` of `count`."""
    return tuple(unit for n, unit in enumerate(_shared_in_turn(job)) if n % count != index)


def _shared_in_turn(job: Job) -> Iterator[Unit]:
    """The units that shards take in turn, because units of one kind cost about the same."""
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


def balance(costs: Sequence[int], count: int, index: int) -> list[int]:
    """Positions of the items of shard `index` of `count`, in ascending order.

    The costliest items are assigned first, each to the shard with the least work. A tie goes to the
    shard with the lower number, so that every machine computes the same shards.
    """
    heap = [(0, shard) for shard in range(count)]
    mine: list[int] = []
    for place in sorted(range(len(costs)), key=lambda at: (-costs[at], at)):
        load, shard = heapq.heappop(heap)
        heapq.heappush(heap, (load + costs[place] + 1, shard))
        if shard == index:
            mine.append(place)
    return sorted(mine)
