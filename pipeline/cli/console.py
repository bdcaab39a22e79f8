"""What every command does with a text: print it for a person, and say an error on one line."""

from __future__ import annotations

import os
import sys

from ..model.errors import PipelineError
from ..system.text import visible


def say(text: str) -> None:
    """Print; a reader that went away (`| head`) does not change the exit code."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(error: PipelineError) -> int:
    """Print an error as one line; the exit code for it."""
    print(visible(f"error: {error}", 4000), file=sys.stderr)
    return 2


def complain_by_line(error: PipelineError) -> int:
    """Print an error whose text has lines of its own; the exit code for it."""
    for line in f"error: {error}".splitlines():
        print(visible(line, 2000), file=sys.stderr)
    return 2
