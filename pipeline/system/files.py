"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterable
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A name beside `path` to write to: what is there takes the place of `path` if the block ends
    well, and is removed if it does not. Raises OSError.

    The name begins with `.{path.name}.`, and no other process has it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, content: str | Iterable[str]) -> None:
    """Write a text, or its parts, as UTF-8. Raises OSError."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines([content] if isinstance(content, str) else content)
