"""Hydra's errors as one paragraph."""

from __future__ import annotations

from hydra.errors import MissingConfigException

from ..system.resources import options


def in_words(error: Exception, command: str = "") -> str:
    """Hydra's error as one paragraph that lists the options, or names the help of `command`."""
    if isinstance(error, MissingConfigException):
        group, _, name = str(error.missing_cfg_file).partition("/")
        return f"{group}={name} is not known; the options are {', '.join(options(group))}."
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if error.__cause__ is not None:
        lines += [line.strip() for line in str(error.__cause__).splitlines()[:1]]
    said = " ".join(line for line in lines if not line.startswith(("full_key:", "object_type=")))
    help_of = " ".join(filter(None, ("python -m pipeline", command, "--help")))
    return f"{said}. `{help_of}` shows the keys; quote values with special characters."
