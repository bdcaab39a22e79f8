"""The commands: `python -m pipeline run|audit|compare|baseline|report …`, one override syntax."""

from __future__ import annotations

import os
import sys

EXIT_CODES = """Exit codes: 0 complete; 1 complete, but cells were lost (a native process or a
server died or hung, or the budget was spent); 2 usage or input, or a job of a multirun that could
not be done; 130, 143 interrupted (resume=RUN goes on). Verdicts never change the exit code."""


def main(arguments: list[str]) -> int:
    """Run a command; the exit code."""
    command, *overrides = arguments or ["--help"]
    if command in {"compare", "baseline"}:
        from pipeline import commands_compare

        return commands_compare.main(command, overrides)
    if command == "report":
        from pipeline import commands_report

        return commands_report.main(overrides)
    if command in {"-h", "--help", "help"} or {"-h", "--help"} & set(overrides):
        from pipeline.commands import help_screen

        print(help_screen(EXIT_CODES))
        return 0
    if command not in {"run", "audit"}:
        print(
            f"There is no command {command!r}; there is run, audit, compare, baseline, report. "
            "`python -m pipeline --help` explains them.",
            file=sys.stderr,
        )
        return 2
    os.environ["HYDRA_FULL_ERROR"] = "1"
    from pipeline.commands import run_command

    return run_command(command, overrides)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
