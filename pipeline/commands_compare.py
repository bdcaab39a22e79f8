"""The commands `compare` and `baseline`. Their help loads neither polars nor Hydra."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.config_compare import SidesConfig
    from pipeline.sides import Side

EXIT_CODES = {
    0: "no regression (with `fail_on=any_change`: no change at all)",
    1: "regression (with `fail_on=any_change`: any change)",
    2: "cannot compare, or bad usage",
}
"""What `compare` answers to the shell; `fail_on=never` never answers 1."""

_CODES = "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())

COMPARE_HELP = f"""python -m pipeline compare: what got worse between two runs, cell by cell

  compare before.run=RUN after.run=RUN              two runs
  compare before.run=baseline after.run=latest      a run against the committed baseline
  compare run=RUN before.builder=unfixed after.builder=fixed    two builders of one run
  compare before.run=A after.run=B before.builder=x after.builder=y

RUN is a folder, a run's name under results_dir, latest, or (before only) baseline.

Keys (with their defaults):
  before.run, before.builder, before.target, after.run, after.builder, after.target
  run=null               the run of both sides
  results_dir=results    where runs are looked for by name
  baseline=baseline.txt  the file that before.run=baseline means
  allow=[]               what may differ: suites, vocabulary, model, settings,
                         cases (removed cells then do not count as worse)
  fail_on=regression     or any_change, never
  out=null               a folder for comparison.parquet, differences.parquet, comparison.md
                         (a pull-request comment), comparison.xml (JUnit), comparison.json
  limit=50               lines shown of each kind of change

Worse: a cell that was ok and is not, a failure with a worse verdict, a cell that is missing,
a token table or mask with more wrong ids. A fix never makes up for a regression.

Exit codes:
{_CODES}
"""

BASELINE_HELP = """python -m pipeline baseline: one verdict per cell in a small file to commit

  baseline save [run=latest] [file=baseline.txt] [allow_regressions=true]
  baseline show [file=baseline.txt]

save takes improvements and new cells in; what is worse than the file at hand it refuses, unless
allow_regressions=true. Gate on it with: compare before.run=baseline after.run=latest

Keys (with their defaults): run=latest, file=baseline.txt, results_dir=results,
  allow_regressions=false

Exit codes: 0 done; 1 save: regressions, nothing written; 2 bad usage or input
"""


def main(command: str, arguments: list[str]) -> int:
    """Run `compare` or `baseline`; the exit code."""
    if {"-h", "--help", "help"} & set(arguments) or (command == "baseline" and not arguments):
        _say(COMPARE_HELP if command == "compare" else BASELINE_HELP)
        return 0 if arguments else 2
    from pipeline.errors import PipelineError

    for stream in (sys.stdout, sys.stderr):
        if (change := getattr(stream, "reconfigure", None)) is not None:
            change(errors="backslashreplace")
    try:
        return _compare(arguments) if command == "compare" else _baseline(*arguments)
    except PipelineError as error:
        from pipeline.visible import visible

        for line in f"error: {error}".splitlines():
            print(visible(line, 2000), file=sys.stderr)
        return 2


def _compare(overrides: list[str]) -> int:
    from pipeline import compare, comparison_out
    from pipeline.comparison_out import console, github
    from pipeline.config_compare import CompareConfig, composed

    settings = composed(CompareConfig, overrides, "compare")
    _known("fail_on", [settings.fail_on], compare.FAIL_ON)
    before, after = both(settings)
    comparison = compare.compare(before, after, allowed(settings))
    if settings.out is not None:
        comparison_out.write_all(comparison, Path(settings.out), settings.fail_on)
    _say(console.text(comparison, settings.fail_on, max(settings.limit, 0)))
    if settings.out is not None:
        _say(f"Written to {settings.out}: {', '.join(comparison_out.FILES)}")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in github.lines(comparison):
            _say(line)
    return comparison.exit_code(settings.fail_on)


def _say(text: str) -> None:
    """Print; a reader that went away (`| head`) does not change the exit code."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _known(key: str, values: list[str], known: tuple[str, ...]) -> None:
    from pipeline.errors import ConfigError

    for value in values:
        if value not in known:
            raise ConfigError(f"{key}: {value!r} is not known; there is {', '.join(known)}.")


def allowed(settings: SidesConfig) -> list[str]:
    """What the sides may differ in, each a known word; raises ConfigError."""
    from pipeline import alike

    _known("allow", settings.allow, alike.ALLOW)
    return settings.allow


def both(settings: SidesConfig) -> tuple[Side, Side]:
    """Both sides, from what was given of each; raises ConfigError, CompareError, TablesError."""
    from pipeline import baseline, sides
    from pipeline.errors import ConfigError

    given = [side.run or settings.run for side in (settings.before, settings.after)]
    before, after = given[0] or given[1], given[1] or given[0]
    if before is None or after is None:
        raise ConfigError(
            "compare needs two sides: before.run=… after.run=…, or run=… with before.builder=… "
            "after.builder=…. `python -m pipeline compare --help` explains them."
        )
    for part in sides.PARTS:
        if (getattr(settings.before, part) is None) != (getattr(settings.after, part) is None):
            raise ConfigError(
                f"before.{part}=… and after.{part}=… go together: name both; the same on both "
                f"sides compares that {part} alone."
            )
    asked = [
        sides.Asked(run, side.builder, side.target)
        for run, side in ((before, settings.before), (after, settings.after))
    ]
    if after == sides.BASELINE:
        raise ConfigError("The baseline can only be the side before: before.run=baseline.")
    results = Path(settings.results_dir)
    first = (
        baseline.load(Path(settings.baseline), asked[0])
        if before == sides.BASELINE
        else sides.load(asked[0], results)
    )
    return first, sides.load(asked[1], results)


def _baseline(action: str, *overrides: str) -> int:
    from pipeline import alike, baseline, compare, sides
    from pipeline.comparison_out import console
    from pipeline.config_compare import BaselineConfig, composed
    from pipeline.errors import ConfigError

    if action not in ("save", "show"):
        raise ConfigError(f"There is no baseline {action}; there is save, show.")
    settings = composed(BaselineConfig, list(overrides), "baseline")
    file = Path(settings.file)
    if action == "show":
        _say(_shown(baseline.read(file)))
        return 0
    side = sides.load(sides.Asked(settings.run), Path(settings.results_dir))
    content = baseline.lines(side)
    if file.exists() and not settings.allow_regressions:
        unlike = [kind for kind in alike.ALLOW if kind != "cases"]
        comparison = compare.compare(baseline.read(file), side, unlike)
        if comparison.n_worse:
            _say(console.text(comparison, "regression", 50))
            print(
                f"error: {side.name} is worse than {file} in {comparison.n_worse} cells; nothing "
                "was saved. Mend them, or accept them with allow_regressions=true.",
                file=sys.stderr,
            )
            return 1
    baseline.write(file, content)
    _say(f"{side.cells.height} verdicts of {side.name} saved in {file}.")
    return 0


def _shown(side: Side) -> str:
    """A baseline in short: what made it, how many of each verdict, and what fails."""
    from pipeline.verdict import Verdict
    from pipeline.visible import visible

    counts = dict(side.cells["verdict"].value_counts().iter_rows())
    tally = ", ".join(f"{counts[v.value]} {v.value}" for v in Verdict if v.value in counts)
    lines = [f"{name} {value}" for name, value in sorted(side.versions.items())]
    lines += [f"{name} = {value}" for name, value in sorted(side.settings.items())]
    lines.append(f"{side.cells.height} cells: {tally or 'none'}")
    failing = side.cells.sort("cell_key").select("verdict", "cell_key").rows()
    lines += [f"  {verdict}  {key}" for verdict, key in failing if verdict != Verdict.OK.value]
    return "\n".join(visible(line, 300) for line in lines)
