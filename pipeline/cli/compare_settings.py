"""The settings of `compare`, `baseline` and `report`: typed, with the override syntax of `run`.

Separate from `runs/parent/settings.py`, because these commands must start fast and not load the
code of runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from hydra import compose, initialize
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..model.errors import ConfigError
from . import hydra_errors


@dataclass
class SideConfig:
    """One side of a comparison."""

    run: str | None = None
    """A folder, a run's name, `latest`, or (before only) `baseline`."""
    builder: str | None = None
    target: str | None = None


@dataclass
class SidesConfig:
    """Two sides, and the differences that are allowed."""

    before: SideConfig = field(default_factory=SideConfig)
    after: SideConfig = field(default_factory=SideConfig)
    run: str | None = None
    """The run of both sides, to compare two of its builders or targets."""
    results_dir: str = "results"
    baseline: str = "baseline.txt"
    """The file used by `before.run=baseline`."""
    allow: list[str] = field(default_factory=list[str])
    """What may differ: suites, vocabulary, model, settings, cases."""


@dataclass
class CompareConfig(SidesConfig):
    """The settings of `compare`."""

    fail_on: str = "regression"
    """Which changes give exit code 1: regression, any_change or never."""
    out: str | None = None
    """A folder for comparison.parquet, .md, .xml, .json and differences.parquet."""
    limit: int = 50
    """Number of lines that the console shows for each kind of change."""


@dataclass
class BaselineConfig:
    """The settings of `baseline`."""

    run: str = "latest"
    """The run whose verdicts are saved."""
    file: str = "baseline.txt"
    results_dir: str = "results"
    allow_regressions: bool = False
    """Save even results that are worse than the existing file."""


@dataclass
class ReportConfig(SidesConfig):
    """The settings of `report`; `run` is the run to show."""

    out: str | None = None
    """The folder of the site; the default is `report` in the results folder."""


_Made = TypeVar("_Made", CompareConfig, BaselineConfig, ReportConfig)


def composed(schema: type[_Made], overrides: list[str], command: str) -> _Made:
    """The typed settings of a command line. Raises ConfigError."""
    ConfigStore.instance().store(name=command, node=schema)
    try:
        with initialize(version_base="1.3", config_path=None):
            made: Any = OmegaConf.to_object(compose(config_name=command, overrides=overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(hydra_errors.in_words(error, command)) from None
    assert isinstance(made, schema)
    return made
