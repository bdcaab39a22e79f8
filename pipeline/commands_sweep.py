"""All jobs of one command: composed by Hydra, run here or by a launcher, and their run closed."""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from pipeline import collect, config, journal, resume, run, summary
from pipeline.errors import ConfigError, PipelineError, ResultsError
from pipeline.journal import Command
from pipeline.visible import visible

_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


class Sweep:
    """All jobs of one command, and the end of their run."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._many = many(command.arguments)
        launcher = given(command.arguments, "hydra/launcher") or "basic"
        asked = shown(command.arguments)
        self._launched = self._many and launcher != "basic" and not asked
        """Whether the jobs run in other processes, perhaps on other machines."""
        self._shard = among_shards(command.arguments)
        self._process = os.getpid()
        self._invocation = ""
        self._begun = time.monotonic()
        self._used: list[config.Settings] = []
        self._errors: list[PipelineError] = []
        self._fatal: PipelineError | None = None
        self._signal = 0

    def run(self) -> int:
        """Run every job, then merge what they did; the exit code."""
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            for each in before:
                signal.signal(each, self._interrupt)
            if self._shard:
                journal.share(self._command)
            with contextlib.suppress(KeyboardInterrupt), self._interruptible():
                self._launch() if self._launched else _hydra(self._job, self._command.arguments)
            for each in before:
                signal.signal(each, signal.SIG_IGN)  # the tables are being closed
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
        if self._signal and not (self._used and journal.held(self._used[-1].folder)):
            return nothing_done(self._signal)
        if not self._used:
            return 0  # Hydra only printed something, such as --cfg job
        return self._close(self._used[-1].folder)

    def _close(self, folder: Path) -> int:
        for error in self._errors:
            complain(error)
        if self._shard:
            print(f"Its part is in {folder}; `python -m pipeline collect run={folder}` merges all.")
            return self._signal or (2 if self._errors else 0)
        # Of a job that a launcher lost nothing else may tell: it need not have begun.
        lost = self._launched and bool(self._errors)
        manifest = collect.finish(folder, interrupted=bool(self._signal) or lost)
        print(summary.console(folder, manifest))
        if self._signal:
            return self._signal
        if manifest["refused"] or self._errors:
            return 2
        return 1 if manifest["lost"] or manifest["missing"] else 0

    def _launch(self) -> None:
        """Have a launcher run the jobs elsewhere; what they did is in the run's folder."""
        arguments = self._command.arguments
        journal.claim(self._folder, self._command)
        self._invocation = os.environ[journal.INVOCATION]
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a Ray that is started calls nobody
        try:
            _hydra(self._job, arguments)
        except PipelineError as error:
            self._errors.append(error)
        except Exception as error:  # of whatever kind a launcher has for a job that died
            said = f"a job of the launcher died: {type(error).__name__}: {error}"
            self._errors.append(PipelineError(" ".join(said.split())))
        while journal.groups(self._folder)[1]:  # a launcher gives up at the first death
            time.sleep(0.5)

    @property
    def _folder(self) -> Path:
        arguments = self._command.arguments
        return Path(results_dir(arguments)) / (given(arguments, "run.name") or "")

    def _elsewhere(self, composed: DictConfig) -> None:
        """A job in a process of a launcher's; an exception that leaves it is the launcher's."""
        os.environ[journal.INVOCATION] = self._invocation
        os.chdir(self._command.folder)
        settings = config.settings(composed)
        deadline = time.monotonic() + (settings.run.budget or math.inf)
        name = job_name(self._command)
        run.execute(settings, self._command, deadline, name=name, keep_refused=True)

    def _interrupt(self, number: int, _: object) -> None:
        self._signal = 128 + number  # as shells have it
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def _interruptible(self) -> Generator[None]:
        """An interruption leaves the block as one, though a library make it an error of its own."""
        try:
            yield
        except Exception:
            if self._signal:
                raise KeyboardInterrupt from None
            raise

    def _job(self, composed: DictConfig) -> None:
        """One job. An exception that leaves it would end the whole sweep, so errors are kept."""
        if os.getpid() != self._process:
            return self._elsewhere(composed)
        if self._fatal is not None or self._signal:
            return None
        settings = None
        try:
            with self._interruptible():
                settings = config.settings(composed)
                budget = settings.run.budget
                deadline = None if budget is None else self._begun + budget
                self._used.append(settings)
                name = job_name(self._command)
                run.execute(settings, self._command, deadline, name=name, keep_refused=self._many)
        except ResultsError as error:  # then no other job could be written either
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
    print("Interrupted before anything was done.", file=sys.stderr)
    return code


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
        return value.filter(options(sweep.key_or_group))
    return sweep.sweep_string_iterator()


def job_name(command: Command) -> str:
    """Which of a command's jobs this process is at; empty where there is but one."""
    task = {*HydraConfig.get().overrides.task}
    return next((" ".join(job) for job in command.jobs if task.issuperset(job)), "")


def results_dir(overrides: Sequence[str]) -> str:
    return given(overrides, "results_dir") or config.Settings.results_dir


def _hydra(job: Callable[[DictConfig], None], arguments: Sequence[str]) -> None:
    """Run `job` as a Hydra application; what Hydra says against the command becomes ours."""
    sys.argv = ["pipeline", *arguments]
    folder = str(config.data_folder("conf").resolve())
    # A launcher's configuration here has its plugin's own name, and is checked against its schema.
    warnings.filterwarnings("ignore", "(?s).*is validated against ConfigStore schema", UserWarning)
    try:
        hydra.main(version_base="1.3", config_path=folder, config_name="config")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_plain(error)) from None
    except OSError as error:  # Hydra makes a sweep's folder before any job of ours begins
        if error.errno not in _UNWRITABLE:
            raise
        raise ResultsError(
            f"{error.filename or 'The results folder'} cannot be written: {error.strerror}. "
            "Choose another folder with results_dir=…."
        ) from None


def _plain(error: Exception) -> str:
    """Hydra's message as one paragraph that says what there is."""
    if isinstance(error, MissingConfigException):
        group, _, name = str(error.missing_cfg_file).partition("/")
        return f"{group}={name} is not known; there is {', '.join(options(group))}."
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if error.__cause__ is not None:
        lines += [line.strip() for line in str(error.__cause__).splitlines()[:1]]
    said = " ".join(line for line in lines if not line.startswith(("full_key:", "object_type=")))
    return (
        f"{said}. `python -m pipeline --help` shows the keys; quote values with special characters."
    )


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (config.data_folder("conf") / group).glob("*.yaml"))


def complain(error: PipelineError) -> int:
    print(visible(f"error: {error}", 4000), file=sys.stderr)
    return 2
