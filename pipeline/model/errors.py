"""The errors of each step, and how each one ends.

| step                         | error             | ends as                          |
|------------------------------|-------------------|----------------------------------|
| reading the command line     | `ConfigError`     | exit 2                           |
| finding or fetching a file   | `SourceError`     | exit 2                           |
| reading a suite file         | `SuiteError`      | exit 2                           |
| writing the results folder   | `ResultsError`    | exit 2; `resume=RUN` continues   |
| resuming a run that differs  | `ResultsError`    | exit 2, with the difference      |
| reading a run's tables       | `TablesError`     | exit 2                           |
| comparing two sides          | `CompareError`    | exit 2                           |
| building the report          | `ReportError`     | exit 2                           |
| loading a GGUF (worker)      | `LoadRefused`     | exit 2; in a multirun the        |
|                              | → `InputRefused`  | verdict `load_refused`           |
| building a token table       | `BuilderRefused`  | verdict `builder_refused`        |
| tokenizing by a builder      | `TokenizeRaised`  | `thrown` in the table exactness  |
| the native process crashes   | none              | retried alone; after a second    |
|                              |                   | crash `crashed` or `timeout`     |
| malformed worker message     | `Garbage`         | same as a crash                  |
| a time limit is reached      | none              | verdict `timeout`                |
| Ctrl-C, SIGTERM              | KeyboardInterrupt | tables of the finished units, a  |
|                              |                   | manifest `interrupted`, exit 130 |
|                              |                   | or 143; `resume=RUN` continues   |

The message of an error that a user can cause is one paragraph: what is wrong, where, and what to
do next. It is printed without a traceback.
"""

from __future__ import annotations

import traceback
from pathlib import PurePath


class PipelineError(Exception):
    """An error that a user can cause and fix; its text is shown unchanged."""


class ConfigError(PipelineError):
    """The command line or a file under `conf/` has an unknown, invalid or contradictory value."""


class SourceError(PipelineError):
    """A model, tokenizer or package file is missing, damaged or cannot be fetched."""


class SuiteError(PipelineError):
    """A suite file or a collection cannot be read, or its content is not valid."""


class ResultsError(PipelineError):
    """The results folder cannot be written, or holds something that must not be overwritten."""


class TablesError(PipelineError):
    """A run's tables are missing, damaged, cut short, or of a version that cannot be read."""


class CompareError(PipelineError):
    """Two sides cannot be compared: one is missing or incomplete, or they differ.

    They must agree in suites, vocabulary, model and settings, except for those that `allow` names.
    """


class ReportError(PipelineError):
    """The report cannot be built: packages are missing, or its folder holds something else."""


class InputRefused(PipelineError):
    """A worker could not use its input; raised in the parent with the worker's message."""


class LoadRefused(Exception):
    """llama.cpp refused a GGUF; the text is its last log messages."""


class BuilderRefused(Exception):
    """A builder cannot make a token table of this vocabulary; the text says why."""

    def __init__(self, why: str, made_by: str = "") -> None:
        super().__init__(why)
        self.made_by = made_by
        """The released package and its version; empty if unknown."""


class TokenizeRaised(Exception):
    """A builder's tokenization raised an exception, or returned an id that does not exist."""


def described(error: BaseException) -> str:
    """An exception of foreign code in one line: its type, its words, its file and line."""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return said
    return f"{said} ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})"
