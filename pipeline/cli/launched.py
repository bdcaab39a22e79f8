"""Jobs in processes that a Hydra launcher starts, on this machine or another.

A launcher pickles its function, by name if possible. The process that unpickles it searches its
working folder for that name first. So the function here is pickled by value and loads this package
from its folder.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from omegaconf import DictConfig

from ..runs.parent import execute
from ..runs.parent.command import INVOCATION, Command
from ..system import processes
from . import compose
from .arguments import job_name


def job(command: Command, invocation: str) -> Callable[[DictConfig], None]:
    """The function that a launcher runs for each job of a command."""
    load, home = processes.LOAD, str(processes.HOME)
    module = __name__.partition(".")[2]
    said = asdict(command)

    def launched(composed: DictConfig) -> None:
        import importlib

        space: dict[str, Any] = {}
        exec(load, space)
        found = importlib.import_module(f"{space['load'](home)}.{module}")
        found.run(said, invocation, composed)

    launched.__module__ = "__main__"  # so that it is pickled by value
    return launched


def run(said: dict[str, Any], invocation: str, composed: DictConfig) -> None:
    """Run one job in a process of a launcher, which handles any exception.

    `said` is the command as a dict; `invocation` is the id that all its processes share.
    """
    command = Command(**said)
    os.environ[INVOCATION] = invocation
    os.chdir(command.folder)
    settings = compose.settings(compose.typed(composed))
    deadline = time.monotonic() + (settings.run.budget or math.inf)
    execute.execute(settings, command, deadline, name=job_name(command), keep_refused=True)
