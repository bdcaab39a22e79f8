"""Jobs in processes that a Hydra launcher starts, here or on another machine.

A launcher pickles the function that it is given, by name where it can, and the process that reads
it back looks for that name in its own working folder first. So the function is one that goes by
value and loads this package from its place.
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
    """What a launcher is to run for each job of a command."""
    load, home = processes.LOAD, str(processes.HOME)
    module = __name__.partition(".")[2]
    said = asdict(command)

    def launched(composed: DictConfig) -> None:
        import importlib

        space: dict[str, Any] = {}
        exec(load, space)
        found = importlib.import_module(f"{space['load'](home)}.{module}")
        found.run(said, invocation, composed)

    launched.__module__ = "__main__"  # what makes pickling take it by value
    return launched


def run(said: dict[str, Any], invocation: str, composed: DictConfig) -> None:
    """One job, in a process of a launcher's; an exception that leaves it is the launcher's.

    `said` is the command, and `invocation` what all processes of one command share.
    """
    command = Command(**said)
    os.environ[INVOCATION] = invocation
    os.chdir(command.folder)
    settings = compose.settings(compose.typed(composed))
    deadline = time.monotonic() + (settings.run.budget or math.inf)
    execute.execute(settings, command, deadline, name=job_name(command), keep_refused=True)
