"""The commands `run` and `audit`."""

from __future__ import annotations

import datetime
import signal
from pathlib import Path

from ..model.errors import ConfigError, PipelineError
from ..runs.parent import resume
from ..runs.parent.command import Command
from . import compose
from .arguments import given, jobs, many, results_dir, shown
from .console import complain
from .sweep import Sweep, nothing_done


def run_command(name: str, arguments: list[str]) -> int:
    """Run `run` or `audit` with Hydra overrides, or `run resume=RUN`; returns the exit code."""
    compose.register()
    try:
        command = _command(name, arguments)
        return Sweep(command).run()
    except PipelineError as error:
        return complain(error)
    except KeyboardInterrupt:
        return nothing_done(128 + signal.SIGINT)


def _command(name: str, arguments: list[str]) -> Command:
    """The complete command: with a run name, or as recorded by the run to resume."""
    # Hydra's parser needs all overrides in a row, so flags such as -m come after them.
    overrides = [argument for argument in arguments if _is_override(argument)]
    flags = [argument for argument in arguments if not _is_override(argument)]
    if resume.named_run(overrides) is not None:
        return resume.command([*overrides, *flags], results_dir(overrides))
    if not any(override.lstrip("+").startswith("run.name=") for override in overrides):
        overrides.append(f"run.name={datetime.datetime.now():%Y-%m-%d_%H-%M-%S-%f}")
    if name == "audit":
        overrides.append("stages=[audit]")
    if many(flags) and (flag := shown(flags)):
        raise ConfigError(f"{flag} shows the settings of a single job: remove -m.")
    count = given(overrides, "shard.count")
    if many(flags) and count and given(overrides, "shard.index") is None:
        overrides.append(f"shard.index=range({count})")
    elif count and given(overrides, "shard.index") is None:
        overrides.append("shard.index=0")
    given_all = (*overrides, *flags)
    return Command(name, given_all, str(Path.cwd()), jobs(given_all))


def _is_override(argument: str) -> bool:
    return not argument.startswith("-") and ("=" in argument or argument.startswith("~"))
