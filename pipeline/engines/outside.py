"""How builders and engines of released packages are run: as settings, jobs and processes say it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outside:
    """Where and within which limits builders from released packages run."""

    python: str = ""
    """The interpreter of an environment that has the package; empty for this one."""
    tokenizer_json: str = ""
    """The model's own file, for builders that read one; empty to derive it from the GGUF."""
    time_limit: float = 300.0
    """Seconds for one table."""
    memory_limit: float = 8.0
    """GiB for one table."""
