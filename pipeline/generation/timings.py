"""Where the time of generation goes, part by part."""

from __future__ import annotations

import time
from enum import StrEnum


class Part(StrEnum):
    """Activities of the scheduler's thread."""

    DECODE = "decode"
    """In `llama_decode`, while other threads compute masks."""
    MASK = "mask_wait"
    """Waiting for masks, or computing those that decide whether there is anything to decode."""
    SELECT = "select"
    """Choosing tokens from logits."""
    JUDGE = "judge"
    """Judging masks and outputs: the oracle, the checkers."""
    PYTHON = "python"
    """Everything else: compiling grammars, batches, bookkeeping."""


class Stopwatch:
    """Seconds for each part: the time since the last lap goes to the part that a lap names."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(Part, 0.0)
        self._last = time.perf_counter()

    def start(self) -> None:
        """The next lap begins now."""
        self._last = time.perf_counter()

    def lap(self, part: Part) -> None:
        """Everything since the last lap was this part."""
        now = time.perf_counter()
        self.seconds[part] += now - self._last
        self._last = now
