"""Run all jobs of one command, composed by Hydra, here or through a launcher; close the run."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from ..model.errors import ConfigError, PipelineError, ResultsError
from ..results.summary import console
from ..runs.parent import collect, execute, journal
from ..runs.parent.command import INVOCATION, Command, claim, held, share
from ..runs.parent.settings import Settings
from ..system import resources
from . import compose, hydra_errors, launched
from .arguments import among_shards, given, job_name, many, results_dir, shown
from .console import complain

_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


class Sweep:
    """All jobs of one command, and the closing of their run."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._many = many(command.arguments)
        launcher = given(command.arguments, "hydra/launcher") or "basic"
        asked = shown(command.arguments)
        self._launched = self._many and launcher != "basic" and not asked
        """Whether the jobs run in other processes, perhaps on other machines."""
        self._shard = among_shards(command.arguments)
        self._begun = time.monotonic()
        self._used: list[Settings] = []
        self._errors: list[PipelineError] = []
        self._fatal: PipelineError | None = None
        self._signal = 0

    def run(self) -> int:
        """Run every job, then merge their results; returns the exit code."""
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            for each in before:
                signal.signal(each, self._interrupt)
            if self._shard:
                share(self._command)
            with contextlib.suppress(KeyboardInterrupt), self._interruptible():
                self._launch() if self._launched else _hydra(self._job, self._command.arguments)
            for each in before:
                signal.signal(each, signal.SIG_IGN)  # do not interrupt the writing of tables
            return self._finish()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _finish(self) -> int:
        if self._launched:
            return self._close(self._folder)
        if self._fatal is not None:
            raise self._fatal
        if self._errors and not self._used:
            raise self._errors[0]
        if self._signal and not (self._used and held(self._used[-1].folder)):
            return nothing_done(self._signal)
        if not self._used:
            return 0  # Hydra only printed something, such as --cfg job
        return self._close(self._used[-1].folder)

    def _close(self, folder: Path) -> int:
        for error in self._errors:
            complain(error)
        if self._shard:
            print(
                f"This shard's results are in {folder}. When every shard has finished, merge them "
                f"with `python -m pipeline collect run={folder}`."
            )
            return self._signal or (2 if self._errors else 0)
        # A job that a launcher lost may not have started, so only the launcher's error shows it.
        lost = self._launched and bool(self._errors)
        manifest = collect.finish(folder, interrupted=bool(self._signal) or lost)
        print(console.console(folder, manifest))
        if self._signal:
            return self._signal
        if manifest["refused"] or self._errors:
            return 2
        return 1 if manifest["lost"] or manifest["missing"] else 0

    def _launch(self) -> None:
        """Run the jobs through a launcher; their results are in the run's folder."""
        arguments = self._command.arguments
        claim(self._folder, self._command)
        compose.register(typed=False)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray must not send usage statistics
        try:
            _hydra(launched.job(self._command, os.environ[INVOCATION]), arguments)
        except PipelineError as error:
            self._errors.append(error)
        except Exception as error:  # launchers have different exceptions for a dead job
            said = f"a job of the launcher died: {type(error).__name__}: {error}"
            self._errors.append(PipelineError(" ".join(said.split())))
        while journal.groups(self._folder)[1]:  # a launcher returns at the first dead job
            time.sleep(0.5)

    @property
    def _folder(self) -> Path:
        arguments = self._command.arguments
        return Path(results_dir(arguments)) / (given(arguments, "run.name") or "")

    def _interrupt(self, number: int, _: object) -> None:
        self._signal = 128 + number  # as in shells
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def _interruptible(self) -> Generator[None]:
        """Raise KeyboardInterrupt after a signal, even if a library raised another exception."""
        try:
            yield
        except Exception:
            if self._signal:
                raise KeyboardInterrupt from None
            raise

    def _job(self, composed: DictConfig) -> None:
        """Run one job. Stores its errors, because an exception would end the whole sweep."""
        if self._fatal is not None or self._signal:
            return
        settings = None
        try:
            with self._interruptible():
                settings = compose.settings(composed)
                budget = settings.run.budget
                deadline = None if budget is None else self._begun + budget
                self._used.append(settings)
                name = job_name(self._command)
                execute.execute(
                    settings, self._command, deadline, name=name, keep_refused=self._many
                )
        except ResultsError as error:  # the other jobs could not write their results either
            self._fatal = error
        except PipelineError as error:
            self._used = [kept for kept in self._used if kept is not settings]
            self._errors.append(error)
        except Exception as error:
            if not self._many:
                raise
            traceback.print_exc()
            said = f"a job of the sweep failed: {type(error).__name__}: {error}"
            self._errors.append(PipelineError(said))


def nothing_done(code: int) -> int:
    """Report an interruption before the run started; returns `code`."""
    print("Interrupted before the run started.", file=sys.stderr)
    return code


def _hydra(job: Callable[[DictConfig], None], arguments: Sequence[str]) -> None:
    """Run `job` as a Hydra application. Raises ConfigError and ResultsError for Hydra's errors."""
    sys.argv = ["pipeline", *arguments]
    folder = str(resources.data_folder("conf").resolve())
    # A launcher's configuration in `conf/` has the name of its plugin, so Hydra warns about it.
    warnings.filterwarnings("ignore", "(?s).*is validated against ConfigStore schema", UserWarning)
    try:
        hydra.main(version_base="1.3", config_path=folder, config_name="config")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(hydra_errors.in_words(error)) from None
    except OSError as error:  # Hydra creates a sweep's folder before the first job starts
        if error.errno not in _UNWRITABLE:
            raise
        raise ResultsError(
            f"{error.filename or 'The results folder'} cannot be written: {error.strerror}. "
            "Choose another folder with results_dir=…."
        ) from None
