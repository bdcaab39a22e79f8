"""llama.cpp's contexts through ctypes: decode several sequences in batches and read logits."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llama_cpp.llama_cpp as _c
import numpy as np
import numpy.typing as npt

from ..model.errors import LoadRefused
from .llama import I32, VOID, Model, bind, last_log_lines

_decode = bind("llama_decode", I32, VOID, _c.llama_batch)
_get_logits = bind("llama_get_logits", VOID, VOID)

MAX_SEQ = 256
"""Largest number of sequences in a context (`LLAMA_MAX_SEQ`)."""

Entry = tuple[int, int, int, bool]
"""One token of a batch: (id, position, sequence, whether to compute logits)."""


class Context:
    """A `llama_context` of `n_seq` sequences with `n_ctx_seq` cache cells each.

    `kv_unified=False` and a fixed flash-attention setting make a sequence produce the same tokens
    in a batch as alone. On a GPU use flash attention; on a CPU it is slower for short texts. Raises
    `LoadRefused` if llama.cpp cannot create the context.
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
            raise LoadRefused(last_log_lines() or "llama.cpp could not create a context")
        self._memory = _c.llama_get_memory(self._handle)  # pyright: ignore
        self.n_vocab = model.vocab.n_tokens
        self.n_batch: int = _c.llama_n_batch(self._handle)  # pyright: ignore
        self._batch = _Batch(self.n_batch)

    def decode(self, entries: Sequence[Entry]) -> npt.NDArray[np.float32]:
        """Decode the entries in one batch.

        Returns the logits of the entries that ask for them, in order, shape (n_wanted, n_vocab).
        The array is a view, valid until the next decode. Releases the GIL meanwhile. Raises
        RuntimeError with the return code of `llama_decode`, or ValueError if there are no entries
        or more than `n_batch`.
        """
        if not 0 < len(entries) <= self.n_batch:
            raise ValueError(f"a batch holds 1 to {self.n_batch} tokens, not {len(entries)}")
        n_wanted = self._batch.fill(entries)
        code = _decode(self._handle, self._batch.struct)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code} ({last_log_lines()})")
        if not n_wanted:
            return np.empty((0, self.n_vocab), np.float32)
        address = _get_logits(self._handle)
        if not address:
            raise RuntimeError(f"llama.cpp returned no logits for {n_wanted} entries")
        rows = (ctypes.c_float * (n_wanted * self.n_vocab)).from_address(address)
        return np.ctypeslib.as_array(rows).reshape(n_wanted, self.n_vocab)

    def copy(self, source: int, target: int) -> None:
        """Copy all of sequence `source` to sequence `target` (`llama_memory_seq_cp`)."""
        _c.llama_memory_seq_cp(self._memory, source, target, -1, -1)  # pyright: ignore

    def keep(self, sequence: int, n: int) -> bool:
        """Remove all but the first `n` tokens of a sequence (`llama_memory_seq_rm`).

        False if the model's memory does not support that, as in recurrent models: the sequence must
        then be cleared.
        """
        return bool(_c.llama_memory_seq_rm(self._memory, sequence, n, -1))  # pyright: ignore

    def clear(self, sequence: int) -> None:
        """Remove all tokens of a sequence."""
        _c.llama_memory_seq_rm(self._memory, sequence, -1, -1)  # pyright: ignore

    def close(self) -> None:
        """Free the context; a second call does nothing."""
        if self._handle:
            _c.llama_free(self._handle)  # pyright: ignore
            self._handle = None


class _Batch:
    """A `llama_batch` over numpy arrays, filled column by column."""

    def __init__(self, room: int) -> None:
        self._columns = np.zeros((3, room), np.int32)  # token, position, sequence
        self._wanted = np.zeros(room, np.int8)
        self._n_seq_id = np.ones(room, np.int32)
        sequences = self._columns[2]
        step = sequences.itemsize * np.arange(room, dtype=np.uintp)
        self._seq_id = step + np.uintp(sequences.ctypes.data)  # one pointer per token
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
        """Write the entries into the batch; returns how many ask for logits."""
        n = len(entries)
        table = np.array(entries, np.int32)
        self._columns[:, :n] = table[:, :3].T
        self._wanted[:n] = table[:, 3]
        self.struct.n_tokens = n
        return int(table[:, 3].sum())
