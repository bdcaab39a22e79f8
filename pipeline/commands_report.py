"""The command `report`. Its help loads neither polars nor Hydra."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.compare import Comparison
    from pipeline.config_compare import ReportConfig

HELP = """python -m pipeline report: a run as a dashboard, which token did it at a glance

  python -m pipeline report                        the latest run
  python -m pipeline report run=RUN out=site
  python -m pipeline report run=RUN before.builder=unfixed after.builder=fixed
  python -m pipeline report before.run=baseline after.run=latest

RUN is a folder, a run's name under results_dir, or latest. The site is files alone: open
index.html. It asks nothing of the network. A run that was cut short is shown as far as it goes.

Keys (with their defaults):
  run=null               the run that is shown: after.run where that is given, else latest
  results_dir=results    where runs are looked for, and what the trend is made of
  out=null               the site's folder (default: report in results_dir); an earlier report
                         there is replaced, anything else is refused
  before.run, before.builder, before.target, after.run, after.builder, after.target
                         the two sides of the page "Before and after"; see compare
  baseline=baseline.txt  the file that before.run=baseline means
  allow=[]               what the sides may differ in; see compare

Exit codes: 0 built, whatever the run holds; 2 usage or input
"""

PACKAGES = ("altair", "itables", "jinja2", "vl_convert")
"""What the extra `report` installs."""


def main(arguments: list[str]) -> int:
    """Build the report; the exit code."""
    from pipeline.errors import PipelineError
    from pipeline.visible import visible

    if {"-h", "--help", "help"} & set(arguments):
        print(HELP)
        return 0
    try:
        first, notes = _report(arguments)
    except PipelineError as error:
        for line in f"error: {error}".splitlines():
            print(visible(line, 2000), file=sys.stderr)
        return 2
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"Report: {first}")
    return 0


def _report(overrides: list[str]) -> tuple[Path, list[str]]:
    """The first page, and what is missing of the run."""
    from pipeline.config_compare import ReportConfig, composed
    from pipeline.errors import ReportError

    settings = composed(ReportConfig, overrides, "report")
    if lacking := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise ReportError(
            f"The report needs packages that are not installed ({', '.join(lacking)}). "
            "Install them: pip install -c constraints.txt -e '.[report]'"
        )
    from pipeline import report
    from pipeline.report import found

    results = Path(settings.results_dir)
    settings = _with_run(settings)
    comparison = _comparison(settings)
    out = results / "report" if settings.out is None else Path(settings.out)
    with found.opened(_shown(settings), results) as run:
        files = report.build(run, results, comparison, _known(), out)
        return files[0], run.notes


def _with_run(settings: ReportConfig) -> ReportConfig:
    """Where a side is not told its run, it is the latest."""
    if settings.run is None and not (settings.before.run and settings.after.run):
        return dataclasses.replace(settings, run=settings.after.run or "latest")
    return settings


def _shown(settings: ReportConfig) -> str:
    return settings.after.run or settings.run or "latest"


def _comparison(settings: ReportConfig) -> Comparison | None:
    """The comparison that was asked for, if one was."""
    asked = [*vars(settings.before).values(), *vars(settings.after).values()]
    if not any(asked):
        return None
    from pipeline import commands_compare, compare

    before, after = commands_compare.both(settings)
    return compare.compare(before, after, commands_compare.allowed(settings))


def _known() -> dict[str, frozenset[str]]:
    """The names that `model=`, `tokenizer=`, `grammar=` and `builder=` take."""
    from pipeline.config import data_folder

    conf = data_folder("conf")
    groups = ("model", "tokenizer", "grammar", "builder")
    return {
        group: frozenset(file.stem for file in (conf / group).glob("*.yaml")) for group in groups
    }
