"""The commands behind `__main__`: compose the configuration, run the jobs, close the run."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable

import hydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from pipeline import config, prefix, run, sources, summary
from pipeline.errors import ConfigError, PipelineError, ResultsError

_GROUPS = (
    *("model", "tokenizer", "grammar", "builder", "target", "runtime", "experiment", "debug"),
)


def run_command(command: str, arguments: list[str]) -> int:
    """`run` or `audit` with Hydra overrides; the exit code."""
    config.register()
    sweep = bool({"-m", "--multirun"} & set(arguments))
    # Hydra's parser wants all overrides in one piece, so flags such as -m go behind them.
    overrides = [argument for argument in arguments if _is_override(argument)]
    flags = [argument for argument in arguments if not _is_override(argument)]
    if not any(override.lstrip("+").startswith("run.name=") for override in overrides):
        overrides.append(f"run.name={datetime.datetime.now():%Y-%m-%d_%H-%M-%S-%f}")
    if command == "audit":
        overrides.append("stages=[audit]")
    outcomes: list[run.Outcome] = []
    used: list[config.Settings] = []
    errors: list[PipelineError] = []

    def job(composed: DictConfig) -> None:
        # An exception that leaves a job would end the whole sweep, so errors are kept.
        try:
            settings = config.settings(composed)
            outcomes.append(run.execute(settings, keep_refused=sweep))
            used.append(settings)
        except PipelineError as error:
            errors.append(error)

    try:
        _hydra(job, [*overrides, *flags])
        if errors and not used:
            raise errors[0]
        if not used:
            return 0  # Hydra only printed something, such as --cfg job
        folder = outcomes[-1].folder
        manifest = run.finish(folder, outcomes, used[-1])
    except PipelineError as error:
        return _complain(str(error))
    for error in errors:
        _complain(str(error))
    print(summary.console(folder, manifest))
    if manifest["refused"] or errors:
        return 2
    return 1 if manifest["lost"] else 0


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
    except PermissionError as error:
        raise ResultsError(
            f"{error.filename} cannot be written: {error.strerror}. "
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


def _complain(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


def help_screen(exit_codes: str) -> str:
    """The whole program on one screen."""
    groups = "\n".join(_wrapped(f"  {group:11}", ", ".join(_options(group))) for group in _GROUPS)
    schemes = "|".join((prefix.AUTO, *prefix.SpmPrefixScheme))
    return f"""byte-exact: does constrained generation obey its grammar, to the byte?

  python -m pipeline run   [model=…] [tokenizer=…] [grammar=[…]] [builder=[…]] [key=value …]
  python -m pipeline audit [tokenizer=…] …         the token tables only; no weights needed
  python -m pipeline run -m tokenizer=a,b,c        every combination (multirun), one results folder
  python -m pipeline compare before.run=… after.run=…   what got worse; compare --help, and
  python -m pipeline baseline save|show                 a baseline to commit and to gate on
  python -m pipeline report                             the latest run as a dashboard; report --help

Groups and their options:
{groups}

Keys (with their defaults): model.path, tokenizer.path, grammar.path (your own files, with =path),
  tokenizer.prefix_scheme={schemes},
  grammar.limit=null, grammar.cases=[], runtime.n_seq=0, runtime.n_threads=0,
  runtime.llama_lib=null, runtime.llguidance_lib=null (libraries of your own),
  target.url=null, target.command=null, target.label=<program> (target=server or openai),
  engine.on_error=drop|stop, engine.max_tokens=null, engine.time_limit=600,
  engine.fast_forward=true, sampling.temperature=0, sampling.top_p=1, sampling.seed=0, repeats=1,
  results_dir=results, run.name=<date and time>.   --cfg job shows the whole configuration.

Cache: {sources.cache_dir()}
  (set BYTE_EXACT_CACHE to move it; delete the folder to empty it)
{exit_codes}"""


def _wrapped(head: str, text: str, width: int = 100) -> str:
    import textwrap

    return textwrap.fill(text, width, initial_indent=head, subsequent_indent=" " * len(head))
