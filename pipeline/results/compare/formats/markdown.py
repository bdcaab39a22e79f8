"""A comparison as Markdown that fits a pull-request comment; cut with a count, never silently."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ....model.verdicts import Change
from ....system.text import visible
from ..comparison import Comparison
from ..pairing import STILL
from . import words

MAX_CHARS = 65_536
"""The longest comment that GitHub accepts, in characters."""

_CUT = "- … and {} more; all are in `{}`"
_FOOT = 3_000
"""Characters kept for the head, the cut lines and the last sentence."""

_SECTION = 20_000
"""Largest size of one section, in characters, so that later sections have room."""


def text(comparison: Comparison, fail_on: str, max_chars: int = MAX_CHARS) -> str:
    """The whole comment, at most `max_chars` characters long."""
    head = "\n".join(_head(comparison, fail_on))
    room = max_chars - min(len(head), max_chars // 2) - min(_FOOT, max_chars // 4)
    body: list[str] = []
    for title, lines, total, file in _sections(comparison):
        section, used = _fitted(title, lines, total, file, room)
        body += section
        room -= used
    made = "\n".join([_cut_text(head, max_chars // 2), *body]) + "\n"
    return _cut_text(made, max_chars)


def _head(comparison: Comparison, fail_on: str) -> Iterator[str]:
    sides = f"{code(comparison.before.label)} → {code(comparison.after.label)}"
    yield f"## byte-exact: {words.verdict(comparison, fail_on)}\n"
    changed = words.versions(comparison)
    if changed:
        yield "| changed | before | after |\n| --- | --- | --- |"
        yield from (f"| {code(name)} | {code(was)} | {code(now)} |" for name, was, now in changed)
    else:
        yield "Versions: the same on both sides."
    for found in comparison.allowed:
        yield f"\nAllowed difference ({found.kind}): {code(found.text)}"
    yield f"\n{sides}: {words.sentence(comparison)}"


_Section = tuple[str, Iterator[str], int, str]


def _sections(comparison: Comparison) -> Iterator[_Section]:
    """(title, lines, how many there are, the file that holds them all)."""
    for change in (change for change in Change if change not in STILL):
        cells = words.listed(comparison, change)
        lines = (
            f"- {code(words.flip(row))} {code(words.place(row, comparison))} {code(words.why(row))}"
            for row in cells.iter_rows(named=True)
        )
        yield change.value.replace("_", " "), lines, cells.height, "comparison.parquet"
    found = [f"- {code(finding.line)}" for finding in words.findings(comparison)]
    yield "tables", iter(found), len(found), "differences.parquet"
    known = [f"- {code(line)}" for line in words.known(comparison)]
    yield "known failures", iter(known), len(known), "comparison.json"
    rates = [f"- {line}" for line in words.rates(comparison)]
    yield "repeats", iter(rates), len(rates), "comparison.json"
    hints = [f"- {code(hint)}" for hint in comparison.hints]
    yield "notes", iter(hints), len(hints), "comparison.json"


def _fitted(
    title: str, lines: Iterator[str], total: int, file: str, room: int
) -> tuple[list[str], int]:
    """(a section's lines that fit, number of their characters)."""
    if not total:
        return [], 0
    section = [f"\n### {title[0].upper()}{title[1:]} ({total})"]
    used, shown = len(section[0]) + 1, 0
    for line in lines:
        if used + len(line) + 1 > min(room, _SECTION):
            break
        section.append(line)
        used += len(line) + 1
        shown += 1
    if shown < total:
        section.append(_CUT.format(total - shown, file))
        used += len(section[-1]) + 1
    return section, used


def _cut_text(made: str, limit: int) -> str:
    if len(made) <= limit:
        return made
    note = "\n… cut; {} characters more\n"
    kept = made[: limit - len(note) - 10]
    return kept + note.format(len(made) - len(kept))


def code(content: str) -> str:
    """Text as a code span, so that nothing in it acts as Markdown, HTML or a mention."""
    if not content:
        return ""
    content = visible(content, 2_000).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", content)), default=0))
    pad = " " if content[0] in "` " or content[-1] in "` " else ""
    return f"{fence}{pad}{content}{pad}{fence}"
