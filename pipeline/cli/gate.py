"""The work of `compare` and `baseline`: load two sides, compare them, write every format."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..model.errors import ConfigError
from ..model.verdicts import Verdict
from ..results.compare import baseline as baselines
from ..results.compare import comparability, comparison, formats
from ..results.compare.formats import console, github
from ..results.compare.side import PARTS, Side, SideRequest, load
from ..results.tables import run_folder
from ..system.text import visible
from . import choices
from .compare_settings import BaselineConfig, CompareConfig, SidesConfig, composed
from .console import say


def compare(overrides: list[str]) -> int:
    """Run `compare`; returns the exit code. Raises PipelineError."""
    settings = composed(CompareConfig, overrides, "compare")
    choices.check(f"fail_on={settings.fail_on}", settings.fail_on, comparison.FAIL_ON)
    before, after = both(settings)
    compared = comparison.compare(before, after, allowed(settings))
    if settings.out is not None:
        formats.write_all(compared, Path(settings.out), settings.fail_on)
    say(console.text(compared, settings.fail_on, max(settings.limit, 0)))
    if settings.out is not None:
        say(f"Written to {settings.out}: {', '.join(formats.FILES)}")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in github.lines(compared):
            say(line)
    return compared.exit_code(settings.fail_on)


def allowed(settings: SidesConfig) -> list[str]:
    """The differences that `allow` names. Raises ConfigError for an unknown one."""
    for word in settings.allow:
        choices.check(f"allow: {word!r}", word, comparability.ALLOW)
    return settings.allow


def both(settings: SidesConfig) -> tuple[Side, Side]:
    """Load both sides of a comparison. Raises ConfigError, CompareError, TablesError."""
    given = [side.run or settings.run for side in (settings.before, settings.after)]
    before, after = given[0] or given[1], given[1] or given[0]
    if before is None or after is None:
        raise ConfigError(
            "compare needs two sides: before.run=… after.run=…, or run=… with before.builder=… "
            "after.builder=…. `python -m pipeline compare --help` explains them."
        )
    for part in PARTS:
        if (getattr(settings.before, part) is None) != (getattr(settings.after, part) is None):
            raise ConfigError(
                f"give both before.{part}=… and after.{part}=…, or neither. To compare only one "
                f"{part}, give the same value on both sides."
            )
    asked = [
        SideRequest(run, side.builder, side.target)
        for run, side in ((before, settings.before), (after, settings.after))
    ]
    results = Path(settings.results_dir)
    first = (
        baselines.load(Path(settings.baseline), asked[0])
        if before == run_folder.BASELINE
        else load(asked[0], results)
    )
    return first, load(asked[1], results)


def baseline(action: str, *overrides: str) -> int:
    """Run `baseline save` or `baseline show`; returns the exit code. Raises PipelineError."""
    if action not in ("save", "show"):
        raise ConfigError(f"Unknown command baseline {action}; use save or show.")
    settings = composed(BaselineConfig, list(overrides), "baseline")
    file = Path(settings.file)
    if action == "show":
        say(_shown(baselines.read(file)))
        return 0
    side = load(SideRequest(settings.run), Path(settings.results_dir))
    before = baselines.read(file) if file.exists() else None
    if before is not None and not settings.allow_regressions:
        unlike = [kind for kind in comparability.ALLOW if kind != "cases"]
        compared = comparison.compare(before, side, unlike)
        if compared.is_worse:
            say(console.text(compared, "regression", 50))
            print(
                f"error: {side.name} is worse than {file} in {compared.n_worse} cells and "
                f"{compared.n_tables_worse} rows of tables; nothing was saved. Fix them, or accept "
                "them with allow_regressions=true.",
                file=sys.stderr,
            )
            return 1
    baselines.write(file, baselines.lines(side, before.expected if before else None))
    say(f"{side.cells.height} verdicts of {side.name} saved in {file}, with the standings.")
    return 0


def _shown(side: Side) -> str:
    """A summary of a baseline: versions, settings, number of cells per verdict, failing cells."""
    counts = dict(side.cells["verdict"].value_counts().iter_rows())
    tally = ", ".join(f"{counts[v.value]} {v.value}" for v in Verdict if v.value in counts)
    lines = [f"{name} {value}" for name, value in sorted(side.versions.items())]
    lines += [f"{name} = {value}" for name, value in sorted(side.settings.items())]
    lines.append(f"{side.cells.height} cells: {tally or 'none'}")
    failing = side.cells.sort("cell_key").select("verdict", "cell_key").rows()
    lines += [f"  {verdict}  {key}" for verdict, key in failing if verdict != Verdict.OK.value]
    if side.kept is None:
        lines.append("This baseline has format 1: it holds cells only. Save it again.")
    else:
        lines += [f"{n} {what}" for what, n in baselines.counts(side.kept)]
    lines += [f"expected: {word}  {key}  {url}" for (word, key), url in side.expected.items()]
    return "\n".join(visible(line, 300) for line in lines)
