"""llama.cpp's contexts through ctypes: several sequences decoded in batches, and their logits."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llama_cpp.llama_cpp as _c
import numpy as np
import numpy.typing as npt

from ..model.errors import LoadRefused
from .llama import I32, VOID, Model, bind, last_words

_decode = bind("llama_decode", I32, VOID, _c.llama_batch)
_get_logits = bind("llama_get_logits", VOID, VOID)

MAX_SEQ = 256
"""Sequences that a context can hold at most (`LLAMA_MAX_SEQ`)."""

Entry = tuple[int, int, int, bool]
"""One token of a batch: its id, its position, its sequence, whether its logits are wanted."""


class Context:
    """A `llama_context` of `n_seq` sequences, each with `n_ctx_seq` cells of its own.

    `kv_unified=False` and a pinned flash-attention setting give a sequence the same tokens in a
    batch as alone. Flash attention is what a GPU's other kernels are measured against; on a CPU
    it is slower for short texts.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_seq: int,
        n_ctx_seq: int,
        n_batch: int,
        n_threads: int,
        flash_attention: bool = False,
    ) -> None:
        params = _c.llama_context_default_params()
        params.n_seq_max = n_seq
        params.n_ctx = n_seq * n_ctx_seq
        params.n_batch = params.n_ubatch = n_batch
        params.n_threads = params.n_threads_batch = n_threads
        params.kv_unified = False
        params.flash_attn_type = (
            _c.LLAMA_FLASH_ATTN_TYPE_ENABLED
            if flash_attention
            else _c.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        params.no_perf = True
        self._handle: int | None = _c.llama_init_from_model(model.handle, params)  # pyright: ignore
        if not self._handle:
            raise LoadRefused(last_words() or "llama.cpp could not make a context")
        self._memory = _c.llama_get_memory(self._handle)  # pyright: ignore
        self.n_vocab = model.vocab.n_tokens
        self.n_batch: int = _c.llama_n_batch(self._handle)  # pyright: ignore
        self._batch = _Batch(self.n_batch)

    def decode(self, entries: Sequence[Entry]) -> npt.NDArray[np.float32]:
        """Decode (token, position, sequence, wants logits) entries in one batch.

        Returns the logits of the entries that want them, in order, shape (n_wanted, n_vocab): a
        view that is stale after the next decode. Other threads run meanwhile. Raises RuntimeError
        with the return code of `llama_decode`, ValueError for more entries than `n_batch`.
        """
        if not 0 < len(entries) <= self.n_batch:
            raise ValueError(f"a batch holds 1 to {self.n_batch} tokens, not {len(entries)}")
        n_wanted = self._batch.fill(entries)
        code = _decode(self._handle, self._batch.struct)
        if code != 0:
            raise RuntimeError(f"llama_decode answered {code} ({last_words()})")
        if not n_wanted:
            return np.empty((0, self.n_vocab), np.float32)
        address = _get_logits(self._handle)
        if not address:
            raise RuntimeError(f"no logits for the {n_wanted} entries that want them")
        rows = (ctypes.c_float * (n_wanted * self.n_vocab)).from_address(address)
        return np.ctypeslib.as_array(rows).reshape(n_wanted, self.n_vocab)

    def copy(self, source: int, target: int) -> None:
        """Make sequence `target` equal to `source` (`llama_memory_seq_cp`, whole)."""
        _c.llama_memory_seq_cp(self._memory, source, target, -1, -1)  # pyright: ignore

    def keep(self, sequence: int, n: int) -> bool:
        """Forget all but the first `n` tokens; False where the model's memory cannot (recurrent
        ones), and the sequence must be cleared."""
        return bool(_c.llama_memory_seq_rm(self._memory, sequence, n, -1))  # pyright: ignore

    def clear(self, sequence: int) -> None:
        """Forget a sequence."""
        _c.llama_memory_seq_rm(self._memory, sequence, -1, -1)  # pyright: ignore

    def close(self) -> None:
        """Free the context; harmless when done twice."""
        if self._handle:
            _c.llama_free(self._handle)  # pyright: ignore
            self._handle = None


class _Batch:
    """A `llama_batch` over arrays of our own, filled by column and not by token."""

    def __init__(self, room: int) -> None:
        self._columns = np.zeros((3, room), np.int32)  # token, position, sequence
        self._wanted = np.zeros(room, np.int8)
        self._n_seq_id = np.ones(room, np.int32)
        sequences = self._columns[2]
        step = sequences.itemsize * np.arange(room, dtype=np.uintp)
        self._seq_id = step + np.uintp(sequences.ctypes.data)  # one pointer a token
        self.struct = _c.llama_batch()
        integers = ctypes.POINTER(I32)
        for name, column, kind in (
            ("token", self._columns[0], integers),
            ("pos", self._columns[1], integers),
            ("n_seq_id", self._n_seq_id, integers),
            ("seq_id", self._seq_id, ctypes.POINTER(integers)),
            ("logits", self._wanted, ctypes.POINTER(ctypes.c_int8)),
        ):
            setattr(self.struct, name, ctypes.cast(column.ctypes.data, kind))

    def fill(self, entries: Sequence[Entry]) -> int:
        """Write the entries in; how many want logits."""
        n = len(entries)
        table = np.array(entries, np.int32)
        self._columns[:, :n] = table[:, :3].T
        self._wanted[:n] = table[:, 3]
        self.struct.n_tokens = n
        return int(table[:, 3].sum())
