"""How many sequences to decode side by side: as many as help and as there is memory for."""

from __future__ import annotations

from ..native.context import MAX_SEQ
from ..native.llama import Model
from ..system import memory

_HELP = {"cpu": 32, "gpu": MAX_SEQ}
"""Batch size beyond which throughput stops growing, by device."""
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
    room = MAX_SEQ if device == "gpu" else int(_SHARE * memory.free() / each)
    return max(1, min(_HELP[device], most, room))
