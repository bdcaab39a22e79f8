"""Atomic writes: a file appears complete or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterable
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A temporary path in the folder of `path`, to write to. Raises OSError.

    If the block succeeds, the temporary file replaces `path`; otherwise it is removed. Its name
    begins with `.{path.name}.` and is unique to this process.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, content: str | Iterable[str]) -> None:
    """Write a text, or its parts in order, as UTF-8, atomically. Raises OSError."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines([content] if isinstance(content, str) else content)
