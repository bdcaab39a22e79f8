"""Names that every part of the program shares: units of work, rows, the default target."""

from __future__ import annotations

Row = dict[str, object]
"""A row of a table, by its columns."""

Unit = tuple[str, ...]
"""A kind (`case`, `build`, `prefix`, `engine`, `audit`, `walks`, `cell`, `replay`) and the names
that identify the unit."""

IN_PROCESS = "inprocess"
"""The default target."""
SENTINEL = "sentinel"
"""The suite whose cases show whether a target enforces at all; see `datasets/sentinel.yaml`."""
