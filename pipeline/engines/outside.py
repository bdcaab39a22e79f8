"""The settings for builders and engines of released packages, used by jobs and their processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outside:
    """The environment and the limits of builders from released packages."""

    python: str = ""
    """The interpreter of an environment that has the package; empty for this interpreter."""
    tokenizer_json: str = ""
    """The model's `tokenizer.json`, for builders that read one; empty: derived from the GGUF."""
    time_limit: float = 300.0
    """Time limit per request, in seconds."""
    memory_limit: float = 8.0
    """Memory limit of the process, in GiB."""
