"""The number of sequences in a batch: as many as speed up decoding and fit into memory."""

from __future__ import annotations

from ..native.context import MAX_SEQ
from ..native.llama import Model
from ..system import memory

_HELP = {"cpu": 32, "gpu": MAX_SEQ}
"""Batch size beyond which throughput stops growing, by device."""
_SHARE = 0.5
"""Share of the free memory that sequences may use."""


def n_seq(wanted: int, model: Model, *, n_ctx_seq: int, n_cells: int, device: str) -> int:
    """The number of sequences of a context: `wanted`, or the best number if that is 0. It is at
    least one and at most the number of cells."""
    most = min(n_cells, MAX_SEQ)
    if wanted:
        return min(wanted, most)
    logits_and_mask = 5 * model.vocab.n_tokens
    each = n_ctx_seq * model.kv_bytes + logits_and_mask
    room = MAX_SEQ if device == "gpu" else int(_SHARE * memory.free() / each)
    return max(1, min(_HELP[device], most, room))
