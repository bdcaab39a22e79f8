"""What a command's arguments say before Hydra composes them: flags, keys, jobs of a sweep."""

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
    """What the command says of a key; a value in single quotes is taken out of them."""
    given = [o.partition("=")[2] for o in overrides if o.startswith(f"{key}=")]
    return resume.unquoted(given[-1]) if given else None


def shown(arguments: Sequence[str]) -> str | None:
    """The flag by which Hydra only shows something and runs nothing, if there is one."""
    return next((flag for flag in ("-c", "--cfg", "-i", "--info") if flag in arguments), None)


def many(arguments: Sequence[str]) -> bool:
    return bool({"-m", "--multirun"} & set(arguments))


def among_shards(arguments: Sequence[str]) -> bool:
    """Whether the command does one shard of each of its jobs, and others do the others."""
    index = given(arguments, "shard.index")
    alone = not many(arguments) or (index or "").isdecimal()
    return alone and given(arguments, "shard.count") is not None


def jobs(arguments: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The jobs of a command, each as the overrides that are its own; of a plain one none.

    Those of shards that other commands do are among them.
    """
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    if among_shards(arguments):
        overrides = [o for o in overrides if not o.startswith("shard.index=")]
        overrides.append(f"shard.index=range({given(arguments, 'shard.count')})")
    elif not many(arguments):
        return ()
    with contextlib.suppress(HydraException):  # said once the command is composed
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
    """Which of a command's jobs this process is at; empty where there is but one."""
    task = {*HydraConfig.get().overrides.task}
    return next((" ".join(job) for job in command.jobs if task.issuperset(job)), "")


def results_dir(overrides: Sequence[str]) -> str:
    return given(overrides, "results_dir") or Settings.results_dir
