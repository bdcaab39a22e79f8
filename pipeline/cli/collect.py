"""The command `collect`: merge the results of shards that were started as separate commands."""

from __future__ import annotations

import sys
from pathlib import Path

from ..model.errors import PipelineError
from ..results.summary import console
from ..results.tables import run_folder
from ..runs.parent import collect
from ..runs.parent.settings import Settings
from .console import complain

_USAGE = """python -m pipeline collect run=RUN [results_dir=…] merges the parts of a run and lists
what is missing. RUN is a folder, a run's name under results_dir, or latest: the newest run."""


def main(arguments: list[str]) -> int:
    """Merge; returns 0 if the run is complete, 1 if units are missing, 2 if merging fails."""
    parts = [argument.partition("=") for argument in arguments]
    given = {key: value for key, _, value in parts}
    if not given.get("run") or given.keys() - {"run", "results_dir"}:
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        results = Path(given.get("results_dir", Settings.results_dir))
        folder = run_folder.find(given["run"], results).absolute()
        manifest = collect.finish(folder)
    except PipelineError as error:
        return complain(error)
    print(console.console(folder, manifest))
    return 1 if manifest["missing"] or manifest["lost"] else 0
