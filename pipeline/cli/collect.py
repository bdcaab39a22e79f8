"""The command `collect`: merge the results of shards that were started as separate commands."""

from __future__ import annotations

import sys

from ..model.errors import PipelineError
from ..results.summary import console
from ..runs.parent import collect, resume
from ..runs.parent.settings import Settings
from .console import complain

_USAGE = "python -m pipeline collect run=RUN [results_dir=…]"


def main(arguments: list[str]) -> int:
    """Merge; returns 0 if the run is complete, 1 if units are missing, 2 if it cannot merge."""
    parts = [argument.partition("=") for argument in arguments]
    given = {key: value for key, _, value in parts}
    if not given.get("run") or given.keys() - {"run", "results_dir"}:
        print(f"{_USAGE} merges the shards of a run and lists what is missing.", file=sys.stderr)
        return 2
    try:
        folder = resume.find(given["run"], given.get("results_dir", Settings.results_dir))
        manifest = collect.finish(folder)
    except PipelineError as error:
        return complain(error)
    print(console.console(folder, manifest))
    return 1 if manifest["missing"] or manifest["lost"] else 0
