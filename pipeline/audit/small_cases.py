"""Small cases that may show a fault: one literal, one choice or one JSON type.

The callers (`reproducers`, `engine_masks`) compile, walk and judge every proposed case.
`suite_file` writes a case as a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import yaml

from ..grammars.case import Case, Grammar
from ..grammars.checkers import Json, Literal, Pattern

_SUITE, _ID, _PROMPT = "reproducer", "found", "Hello"
_TAILS = [b"".join(tail) for n in range(4) for tail in product((b"\x80", b"\xa0"), repeat=n)]
"""Possible ends of an incomplete character; one of these completes every beginning."""


def pattern(source: str) -> Case:
    """One regular expression, in syntax that every engine supports."""
    return Case(_SUITE, _ID, _PROMPT, Grammar("lark", f"start: /{source}/"), Pattern(source), 64)


def literal(text: str) -> Case:
    """A grammar of exactly one text."""
    grammar = Grammar("lark", literal_source(text))
    return Case(_SUITE, _ID, _PROMPT, grammar, Literal(text.encode()), 64)


def literal_source(text: str) -> str:
    """The Lark grammar of one text."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'start: "{quoted}"'


def json_string() -> Case:
    """Any JSON string."""
    return Case(
        _SUITE, _ID, _PROMPT, Grammar("json", '{"type":"string"}'), Json({"type": "string"}), 64
    )


def choice(data: bytes) -> Iterator[Case]:
    """A text or one other letter: the choice at the first byte prevents forcing.

    An incomplete character at the end is completed. Nothing is yielded for bytes that begin inside
    a character: no text begins with them.
    """
    for text in _texts(data):
        other = next(letter for letter in "zyx" if not text.startswith(letter))
        yield pattern(f"({escaped(text)}|{other})")


def repeated(data: bytes) -> Iterator[Case]:
    """One or more copies of a text: a token with fewer copies is legal and cannot hide a fault."""
    for text in _texts(data):
        yield pattern(f"({escaped(text)})+")


def is_text(data: bytes) -> bool:
    """Whether the bytes are whole characters."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _texts(data: bytes) -> Iterator[str]:
    """Yield the shortest text that begins with these bytes; nothing if there is none."""
    for tail in _TAILS:
        try:
            text = (data + tail).decode("utf-8")
        except UnicodeDecodeError:
            continue
        if text and "\0" not in text:
            yield text
        return


def escaped(text: str) -> str:
    """A regular expression for exactly this text, in syntax that every engine accepts."""
    return re.sub(r"[][().*+?{}|\\^$/\n\t\r-]", _escape, text)


def _escape(match: re.Match[str]) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(match[0], "\\" + match[0])


def suite_file(case: Case, tokens: Sequence[int], about: str, command: str) -> str:
    """The text of a suite file whose case takes `tokens` first.

    `command` shows the fault and is its first line. Raises ValueError if the case's checker cannot
    be written in a suite file.
    """
    grammar: dict[str, Any] = {case.grammar.kind: case.grammar.text}
    if case.grammar.kind == "json":
        grammar = {"json": yaml.safe_load(case.grammar.text)}
    entry: dict[str, Any] = {
        "id": case.id,
        "prompt": case.prompt,
        "grammar": grammar,
        "check": _check(case),
        "tokens": [*tokens],
    }
    if type(case.check) is Json:
        entry["layout"] = "compact"
    document = {"suite": _SUITE, "about": about, "cases": [entry]}
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=96)
    return f"# {command}\n{text}"


def _check(case: Case) -> dict[str, Any]:
    match case.check:
        case Literal(data):
            return {"literal": data.decode("utf-8")}
        case Pattern(source):
            return {"regex": source}
        case Json(schema):
            return {"json": schema}
        case _:
            raise ValueError(f"{case.suite}/{case.id} has no checker that a suite file can hold")
