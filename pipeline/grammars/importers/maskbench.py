"""`maskbench`: JSONSchemaBench with instances, as MaskBench publishes it.

A file is an object with `schema` and `tests`, a list of `{description, valid, data}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...model.errors import SuiteError
from . import Entry, Item, json_text, read_json, register


@register
class MaskBench:
    """See the module."""

    name = "maskbench"
    suffixes: tuple[str, ...] = (".json",)
    prompted = False

    def items(self, file: Path, stem: str) -> Iterator[Item]:
        """One item per file; does not read the file."""
        yield Item(stem, file, size=file.stat().st_size)

    def entry(self, item: Item) -> Entry:
        """See `Layout.entry`; instances are numbered from 0."""
        document = read_json(item.file)
        try:
            return json_text.entry(document["schema"], document["tests"])
        except (KeyError, TypeError):
            raise SuiteError(
                f"{item.file}: is not a MaskBench file: an object with `schema`, and `tests` of "
                "`valid` and `data`."
            ) from None
