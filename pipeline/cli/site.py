"""The work of `report`: build a site from a run and an optional comparison."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

from ..model.errors import ReportError
from ..results.compare.comparison import Comparison, compare
from ..system.resources import options
from . import gate
from .compare_settings import ReportConfig, composed

PACKAGES = ("altair", "itables", "jinja2", "vl_convert")
"""The packages that the extra `report` installs."""


def build(overrides: list[str]) -> tuple[Path, list[str]]:
    """Build the site; returns (its first page, notes about missing parts of the run).

    Raises PipelineError.
    """
    settings = composed(ReportConfig, overrides, "report")
    if lacking := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise ReportError(
            f"The report needs packages that are not installed ({', '.join(lacking)}). "
            "Install them: pip install -c constraints.txt -e '.[report]'"
        )
    from ..results import report  # its packages are optional
    from ..results.report import run_view  # as above

    results = Path(settings.results_dir)
    settings = _with_run(settings)
    comparison = _comparison(settings)
    out = results / "report" if settings.out is None else Path(settings.out)
    with run_view.open_run(_shown(settings), results) as run:
        files = report.build(run, results, comparison, _known(), out)
        return files[0], run.notes


def _with_run(settings: ReportConfig) -> ReportConfig:
    """The settings with the latest run for a side without one."""
    if settings.run is None and not (settings.before.run and settings.after.run):
        return dataclasses.replace(settings, run=settings.after.run or "latest")
    return settings


def _shown(settings: ReportConfig) -> str:
    return settings.after.run or settings.run or "latest"


def _comparison(settings: ReportConfig) -> Comparison | None:
    """The requested comparison; None if none was requested."""
    asked = [*vars(settings.before).values(), *vars(settings.after).values()]
    if not any(asked):
        return None
    before, after = gate.both(settings)
    return compare(before, after, gate.allowed(settings))


def _known() -> dict[str, frozenset[str]]:
    """The options of `model=`, `tokenizer=`, `grammar=` and `builder=`, by group."""
    groups = ("model", "tokenizer", "grammar", "builder")
    return {group: frozenset(options(group)) for group in groups}
