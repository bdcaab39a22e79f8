"""How many sequences to decode side by side: as many as help and as there is memory for."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..native.context import MAX_SEQ
from ..native.llama import Model

_HELP = {"cpu": 32, "gpu": MAX_SEQ}
"""Sequences from which more make no token cheaper: a CPU's arithmetic is busy by then."""
_SHARE = 0.5
"""Of the free memory, what sequences may take."""


def n_seq(wanted: int, model: Model, *, n_ctx_seq: int, n_cells: int, device: str) -> int:
    """Sequences of a context: `wanted`, or the best number where that is 0; at least one, and
    never more than there are cells."""
    most = min(n_cells, MAX_SEQ)
    if wanted:
        return min(wanted, most)
    logits_and_mask = 5 * model.vocab.n_tokens
    each = n_ctx_seq * model.kv_bytes + logits_and_mask
    room = MAX_SEQ if device == "gpu" else int(_SHARE * free_memory() / each)
    return max(1, min(_HELP[device], most, room))


def free_memory() -> int:
    """Bytes that can be had without swapping, in this container."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free = 1024 * next(
            int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")
        )
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or `max`
        most = int(Path("/sys/fs/cgroup/memory.max").read_text("ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text("ascii"))
        free = min(free, most - used)
    return free
