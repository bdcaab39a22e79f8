"""The smallest cases that show a fault: one literal, one choice, or one JSON type, and as a file.

Whatever is proposed here is really compiled, walked and judged by who asks for it (`reproducers`,
`engine_masks`).
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
"""What a begun character may end with: some of these make one of every beginning."""


def pattern(source: str) -> Case:
    """One regular expression, in words that every engine knows."""
    return Case(_SUITE, _ID, _PROMPT, Grammar("lark", f"start: /{source}/"), Pattern(source), 64)


def literal(text: str) -> Case:
    """One text and nothing else."""
    grammar = Grammar("lark", literal_source(text))
    return Case(_SUITE, _ID, _PROMPT, grammar, Literal(text.encode()), 64)


def literal_source(text: str) -> str:
    """The Lark of one text."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'start: "{quoted}"'


def json_string() -> Case:
    """Any JSON string."""
    return Case(
        _SUITE, _ID, _PROMPT, Grammar("json", '{"type":"string"}'), Json({"type": "string"}), 64
    )


def choice(data: bytes) -> Iterator[Case]:
    """A text or another letter: a choice at the first byte, so that nothing is forced.

    Bytes that begin a character are completed; none can be written that begin within one.
    """
    for text in _texts(data):
        other = next(letter for letter in "zyx" if not text.startswith(letter))
        yield pattern(f"({escaped(text)}|{other})")


def repeated(data: bytes) -> Iterator[Case]:
    """A text once or more: a token that is taken for fewer of them is no fault, and hides none."""
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
    """The bytes as a text, if they can begin one."""
    for tail in _TAILS:
        try:
            text = (data + tail).decode("utf-8")
        except UnicodeDecodeError:
            continue
        if text and "\0" not in text:
            yield text
        return


def escaped(text: str) -> str:
    """A regular expression of this text alone, in spelling that every engine takes."""
    return re.sub(r"[][().*+?{}|\\^$/\n\t\r-]", _escape, text)


def _escape(match: re.Match[str]) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(match[0], "\\" + match[0])


def suite_file(case: Case, tokens: Sequence[int], about: str, command: str) -> str:
    """A suite file that takes `tokens`, with the command that shows its fault."""
    grammar: dict[str, Any] = {case.grammar.kind: case.grammar.text}
    if case.grammar.kind == "json":
        grammar = {"json": yaml.safe_load(case.grammar.text)}
    told = {
        "id": case.id,
        "prompt": case.prompt,
        "grammar": grammar,
        "check": _check(case),
        "tokens": [*tokens],
    }
    document = {"suite": _SUITE, "about": about, "cases": [told]}
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
