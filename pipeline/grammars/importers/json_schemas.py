"""`json_schemas`: a folder of JSON Schemas, one per file; no instances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...model.errors import SuiteError
from . import Entry, Item, json_text, read_json, register


@register
class JsonSchemas:
    """See the module."""

    name = "json_schemas"
    suffixes: tuple[str, ...] = (".json",)
    prompted = False

    def items(self, file: Path, stem: str) -> Iterator[Item]:
        """One item per file; does not read the file."""
        yield Item(stem, file, size=file.stat().st_size)

    def entry(self, item: Item) -> Entry:
        """See `Layout.entry`."""
        schema = read_json(item.file)
        if not isinstance(schema, dict | bool):
            raise SuiteError(f"{item.file}: is not a JSON Schema: an object, true or false.")
        return json_text.entry(schema, [])
