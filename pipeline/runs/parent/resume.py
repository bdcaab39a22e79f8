"""Resume an interrupted run: the same command again, without the finished units.

A run is one set of settings over one set of files. If any of them has changed, resuming would mix
two runs in one set of tables. It is then refused, and the message names the difference.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...model.errors import ConfigError, ResultsError
from ...results.tables import run_folder
from .command import Command, reclaim

_KEY = "resume="


def named_run(arguments: Sequence[str]) -> str | None:
    """The run named by `resume=RUN`, or None."""
    return next((a.removeprefix(_KEY) for a in arguments if a.startswith(_KEY)), None)


def command(arguments: Sequence[str], results_dir: str) -> Command:
    """The command that resumes a run; its folder is claimed for this process.

    `resume=latest` means the newest run that is not complete (`run_folder.find`). Besides `resume=`
    and `results_dir=` only arguments that the run already has are allowed. Raises ConfigError for
    other arguments and for a working folder that cannot be entered.
    """
    named = named_run(arguments) or ""
    folder = run_folder.find(named, Path(results_dir), unfinished=True).absolute()
    then = reclaim(folder)
    extra = [a for a in arguments if not a.startswith((_KEY, "results_dir="))]
    for argument in extra:
        if argument not in then.arguments:
            key = argument.partition("=")[0]
            had = [a for a in then.arguments if a.partition("=")[0] == key]
            raise ConfigError(
                f"resume uses the settings of the run, and {argument} is not one of them: "
                f"the run has {had[0] if had else f'no {key}'}. Leave it out, or start a new run."
            )
    try:
        os.chdir(then.folder)
    except OSError as error:
        raise ConfigError(
            f"{folder} was started in the folder {then.folder}, which cannot be entered: "
            f"{error.strerror}. Relative paths of its command start in that folder."
        ) from None
    kept = [a for a in then.arguments if not a.startswith(("run.name=", "results_dir="))]
    flags = [a for a in kept if a.startswith("-")]
    overrides = [a for a in kept if a not in flags]
    overrides += [f"run.name={_quoted(folder.name)}", f"results_dir={_quoted(str(folder.parent))}"]
    return Command(then.name, (*overrides, *flags), then.folder, then.jobs)


def check_same(then: Mapping[str, str], now: Mapping[str, str], folder: Path) -> None:
    """Raise ResultsError if something that a group's rows depend on has changed since it began."""
    for key in sorted({*then, *now}):
        before, after = then.get(key, "not set"), now.get(key, "not set")
        if before != after:
            raise ResultsError(
                f"{folder} cannot be resumed: {key} was {before} and is now {after}. Change it "
                "back, or start a new run."
            )


def _quoted(text: str) -> str:
    """A value quoted for Hydra's grammar."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def unquoted(value: str) -> str:
    """The inverse of `_quoted`; a value without quotes stays as it is."""
    if len(value) < 2 or not value[0] == value[-1] == "'":
        return value
    return value[1:-1].replace("\\'", "'").replace("\\\\", "\\")
