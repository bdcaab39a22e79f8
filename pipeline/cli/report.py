"""The command `report`: its help, and what it answers to the shell."""

from __future__ import annotations

import sys

from ..model.errors import PipelineError
from .console import complain_by_line

_HELP = """python -m pipeline report: a run as a dashboard, which token did it at a glance

  python -m pipeline report                        the latest run
  python -m pipeline report run=RUN out=site
  python -m pipeline report run=RUN before.builder=unfixed after.builder=fixed
  python -m pipeline report before.run=baseline after.run=latest

RUN is a folder, a run's name under results_dir, or latest: the newest run. The site is files
alone: open index.html. It asks nothing of the network. A run that was cut short is shown as far as
it goes.

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


def main(arguments: list[str]) -> int:
    """Build the report; the exit code."""
    if {"-h", "--help", "help"} & set(arguments):
        print(_HELP)
        return 0
    from . import site  # loads polars and Hydra, which the help does without

    try:
        first, notes = site.build(arguments)
    except PipelineError as error:
        return complain_by_line(error)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"Report: {first}")
    return 0
