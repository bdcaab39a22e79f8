"""Run the command `compare` in this process, and compare runs."""

from pathlib import Path

import pytest

from pipeline.__main__ import main
from pipeline.results.compare import comparison
from pipeline.results.compare.side import SideRequest, load
from support.compare_runs import matrix

Out = pytest.CaptureFixture[str]

"""What `matrix` needs; pytest looks for fixtures in the module of the tests."""


def ran(capsys: Out, *arguments: object) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of `compare`."""
    capsys.readouterr()
    code = main(["compare", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def both(before: Path, after: Path) -> list[str]:
    return [f"before.run={before}", f"after.run={after}"]


def compared(before: Path, after: Path, *allow: str) -> comparison.Comparison:
    one, two = (load(SideRequest(str(run)), Path()) for run in (before, after))
    return comparison.compare(one, two, allow)


def builders(before: str, after: str) -> list[str]:
    return [f"run={matrix()}", f"before.builder={before}", f"after.builder={after}"]
