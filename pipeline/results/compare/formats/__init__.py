"""A comparison as files: two Parquet tables, Markdown, JUnit XML and JSON. Pure rendering."""

from __future__ import annotations

from pathlib import Path

from ....model.errors import ResultsError
from ...tables import parquet
from ..baseline import write
from ..comparison import Comparison
from . import junit, markdown, record

__all__ = ["FILES", "console", "github", "words", "write_all"]

FILES = (
    "comparison.parquet",
    "differences.parquet",
    "comparison.md",
    "comparison.xml",
    "comparison.json",
)


def write_all(comparison: Comparison, out: Path, fail_on: str) -> None:
    """Write a comparison in every format into a folder; each file is replaced atomically.

    Raises ResultsError if the folder or a file cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        parquet.write(comparison.cells, out / "comparison.parquet")
        parquet.write(comparison.tables, out / "differences.parquet")
    except OSError as error:
        raise ResultsError(
            f"{out} cannot be written: {error.strerror}. Choose another folder with out=…."
        ) from None
    write(out / "comparison.md", [markdown.text(comparison, fail_on)])
    write(out / "comparison.xml", junit.lines(comparison))
    write(out / "comparison.json", record.lines(comparison, fail_on))
