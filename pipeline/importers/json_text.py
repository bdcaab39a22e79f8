"""A schema and its instances as grammar and texts: written as a model would write JSON.

Instances are written as Python's json does by default (`", "` and `": "`), keys in their own order,
and no escape that JSON does not demand.
"""

from __future__ import annotations

import json
from typing import Any

from pipeline.importers import Entry, Instance
from pipeline.suites import Grammar


def entry(schema: Any, tests: list[dict[str, Any]]) -> Entry:
    """The entry of a schema with MaskBench-like tests, numbered from 0.

    Raises KeyError or TypeError where a test is not of that shape.
    """
    text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
    instances = [
        Instance(str(number), _written(test["data"]), _flag(test["valid"]))
        for number, test in enumerate(tests)
    ]
    return Entry(Grammar("json", _sendable(text)), tuple(instances))


def _written(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _flag(valid: Any) -> bool:
    if not isinstance(valid, bool):
        raise TypeError
    return valid


def _sendable(text: str) -> str:
    """Without lone surrogates, which no C string of UTF-8 holds: escaped as JSON has them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), separators=(",", ":"))
    return text
