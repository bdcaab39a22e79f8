"""The commands `run` and `audit` behind `__main__`, and the help."""

from __future__ import annotations

import datetime
import signal
import textwrap
from pathlib import Path

from ..model.errors import ConfigError, PipelineError
from ..runs.parent import resume
from ..runs.parent.command import Command
from ..system.resources import options
from ..vocab import prefix_schemes
from ..vocab.files import source
from . import compose
from .arguments import given, jobs, many, results_dir, shown
from .console import complain
from .sweep import Sweep, nothing_done

_GROUPS = (
    *("model", "tokenizer", "grammar", "builder", "target", "runtime", "experiment", "debug"),
)


def run_command(name: str, arguments: list[str]) -> int:
    """`run` or `audit` with Hydra overrides, or `run resume=RUN`; the exit code."""
    compose.register()
    try:
        command = _command(name, arguments)
        return Sweep(command).run()
    except PipelineError as error:
        return complain(error)
    except KeyboardInterrupt:
        return nothing_done(128 + signal.SIGINT)


def _command(name: str, arguments: list[str]) -> Command:
    """The whole command: with its run's name, or as a resumed run has it on record."""
    # Hydra's parser wants all overrides in one piece, so flags such as -m go behind them.
    overrides = [argument for argument in arguments if _is_override(argument)]
    flags = [argument for argument in arguments if not _is_override(argument)]
    if resume.wanted(overrides) is not None:
        return resume.command([*overrides, *flags], results_dir(overrides))
    if not any(override.lstrip("+").startswith("run.name=") for override in overrides):
        overrides.append(f"run.name={datetime.datetime.now():%Y-%m-%d_%H-%M-%S-%f}")
    if name == "audit":
        overrides.append("stages=[audit]")
    if many(flags) and (flag := shown(flags)):
        raise ConfigError(f"{flag} shows the settings of one job: leave out -m.")
    count = given(overrides, "shard.count")
    if many(flags) and count and given(overrides, "shard.index") is None:
        overrides.append(f"shard.index=range({count})")
    elif count and given(overrides, "shard.index") is None:
        overrides.append("shard.index=0")
    given_all = (*overrides, *flags)
    return Command(name, given_all, str(Path.cwd()), jobs(given_all))


def _is_override(argument: str) -> bool:
    return not argument.startswith("-") and ("=" in argument or argument.startswith("~"))


_KEYS = """\
model.path, tokenizer.path, grammar.path (your own files, with =path),
tokenizer.prefix_scheme={schemes}, grammar.limit=null, grammar.sample=null, grammar.seed=0,
grammar.cases=[], grammar.prompt="One example:", grammar.constraint=null,
shard.count=1, shard.index=0, hydra/launcher={launchers} (with -m),
stages=[audit,generate,replay], runtime.n_seq=0, runtime.n_threads=0,
runtime.memory_limit=null (GiB), runtime.llama_lib=null,
runtime.llguidance_lib=null, target.url=null, target.command=null, target.label=<program>,
sampling.temperature=0, sampling.top_p=1, sampling.seed=0, repeats=1, engine.fast_forward=true,
engine.on_error=drop|stop, engine.max_tokens=null, engine.time_limit=600 (of silence),
engine.case_limit=120, run.budget=null (seconds), results_dir=results, run.name=<date and time>"""


def help_screen(exit_codes: str) -> str:
    """The whole program on one screen."""
    groups = "\n".join(_wrapped(f"  {group:11}", ", ".join(options(group))) for group in _GROUPS)
    launchers = "|".join(options("hydra/launcher"))
    schemes = "|".join((prefix_schemes.AUTO, *prefix_schemes.SpmPrefixScheme))
    keys = _wrapped("  ", _KEYS.format(schemes=schemes, launchers=launchers))
    return f"""byte-exact: does constrained generation obey its grammar, to the byte?

  python -m pipeline run   [model=…] [tokenizer=…] [grammar=[…]] [builder=[…]] [key=value …]
  python -m pipeline audit [tokenizer=…] …         the token tables only; no weights needed
  python -m pipeline run -m tokenizer=a,b,c        every combination (multirun), one results folder
  python -m pipeline run resume=RUN, collect run=RUN    what a run lacks; the parts of its shards
  python -m pipeline compare before.run=… after.run=…   what got worse; compare --help, and
  python -m pipeline baseline save|show, report         a baseline to gate on; a run's dashboard

Groups and their options:
{groups}

Keys (with their defaults; --cfg job shows the whole configuration):
{keys}

Cache (BYTE_EXACT_CACHE moves it; delete the folder to empty it): {source.cache_dir()}
{exit_codes}"""


def _wrapped(head: str, text: str, width: int = 108) -> str:
    blank = " " * len(head)
    return textwrap.fill(
        text, width, initial_indent=head, subsequent_indent=blank, break_on_hyphens=False
    )
