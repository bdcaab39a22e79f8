"""The commands behind `__main__`: compose the configuration, run the jobs, close the run."""

from __future__ import annotations

import contextlib
import datetime
import errno
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import hydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from pipeline import config, journal, prefix, resume, run, sources, summary
from pipeline.errors import ConfigError, PipelineError, ResultsError
from pipeline.journal import Command
from pipeline.visible import visible

_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)

_GROUPS = (
    *("model", "tokenizer", "grammar", "builder", "target", "runtime", "experiment", "debug"),
)


def run_command(name: str, arguments: list[str]) -> int:
    """`run` or `audit` with Hydra overrides, or `run resume=RUN`; the exit code."""
    config.register()
    try:
        command = _command(name, arguments)
        return _Sweep(command).run()
    except PipelineError as error:
        return _complain(error)
    except KeyboardInterrupt:
        return _nothing_done(128 + signal.SIGINT)


def _command(name: str, arguments: list[str]) -> Command:
    """The whole command: with its run's name, or as a resumed run has it on record."""
    # Hydra's parser wants all overrides in one piece, so flags such as -m go behind them.
    overrides = [argument for argument in arguments if _is_override(argument)]
    flags = [argument for argument in arguments if not _is_override(argument)]
    if resume.wanted(overrides) is not None:
        return resume.command([*overrides, *flags], _results_dir(overrides))
    if not any(override.lstrip("+").startswith("run.name=") for override in overrides):
        overrides.append(f"run.name={datetime.datetime.now():%Y-%m-%d_%H-%M-%S-%f}")
    if name == "audit":
        overrides.append("stages=[audit]")
    return Command(name, (*overrides, *flags), str(Path.cwd()))


def _results_dir(overrides: list[str]) -> str:
    given = [o.partition("=")[2] for o in overrides if o.startswith("results_dir=")]
    return given[-1] if given else config.Settings.results_dir


class _Sweep:
    """All jobs of one command, and the end of their run."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._many = bool({"-m", "--multirun"} & set(command.arguments))
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
            with contextlib.suppress(KeyboardInterrupt):
                _hydra(self._job, [*self._command.arguments])
            for each in before:
                signal.signal(each, signal.SIG_IGN)  # the tables are being closed
            return self._finish()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _finish(self) -> int:
        if self._fatal is not None:
            raise self._fatal
        if self._errors and not self._used:
            raise self._errors[0]
        if self._signal and not (self._used and journal.held(self._used[-1].folder)):
            return _nothing_done(self._signal)
        if not self._used:
            return 0  # Hydra only printed something, such as --cfg job
        folder = self._used[-1].folder
        manifest = run.finish(folder, self._used[-1], interrupted=bool(self._signal))
        for error in self._errors:
            _complain(error)
        print(summary.console(folder, manifest))
        if self._signal:
            return self._signal
        if manifest["refused"] or self._errors:
            return 2
        return 1 if manifest["lost"] else 0

    def _interrupt(self, number: int, _: object) -> None:
        self._signal = 128 + number  # as shells have it
        raise KeyboardInterrupt

    def _job(self, composed: DictConfig) -> None:
        """One job. An exception that leaves it would end the whole sweep, so errors are kept."""
        if self._fatal is not None:
            return
        settings = None
        try:
            settings = config.settings(composed)
            budget = settings.run.budget
            deadline = None if budget is None else self._begun + budget
            self._used.append(settings)
            run.execute(settings, self._command, deadline, keep_refused=self._many)
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


def _nothing_done(code: int) -> int:
    print("Interrupted before anything was done.", file=sys.stderr)
    return code


def _is_override(argument: str) -> bool:
    return not argument.startswith("-") and ("=" in argument or argument.startswith("~"))


def _hydra(job: Callable[[DictConfig], None], arguments: list[str]) -> None:
    """Run `job` as a Hydra application; what Hydra says against the command becomes ours."""
    sys.argv = ["pipeline", *arguments]
    folder = str(config.data_folder("conf").resolve())
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
        return f"{group}={name} is not known; there is {', '.join(_options(group))}."
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if error.__cause__ is not None:
        lines += [line.strip() for line in str(error.__cause__).splitlines()[:1]]
    said = " ".join(line for line in lines if not line.startswith(("full_key:", "object_type=")))
    return (
        f"{said}. `python -m pipeline --help` shows the keys; quote values with special characters."
    )


def _options(group: str) -> list[str]:
    return sorted(path.stem for path in (config.data_folder("conf") / group).glob("*.yaml"))


def _complain(error: PipelineError) -> int:
    print(visible(f"error: {error}", 4000), file=sys.stderr)
    return 2


def help_screen(exit_codes: str) -> str:
    """The whole program on one screen."""
    groups = "\n".join(_wrapped(f"  {group:11}", ", ".join(_options(group))) for group in _GROUPS)
    schemes = "|".join((prefix.AUTO, *prefix.SpmPrefixScheme))
    return f"""byte-exact: does constrained generation obey its grammar, to the byte?

  python -m pipeline run   [model=…] [tokenizer=…] [grammar=[…]] [builder=[…]] [key=value …]
  python -m pipeline audit [tokenizer=…] …         the token tables only; no weights needed
  python -m pipeline run -m tokenizer=a,b,c        every combination (multirun), one results folder
  python -m pipeline run resume=RUN                what a run that was cut short still lacks
  python -m pipeline compare before.run=… after.run=…   what got worse; compare --help, and
  python -m pipeline baseline save|show                 a baseline to commit and to gate on
  python -m pipeline report                             the latest run as a dashboard; report --help

Groups and their options:
{groups}

Keys (with their defaults): model.path, tokenizer.path, grammar.path (your own files, with =path),
  tokenizer.prefix_scheme={schemes},
  grammar.limit=null, grammar.cases=[], runtime.n_seq=0, runtime.n_threads=0, \
sampling.temperature=0,
  runtime.llama_lib=null, runtime.llguidance_lib=null (libraries of your own), repeats=1, \
sampling.seed=0,
  engine.fast_forward=true, target.url=null, target.command=null, target.label=<program> \
(of a server),
  engine.on_error=drop|stop, engine.max_tokens=null, engine.time_limit=600 (of silence),
  engine.case_limit=120, run.budget=null (seconds), runtime.memory_limit=null (GiB), \
sampling.top_p=1,
  results_dir=results, run.name=<date and time>.   --cfg job shows the whole configuration.

Cache: {sources.cache_dir()}
  (set BYTE_EXACT_CACHE to move it; delete the folder to empty it)
{exit_codes}"""


def _wrapped(head: str, text: str, width: int = 100) -> str:
    import textwrap

    return textwrap.fill(text, width, initial_indent=head, subsequent_indent=" " * len(head))
