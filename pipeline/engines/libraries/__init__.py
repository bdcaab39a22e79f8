"""Released libraries: what each makes of a vocabulary, and its own masks where it is an engine.

One file per library, with its builders and its engine. They run in a process of their own
(`client` starts it, `server` is its side) over what `package.Given` says, and an engine is reached
through `engine.ForeignEngine`. To an engine a grammar is a regular expression or a JSON Schema,
which all of them know.
"""

from __future__ import annotations

from typing import Protocol

from ...model.registry import Registry

__all__ = ["engine", "engines", "package"]


class _Released(Protocol):
    name: str
    package: str
    extra: str


engines: Registry[_Released] = Registry("engine", __name__)
"""The engines of the files here, by name; each is a `package.Library`."""
