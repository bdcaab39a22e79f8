"""The command `collect`: the parts of a run whose shards were commands of their own, merged."""

from __future__ import annotations

import sys

from ..model.errors import PipelineError
from ..results.summary import console
from ..runs.parent import collect, resume
from ..runs.parent.settings import Settings
from .console import complain

_USAGE = "python -m pipeline collect run=RUN [results_dir=…]"


def main(arguments: list[str]) -> int:
    """Merge; 0 when the run is whole, 1 when something is missing, 2 for what cannot be merged."""
    parts = [argument.partition("=") for argument in arguments]
    given = {key: value for key, _, value in parts}
    if not given.get("run") or given.keys() - {"run", "results_dir"}:
        print(f"{_USAGE} merges the parts of a run and says what is missing.", file=sys.stderr)
        return 2
    try:
        folder = resume.find(given["run"], given.get("results_dir", Settings.results_dir))
        manifest = collect.finish(folder)
    except PipelineError as error:
        return complain(error)
    print(console.console(folder, manifest))
    return 1 if manifest["missing"] or manifest["lost"] else 0
