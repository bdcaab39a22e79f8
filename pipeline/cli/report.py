"""The command `report`: its help and exit codes."""

from __future__ import annotations

import sys

from ..model.errors import PipelineError
from .console import complain_by_line

_HELP = """python -m pipeline report: build an HTML dashboard with the tokens that caused failures

  python -m pipeline report                        the latest run
  python -m pipeline report run=RUN out=site
  python -m pipeline report run=RUN before.builder=unfixed after.builder=fixed
  python -m pipeline report before.run=baseline after.run=latest

RUN is a folder, a run's name under results_dir, or latest: the newest run. The site consists of
static files: open index.html. It needs no network. For an interrupted run it shows the finished
part.

Keys (with their defaults):
  run=null               the run to show (default: after.run if given, else latest)
  results_dir=results    the folder with the runs; the trend uses all of them
  out=null               the site's folder (default: report in results_dir); replaces an earlier
                         report there, but no other files
  before.run, before.builder, before.target, after.run, after.builder, after.target
                         the two sides of the page "Before and after"; see compare
  baseline=baseline.txt  the file used by before.run=baseline
  allow=[]               differences allowed between the sides; see compare

Exit codes: 0 report built, even for a failed run; 2 bad usage or input
"""


def main(arguments: list[str]) -> int:
    """Build the report; returns the exit code."""
    if {"-h", "--help", "help"} & set(arguments):
        print(_HELP)
        return 0
    from . import site  # here: it loads polars and Hydra, which the help does not need

    try:
        first, notes = site.build(arguments)
    except PipelineError as error:
        return complain_by_line(error)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"Report: {first}")
    return 0
