"""Run jobs: each job is a group, each group has a journal, and journals become tables.

Every result takes the same path: a worker's rows are written to the journal of its group, and all
journals of a run are merged once, at the end (`collect.finish`). A multirun is several jobs in one
run folder. A resumed run is the same command again, without the units that are in its journals.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from tqdm import tqdm

from ...model.errors import ConfigError, InputRefused, SourceError
from ...model.names import Unit
from ...model.verdicts import End
from ...system import provenance
from ...system.text import visible
from .. import units
from ..protocol import Job
from . import attempts, journal, placeholders, plan, resume
from .attempts import Limits
from .command import Command, claim, release
from .journal import Group, group_path
from .placeholders import Fate
from .settings import Settings

_started_groups: set[Path] = set()
"""Groups that this process has started."""


@dataclass(frozen=True)
class Outcome:
    """How one job went."""

    folder: Path
    refusal: str | None = None
    """Why the job's input could not be used."""


def execute(
    settings: Settings,
    command: Command,
    deadline: float | None,
    *,
    name: str = "",
    keep_refused: bool,
) -> Outcome:
    """Run one job: all cells of one model and one tokenizer that are not done yet.

    If its input cannot be used, a `PipelineError` is raised and the group is removed. With
    `keep_refused` (a multirun), or if units are already done, the other cells become `load_refused`
    instead. But a missing source of a resumed job raises an error, and the group is kept.
    `deadline` is the `time.monotonic()` at which `run.budget` is spent; `name` is the name of the
    job within its command.
    """
    chosen = plan.chosen(settings)
    index, count = settings.shard.index, settings.shard.count
    job = plan.shard(plan.job(settings, chosen), chosen, count, index)
    claim(settings.folder, command)
    path = group_path(settings.folder, job, index, count)
    if path in _started_groups:
        raise ConfigError(
            f"two jobs of this run have the model {job.model} and the tokenizer {job.tokenizer}; "
            "give the files different names."
        )
    _started_groups.add(path)
    with journal.locked(path) as mine:
        if not mine:
            raise ConfigError(f"{path} is being written by another process. Wait until that ends.")
        group, identity = Group(path), _identity(settings, job, chosen.hashes)
        todo = _Todo(group, job, identity, name)
        return _finish_group(todo, settings, deadline, keep_refused)


@dataclass(frozen=True)
class _Todo:
    """A job and its group."""

    group: Group
    job: Job
    identity: dict[str, str]
    name: str
    """Name of the job within its command."""

    def begin(self, job: Job) -> None:
        self.group.begin(job, self.identity, self.name)


def _finish_group(
    todo: _Todo, settings: Settings, deadline: float | None, keep_refused: bool
) -> Outcome:
    """Do the unfinished units of a group and close it."""
    group, job, identity = todo.group, todo.job, todo.identity
    if group.identity:
        resume.check_same(group.identity, identity, settings.folder)
        if group.closed:
            return Outcome(settings.folder, group.refused)
    limits = Limits(settings.engine.time_limit, deadline)
    try:
        refusal = _work(todo, settings, limits)
    except (SourceError, InputRefused) as error:
        if not keep_refused and not group.done:
            _discard(group)
            raise
        if group.done and isinstance(error, SourceError):
            raise  # the source was there before and may come back, so the run stays resumable
        refusal = str(error)
    if refusal is not None:
        todo.begin(job)
        for unit in units.required(job):
            group.finish(unit, placeholders.rows(job, unit, Fate(End.LOAD_REFUSED, refusal)))
    group.close(refusal)
    return Outcome(settings.folder, refusal)


def _work(todo: _Todo, settings: Settings, limits: Limits) -> str | None:
    """Run a group's job; returns None. Raises InputRefused or SourceError for unusable input."""
    group, job = todo.group, todo.job
    for again in (False, True):  # the second pass is for files that disappeared in the first
        job = plan.with_files(job, settings)
        todo.begin(job)
        required = set(units.required(job))
        with tqdm(
            total=len(required),
            initial=len(required & group.done),
            desc=visible(f"{job.model}/{job.tokenizer}"),
            unit="unit",
            leave=False,
        ) as bar:

            def progress(_: Unit, bar: Any = bar) -> None:
                bar.update()

            refusal = attempts.work(group, job, limits, progress)
        if refusal is None:
            return None
        if again or all(Path(ref.path).exists() for ref in (job.weights, job.tokens) if ref):
            raise InputRefused(refusal)
    raise AssertionError("the second pass returns or raises")


def _identity(settings: Settings, job: Job, hashes: dict[str, str]) -> dict[str, str]:
    """Everything that a group's rows depend on: values by display name; see `resume.check_same`."""
    found = dict(provenance.versions()) | {"commit": provenance.commit() or "none"}
    values = asdict(settings)
    for key in ("run", "results_dir"):
        del values[key]
    found |= _flat(values)
    found |= hashes
    for path in (job.audit.walks_suite, job.audit.strings_suite):
        if path is not None:
            found[f"suite file {path}"] = provenance.file_sha256(Path(path))[:16]
    return found


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as `engine.max_tokens` → text."""
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flat(cast(dict[str, Any], value), f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = json.dumps(value)
    return found


def _discard(group: Group) -> None:
    """Remove a group without rows, and the run folder if it is then empty."""
    group.path.unlink(missing_ok=True)
    parts = group.path.parent
    if not list(parts.glob("*.jsonl")):
        release(parts.parent)
        shutil.rmtree(parts)
        with contextlib.suppress(OSError):
            parts.parent.rmdir()
