"""Released libraries: the token table that each makes, and the masks of those that are engines.

One file per library, with its builders and its engine. They run in their own process: `client`
starts it and `server` runs in it, with a `package.Given` as input. `engine.ForeignEngine` is the
interface to an engine. A grammar for an engine is a regular expression or a JSON Schema, which all
of them support.
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
