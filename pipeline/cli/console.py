"""Console output of all commands: texts and errors."""

from __future__ import annotations

import os
import sys

from ..model.errors import PipelineError
from ..system.text import visible


def say(text: str) -> None:
    """Print a text; a closed pipe (`| head`) does not change the exit code."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(error: PipelineError) -> int:
    """Print an error on one line; returns its exit code."""
    print(visible(f"error: {error}", 4000), file=sys.stderr)
    return 2


def complain_by_line(error: PipelineError) -> int:
    """Print an error whose text has several lines; returns its exit code."""
    for line in f"error: {error}".splitlines():
        print(visible(line, 2000), file=sys.stderr)
    return 2
