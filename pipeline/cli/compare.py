"""The commands `compare` and `baseline`: their help and exit codes."""

from __future__ import annotations

import sys

from ..model.errors import PipelineError
from .console import complain_by_line, say

EXIT_CODES = {
    0: "no regression (with `fail_on=any_change`: no change at all)",
    1: "regression (with `fail_on=any_change`: any change)",
    2: "cannot compare, or bad usage",
}
"""Exit codes of `compare`; with `fail_on=never` it never returns 1."""

_CODES = "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())

_COMPARE_HELP = f"""python -m pipeline compare: show what got worse between two runs, cell by cell

  compare before.run=RUN after.run=RUN              two runs
  compare before.run=baseline after.run=latest      a run against the committed baseline
  compare run=RUN before.builder=unfixed after.builder=fixed    two builders of one run
  compare before.run=A after.run=B before.builder=x after.builder=y

RUN is a folder, a run's name under results_dir, latest (the newest run, which must be
complete), or (before only) baseline.

Keys (with their defaults):
  before.run, before.builder, before.target, after.run, after.builder, after.target
  run=null               the run of both sides
  results_dir=results    the folder in which runs are searched by name
  baseline=baseline.txt  the file used by before.run=baseline
  allow=[]               what may differ: suites, vocabulary, model, settings,
                         cases (removed cells then do not count as worse)
  fail_on=regression     or any_change, never
  out=null               a folder for comparison.parquet, differences.parquet, comparison.md
                         (a pull-request comment), comparison.xml (JUnit), comparison.json
  limit=50               lines shown for each kind of change

Worse means: a cell is no longer ok, a failure has a worse verdict, a cell is missing, or a token
table or mask has more wrong ids. A fix never offsets a regression.

Exit codes:
{_CODES}
"""

_BASELINE_HELP = """python -m pipeline baseline: keep one verdict per cell in a small file to commit

  baseline save [run=RUN] [file=baseline.txt] [allow_regressions=true]
  baseline show [file=baseline.txt]

save accepts improvements and new cells. It refuses results that are worse than the existing file,
unless allow_regressions=true. Compare against it: compare before.run=baseline after.run=latest
RUN is a folder, a run's name under results_dir, or latest: the newest run, which must be complete.

Keys (with their defaults): run=latest, file=baseline.txt, results_dir=results,
  allow_regressions=false

Exit codes: 0 done; 1 save: regressions, nothing written; 2 bad usage or input
"""


def main(command: str, arguments: list[str]) -> int:
    """Run `compare` or `baseline`; returns the exit code."""
    if {"-h", "--help", "help"} & set(arguments) or (command == "baseline" and not arguments):
        say(_COMPARE_HELP if command == "compare" else _BASELINE_HELP)
        return 0 if arguments else 2
    from . import gate  # here: it loads polars and Hydra, which the help does not need

    for stream in (sys.stdout, sys.stderr):
        if (change := getattr(stream, "reconfigure", None)) is not None:
            change(errors="backslashreplace")
    try:
        return gate.compare(arguments) if command == "compare" else gate.baseline(*arguments)
    except PipelineError as error:
        return complain_by_line(error)
