"""The target protocol: where cells are generated, in process or by a server.

One file per target in `targets/`, registered by name. The parent uses the properties of a target;
only workers load the code that generates (`generating`).
"""

from __future__ import annotations

from typing import Protocol

from .settings import TargetSettings


class Target(Protocol):
    """A place where cells are generated, and what it can do."""

    name: str
    shows_tables: bool
    """Whether builders' token tables are used, so that they can be audited. False for a server: its
    own table is not visible, and its label is in the column `builder`."""
    exact_bytes: bool
    """Whether an answer has the bytes of its tokens. False if only text comes back, which a server
    may have changed."""
    samples: bool
    """Whether tokens can be sampled; if not, the most probable one is always taken."""

    def check(self, settings: TargetSettings, time_limit: float) -> None:
        """Raise ConfigError for contradictory settings; `time_limit` is `engine.time_limit`, in
        seconds."""
        ...

    def carries(self, kind: str) -> bool:
        """Whether a request can carry a grammar of this kind (`Grammar.kind`)."""
        ...

    def label(self, settings: TargetSettings) -> str:
        """The column `builder` of a server's cells; empty if builders fill it."""
        ...
