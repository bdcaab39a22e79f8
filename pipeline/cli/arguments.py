"""Read a command's arguments before Hydra composes them: flags, keys, jobs of a sweep."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Sequence

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException

from ..runs.parent import resume
from ..runs.parent.command import Command
from ..runs.parent.settings import Settings
from ..system import resources


def given(overrides: Sequence[str], key: str) -> str | None:
    """The value of a key's last override, without single quotes; None if not given."""
    given = [o.partition("=")[2] for o in overrides if o.startswith(f"{key}=")]
    return resume.unquoted(given[-1]) if given else None


def shown(arguments: Sequence[str]) -> str | None:
    """The flag that makes Hydra print something instead of running; None if not given."""
    return next((flag for flag in ("-c", "--cfg", "-i", "--info") if flag in arguments), None)


def many(arguments: Sequence[str]) -> bool:
    """Whether the command is a multirun."""
    return bool({"-m", "--multirun"} & set(arguments))


def among_shards(arguments: Sequence[str]) -> bool:
    """Whether the command runs one shard of each job, and other commands run the other shards."""
    index = given(arguments, "shard.index")
    one_shard = not many(arguments) or (index or "").isdecimal()
    return one_shard and given(arguments, "shard.count") is not None


def jobs(arguments: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The jobs of a sweep, each as its own overrides; empty for a command with one job.

    Includes the jobs of shards that other commands run.
    """
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    if among_shards(arguments):
        overrides = [o for o in overrides if not o.startswith("shard.index=")]
        overrides.append(f"shard.index=range({given(arguments, 'shard.count')})")
    elif not many(arguments):
        return ()
    with contextlib.suppress(HydraException):  # reported later, when the command is composed
        swept = [
            [f"{one.get_key_element()}={value}" for value in _values(one)]
            for one in OverridesParser.create().parse_overrides(overrides)
            if one.is_sweep_override()
        ]
        return tuple(itertools.product(*swept)) if swept else ()
    return ()


def _values(sweep: Override) -> Iterable[str]:
    value = sweep.value()
    if isinstance(value, Glob):
        return value.filter(resources.options(sweep.key_or_group))
    return sweep.sweep_string_iterator()


def job_name(command: Command) -> str:
    """The name of the job that this process runs; empty if the command has only one."""
    task = {*HydraConfig.get().overrides.task}
    return next((" ".join(job) for job in command.jobs if task.issuperset(job)), "")


def results_dir(overrides: Sequence[str]) -> str:
    """The results folder of a command."""
    return given(overrides, "results_dir") or Settings.results_dir
