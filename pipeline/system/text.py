"""Escapes text and bytes from models for display, so that they cannot move the cursor, hide text
or break the layout.

For display only; stored and compared values stay bytes.
"""

from __future__ import annotations


def visible(value: bytes | str | None, limit: int = 80) -> str:
    """The text with unprintable characters as escapes, cut to `limit` characters with a count.

    In bytes a backslash is doubled, so that an escape cannot be confused with text. In a `str` it
    is not: the text may hold escapes already, and a second call leaves it unchanged.
    """
    if value is None:
        return ""
    raw = isinstance(value, bytes)
    text = value.decode("utf-8", "surrogateescape") if raw else value
    if text[:limit].isprintable() and not (raw and "\\" in text):
        shown = text[:limit]
    elif not raw:
        shown = "".join(map(_escaped, text[:limit]))
    else:
        shown = "".join("\\\\" if char == "\\" else _escaped(char) for char in text[:limit])
    shown = shown.replace("##[", "#\\x23[")  # CI runners read `##[` in a log as a command
    return shown if len(text) <= limit else f"{shown}… ({len(text) - limit} more)"


def quoted(value: bytes | str | None, limit: int = 80) -> str:
    """`visible` in single quotes; a dash for None."""
    return "-" if value is None else f"'{visible(value, limit)}'"


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
