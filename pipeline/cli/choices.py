"""A value on the command line that must be one of those known."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.errors import ConfigError


def check(said: str, value: str, known: Iterable[str]) -> None:
    """Raise ConfigError for a value that is not known; `said` is how the command line has it."""
    if value not in known:
        raise ConfigError(f"{said} is not known; there is {', '.join(known)}.")
