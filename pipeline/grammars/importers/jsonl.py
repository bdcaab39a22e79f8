"""`jsonl`: prompts with grammars, one JSON object per line.

    {"prompt": "A person.", "json_schema": {"type": "object"}, "id": "ada", "max_tokens": 200}
    {"prompt": "Yes or no?", "regex": "yes|no", "instances": [{"text": "yes", "valid": true}]}

The grammar is one of `json_schema`, `lark`, `gbnf` and `regex` (in llguidance's dialect). A line
without a grammar uses `grammar.constraint`. An instance has a `text`, or `data` that is written as
JSON. Other keys and empty lines are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from ...model.errors import SuiteError
from ..case import DEFAULT_MAX_TOKENS, Grammar
from . import Entry, Instance, Item, grammars, json_text, register

MAX_LINE_BYTES = 32 * 1024 * 1024
_LONGEST_ID = 200
_MOST_TOKENS = 4096
_BOM = b"\xef\xbb\xbf"

_GRAMMARS: dict[str, Callable[[Any], Grammar]] = {
    "json_schema": json_text.grammar,
    "lark": grammars.lark,
    "gbnf": grammars.gbnf,
    "regex": grammars.regex,
}


@register
class JsonLines:
    """See the module."""

    name = "jsonl"
    suffixes: tuple[str, ...] = (".jsonl", ".ndjson")
    prompted = True

    def items(self, file: Path, stem: str) -> Iterator[Item]:
        """One item per line, named by its `id`, else by its line number from 1.

        Reads one line at a time and keeps none. A line that cannot be used raises in `entry`.
        """
        lines: dict[str, int] = {}
        for number, offset, line in _lines(file):
            name = _id(line) or str(number)
            if name in lines:
                raise SuiteError(
                    f"{file}: lines {lines[name]} and {number} have the same id {name!r}; ids must "
                    "be unique."
                )
            lines[name] = number
            yield Item(f"{stem}#{name}", file, number, len(line), offset)

    def entry(self, item: Item) -> Entry:
        """See `Layout.entry`."""
        try:
            with item.file.open("rb") as file:
                file.seek(item.offset)
                return _entry(_parsed(file.readline(MAX_LINE_BYTES + 1)))
        except OSError as error:
            raise SuiteError(f"{item.file}: cannot be read: {error}.") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise SuiteError(f"{item.file}: line {item.number}: {error}.") from None


def _lines(file: Path) -> Iterator[tuple[int, int, bytes]]:
    """(line number, byte offset, bytes) of each line that is not blank.

    A line longer than `MAX_LINE_BYTES` is cut to one byte more. Raises SuiteError.
    """
    try:
        with file.open("rb") as lines:
            number, place = 1, 0
            while line := lines.readline(MAX_LINE_BYTES + 1):
                rest = line
                while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
                    rest = lines.readline(MAX_LINE_BYTES + 1)
                if line.strip():
                    yield number, place, line
                number, place = number + 1, lines.tell()
    except OSError as error:
        raise SuiteError(f"{file}: cannot be read: {error}.") from None


def _parsed(line: bytes) -> Any:
    """The value of a line. Raises ValueError with a reason."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"is longer than {MAX_LINE_BYTES >> 20} MiB")
    try:
        return json.loads(line.removeprefix(_BOM).decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _id(line: bytes) -> str | None:
    """The `id` of a line; None if it has none or the line is not valid."""
    try:
        return _name(_parsed(line))
    except ValueError:
        return None


def _name(document: Any) -> str | None:
    """The `id` of a line as text; None if it has none. Raises ValueError for an invalid one."""
    if not isinstance(document, dict) or "id" not in document:
        return None
    given = cast(dict[str, Any], document)["id"]
    name = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_ID or not name.isprintable():
        raise ValueError(
            f"id must be a number or printable text of at most {_LONGEST_ID} characters"
        )
    return name


def _entry(document: Any) -> Entry:
    """The entry of a line. Raises ValueError with a reason."""
    if not isinstance(document, dict):
        raise ValueError("is not a JSON object")
    said = cast(dict[str, Any], document)
    _name(said)
    if "prompt" not in said and "messages" in said:
        raise ValueError("has messages; render them with the chat template and give them as prompt")
    prompt = _text("prompt", said.get("prompt"))
    limit = said.get("max_tokens", DEFAULT_MAX_TOKENS)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _MOST_TOKENS:
        raise ValueError(f"max_tokens must be a whole number, 1 to {_MOST_TOKENS}")
    return Entry(_grammar(said), _instances(said.get("instances", [])), prompt, limit)


def _grammar(said: dict[str, Any]) -> Grammar | None:
    kinds = [kind for kind in _GRAMMARS if kind in said]
    if len(kinds) > 1:
        raise ValueError(f"has {' and '.join(kinds)}; a line can have one grammar only")
    for kind in kinds:
        if kind == "json_schema":
            if not isinstance(said[kind], dict | bool):
                raise ValueError("json_schema must be a JSON Schema: an object, true or false")
            return _GRAMMARS[kind](said[kind])
        text = _text(kind, said[kind])
        try:
            return _GRAMMARS[kind](text)
        except ValueError as error:
            raise ValueError(f"{kind}: {error}") from None
    return None


def _instances(given: Any) -> tuple[Instance, ...]:
    try:
        return tuple(
            Instance(
                str(number),
                one["text"].encode() if "text" in one else json_text.written(one["data"]),
                json_text.flag(one["valid"]),
            )
            for number, one in enumerate(given)
        )
    except (KeyError, TypeError, AttributeError, UnicodeEncodeError):
        raise ValueError(
            "instances must be a list of objects with `valid`, and `text` or `data`"
        ) from None


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} must be text, not empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{key} has half of a surrogate pair, which is not a character") from None
    return value
