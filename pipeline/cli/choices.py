"""Values of the command line that must be one of a few words."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.errors import ConfigError


def check(said: str, value: str, known: Iterable[str]) -> None:
    """Raise ConfigError unless `value` is known; `said` is the setting as the user wrote it."""
    if value not in known:
        raise ConfigError(f"{said} is not known; choose from {', '.join(known)}.")
