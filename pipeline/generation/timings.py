"""The time spent on each part of generation."""

from __future__ import annotations

import time
from enum import StrEnum


class Part(StrEnum):
    """Activities of the scheduler's thread."""

    DECODE = "decode"
    """In `llama_decode`, while other threads compute masks."""
    MASK = "mask_wait"
    """Waiting for masks, or computing a mask early to find a forced token."""
    SELECT = "select"
    """Choosing tokens from the logits."""
    JUDGE = "judge"
    """Judging masks and outputs with the oracle and the checkers."""
    PYTHON = "python"
    """Everything else: compiling grammars, batches, bookkeeping."""


class Stopwatch:
    """Seconds for each part; `lap` adds the time since the last lap to the part it names."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(Part, 0.0)
        self._last = time.perf_counter()

    def start(self) -> None:
        """Begin the next lap now."""
        self._last = time.perf_counter()

    def lap(self, part: Part) -> None:
        """Add the time since the last lap to this part."""
        now = time.perf_counter()
        self.seconds[part] += now - self._last
        self._last = now
