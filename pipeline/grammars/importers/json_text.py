"""A schema and its instances as grammar and texts: written as a model would write JSON.

Instances are written as Python's json does by default (`", "` and `": "`), keys in their own order,
and no escape that JSON does not demand.
"""

from __future__ import annotations

import json
from typing import Any

from ..case import Grammar
from . import Entry, Instance


def entry(schema: Any, tests: list[dict[str, Any]]) -> Entry:
    """The entry of a schema with MaskBench-like tests, numbered from 0.

    Raises KeyError or TypeError where a test is not of that shape.
    """
    instances = [
        Instance(str(number), written(test["data"]), flag(test["valid"]))
        for number, test in enumerate(tests)
    ]
    return Entry(grammar(schema), tuple(instances))


def grammar(schema: Any) -> Grammar:
    """A schema as a grammar, its key order kept."""
    return Grammar("json", _sendable(json.dumps(schema, separators=(",", ":"), ensure_ascii=False)))


def written(data: Any) -> bytes:
    """A value as a model would write it."""
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")


def flag(valid: Any) -> bool:
    """`valid` of an instance; raises TypeError for anything but true and false."""
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
