"""The commands `python -m pipeline run|audit|collect|compare|baseline|report …`, one syntax."""

from __future__ import annotations

import os
import sys

from .cli.console import say

EXIT_CODES = """Exit codes: 0 complete; 1 complete, but cells were lost (a native process or a
server died or hung, or the budget was spent); 2 bad usage or input, or a job of a multirun that
could not run; 130, 143 interrupted (resume=RUN continues). Verdicts never change the exit code."""


def main(arguments: list[str]) -> int:
    """Run a command; returns the exit code."""
    command, *overrides = arguments or ["--help"]
    if command in {"compare", "baseline"}:
        from .cli import compare  # its help loads neither Hydra nor polars

        return compare.main(command, overrides)
    if command == "report":
        from .cli import report  # as above

        return report.main(overrides)
    if command in {"-h", "--help", "help"} or {"-h", "--help"} & set(overrides):
        from .cli import help as help_  # loads numpy, for the names of prefix schemes

        about = help_.settings if command in {"run", "audit"} else help_.overview
        say(about(EXIT_CODES))
        return 0
    if command == "collect":
        from .cli import collect  # loads polars

        return collect.main(overrides)
    if command not in {"run", "audit"}:
        print(
            f"Unknown command {command!r}; use run, audit, collect, compare, baseline or report. "
            "`python -m pipeline --help` explains them.",
            file=sys.stderr,
        )
        return 2
    os.environ["HYDRA_FULL_ERROR"] = "1"
    from .cli.run import run_command  # loads Hydra and polars

    return run_command(command, overrides)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
