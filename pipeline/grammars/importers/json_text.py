"""A schema and its instances as a grammar and texts, written as a model would write JSON.

Instances have the default layout of Python's json (`", "` and `": "`), with keys in their own order
and only the escapes that JSON requires.
"""

from __future__ import annotations

import json
from typing import Any

from ..case import Grammar
from . import Entry, Instance


def entry(schema: Any, tests: list[dict[str, Any]]) -> Entry:
    """The entry of a schema with tests as in MaskBench, numbered from 0.

    Raises KeyError or TypeError if a test has another structure.
    """
    instances = [
        Instance(str(number), written(test["data"]), flag(test["valid"]))
        for number, test in enumerate(tests)
    ]
    return Entry(grammar(schema), tuple(instances))


def grammar(schema: Any) -> Grammar:
    """A schema as a grammar, with its key order."""
    return Grammar("json", _sendable(json.dumps(schema, separators=(",", ":"), ensure_ascii=False)))


def written(data: Any) -> bytes:
    """A value as a model would write it."""
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")


def flag(valid: Any) -> bool:
    """The `valid` of an instance. Raises TypeError for other values than true and false."""
    if not isinstance(valid, bool):
        raise TypeError
    return valid


def _sendable(text: str) -> str:
    """The text with JSON escapes if it has lone surrogates, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), separators=(",", ":"))
    return text
