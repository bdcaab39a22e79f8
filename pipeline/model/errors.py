"""What can go wrong, by the step that meets it, and what the user is told.

| step                         | error             | ends as                          |
|------------------------------|-------------------|----------------------------------|
| reading the command line     | `ConfigError`     | exit 2                           |
| finding or fetching a file   | `SourceError`     | exit 2                           |
| reading a suite file         | `SuiteError`      | exit 2                           |
| writing the results folder   | `ResultsError`    | exit 2; `resume=RUN` goes on     |
| resuming a run that differs  | `ResultsError`    | exit 2, the difference named     |
| reading a run's tables       | `TablesError`     | exit 2                           |
| pairing two sides            | `CompareError`    | exit 2                           |
| building the report          | `ReportError`     | exit 2                           |
| loading a GGUF (worker)      | `LoadRefused`     | exit 2, or in a multirun the     |
|                              | → `InputRefused`  | verdict `load_refused`           |
| building a token table       | `BuilderRefused`  | verdict `builder_refused`        |
| death of the native process  | none is raised    | tried again apart; what dies     |
|                              |                   | twice: `crashed` or `timeout`    |
| garbage from the worker      | `Garbage`         | as a death                       |
| a limit of time or budget    | none is raised    | verdict `timeout`                |
| Ctrl-C, SIGTERM              | KeyboardInterrupt | tables of what was done, a       |
|                              |                   | manifest `interrupted`, exit 130 |
|                              |                   | or 143; `resume=RUN` goes on     |

An error a user can cause carries one paragraph: what is wrong, where, and what to do next.
It is printed without a traceback.
"""


class PipelineError(Exception):
    """An error a user can cause and mend; its text is shown as it is."""


class ConfigError(PipelineError):
    """The command line or a file under `conf/` asks for something that does not exist or fit."""


class SourceError(PipelineError):
    """A model, tokenizer or package file is missing, damaged or cannot be fetched."""


class SuiteError(PipelineError):
    """A suite file is not what a suite file must be."""


class ResultsError(PipelineError):
    """The results folder cannot be written, or holds something that must not be overwritten."""


class TablesError(PipelineError):
    """A run's tables are missing, damaged, cut short, or of a version that cannot be read."""


class CompareError(PipelineError):
    """Two sides that must not be compared: not there, not whole, or not alike."""


class ReportError(PipelineError):
    """The report cannot be built: packages are missing, or its folder holds something else."""


class InputRefused(PipelineError):
    """A worker could not use what it was given; raised in the parent, in the worker's words."""


class LoadRefused(Exception):
    """llama.cpp refused a GGUF; the text is its own last message."""


class BuilderRefused(Exception):
    """A builder cannot make a token table of this vocabulary; the text says why."""

    def __init__(self, why: str, made_by: str = "") -> None:
        super().__init__(why)
        self.made_by = made_by
        """The released package and its version, where it is known."""
