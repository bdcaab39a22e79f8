"""Names that every part of the program shares: units of work, rows, targets."""

from __future__ import annotations

Row = dict[str, object]
"""A row of a table, by its columns."""

Unit = tuple[str, ...]
"""A kind (`case`, `build`, `prefix`, `engine`, `audit`, `walks`, `cell`, `replay`) and the names
that tell it apart."""

IN_PROCESS, SERVER, OPENAI = "inprocess", "server", "openai"
TARGETS = (IN_PROCESS, SERVER, OPENAI)
SENTINEL = "sentinel"
"""The suite whose cases show whether a target enforces at all; see `datasets/sentinel.yaml`."""
