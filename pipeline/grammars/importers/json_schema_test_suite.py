"""`json_schema_test_suite`: the official JSON-Schema-Test-Suite, or any file in its layout.

A file is a list of groups `{description, schema, tests}`, with tests as in MaskBench. The
collection is the folder of one draft, such as `tests/draft2020-12`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from ...model.errors import SuiteError
from . import Entry, Item, json_text, read_json, register


@register
class JsonSchemaTestSuite:
    """See the module."""

    name = "json_schema_test_suite"
    suffixes: tuple[str, ...] = (".json",)
    prompted = False

    def items(self, file: Path, stem: str) -> Iterator[Item]:
        """One item per group, numbered from 0. Reads the file; these files are small."""
        groups = read_json(file)
        n_groups = len(cast(list[object], groups)) if isinstance(groups, list) else 0
        for number in range(n_groups):
            yield Item(f"{stem}#{number}", file, number, file.stat().st_size // n_groups)

    def entry(self, item: Item) -> Entry:
        """See `Layout.entry`."""
        try:
            group = read_json(item.file)[item.number]
            return json_text.entry(group["schema"], group["tests"])
        except (KeyError, IndexError, TypeError):
            raise SuiteError(
                f"{item.file}: group {item.number} is not an object with `schema`, and `tests` of "
                "`valid` and `data`."
            ) from None
