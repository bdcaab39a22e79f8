"""llama.cpp through ctypes: owning handles (use `contextlib.closing`), and nothing else.

One of the two files that touch native handles (the other is `llguidance_abi`). It is imported in
worker processes only: llama.cpp aborts the process on many bad inputs, among them ids out of
range, a batch larger than `n_batch`, and any tokenization on a vocabulary-only "none" file.

Sources: `include/llama.h` and `src/llama-vocab.cpp` of the llama.cpp that llama-cpp-python carries.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import LoadRefused

# ggml's asserts run gdb unless told not to; its output would fill the pipe to the parent.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import llama_cpp.llama_cpp as _c

_VOID = ctypes.c_void_p
_I32 = ctypes.c_int32
_BOOL = ctypes.c_bool


def _bind(name: str, restype: Any, *argtypes: Any) -> Any:
    """A private prototype of a llama.h function, so that hot loops pay no conversion."""
    function = _c._lib[name]  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType]
    function.restype = restype
    function.argtypes = list(argtypes)
    return function  # pyright: ignore[reportUnknownVariableType]


_tokenize = _bind("llama_tokenize", _I32, _VOID, _VOID, _I32, _VOID, _I32, _BOOL, _BOOL)
_token_to_piece = _bind("llama_token_to_piece", _I32, _VOID, _I32, _VOID, _I32, _I32, _BOOL)
_detokenize = _bind("llama_detokenize", _I32, _VOID, _VOID, _I32, _VOID, _I32, _BOOL, _BOOL)
_get_text = _bind("llama_vocab_get_text", ctypes.c_char_p, _VOID, _I32)
_get_score = _bind("llama_vocab_get_score", ctypes.c_float, _VOID, _I32)
_get_attr = _bind("llama_vocab_get_attr", _I32, _VOID, _I32)
_is_eog = _bind("llama_vocab_is_eog", _BOOL, _VOID, _I32)
_n_tokens = _bind("llama_vocab_n_tokens", _I32, _VOID)
_vocab_type = _bind("llama_vocab_type", ctypes.c_int, _VOID)
_special = {
    name: _bind(f"llama_vocab_{name}", _I32, _VOID) for name in ("bos", "eos", "eot", "nl", "pad")
}
_n_layer, _n_embd, _n_head, _n_head_kv = (
    _bind(f"llama_model_n_{name}", _I32, _VOID) for name in ("layer", "embd", "head", "head_kv")
)
_adds = {name: _bind(f"llama_vocab_get_add_{name}", _BOOL, _VOID) for name in ("bos", "eos")}
_meta = _bind("llama_model_meta_val_str", _I32, _VOID, ctypes.c_char_p, _VOID, ctypes.c_size_t)
_decode = _bind("llama_decode", _I32, _VOID, _c.llama_batch)
_get_logits = _bind("llama_get_logits", _VOID, _VOID)

PIECE_LIMIT = 1024
"""Bytes of one piece above which llama.cpp's llguidance bridge aborts (`max_token` there)."""

_log_tail: deque[str] = deque(maxlen=20)


@_c.llama_log_callback  # pyright: ignore[reportUntypedFunctionDecorator, reportUnknownMemberType]
def _keep_log(level: int, text: bytes, _: Any) -> None:
    if level in (3, 4):  # GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR
        _log_tail.append(text.decode("utf-8", "replace").strip())


def start() -> None:
    """Start the backend once per process; its log is kept in memory, not printed."""
    _c.llama_log_set(_keep_log, ctypes.c_void_p(0))  # pyright: ignore
    _c.llama_backend_init()


def last_words() -> str:
    """The latest warnings and errors of llama.cpp, newest last."""
    return " | ".join(line for line in list(_log_tail)[-4:] if line)


def library_path() -> Path:
    """The shared library in use."""
    return Path(_c._lib._name)  # pyright: ignore


def can_offload() -> bool:
    """Whether this llama.cpp was built for a GPU and finds one."""
    return bool(_c.llama_supports_gpu_offload())


def system_info() -> str:
    """What llama.cpp says of its build and the processor."""
    return bytes(_c.llama_print_system_info()).decode("utf-8", "replace").strip()


class Vocab:
    """The `llama_vocab` of a loaded model; lives as long as its `Model`."""

    def __init__(self, handle: int, file: Path) -> None:
        self._handle = handle
        self.file = file
        self.n_tokens: int = _n_tokens(handle)
        self.type: int = _vocab_type(handle)
        self._buffer = ctypes.create_string_buffer(1 << 16)
        self._ids = (_I32 * 1)()
        self._detokenized: dict[bool, list[bytes]] = {}

    @property
    def handle(self) -> int:
        """The `llama_vocab *`."""
        return self._handle

    def special_id(self, name: str) -> int:
        """The id of `bos`, `eos`, `eot`, `nl` or `pad`; -1 if the vocabulary has none."""
        return int(_special[name](self._handle))

    def adds(self, name: str) -> bool:
        """Whether `add_special` puts the `bos` in front, or the `eos` behind."""
        return bool(_adds[name](self._handle))

    def texts(self) -> list[bytes]:
        """Each token's text as the file spells it, escapes and all (`llama_vocab_get_text`)."""
        handle = self._handle
        return [_get_text(handle, i) for i in range(self.n_tokens)]

    def scores(self) -> npt.NDArray[np.float32]:
        """Each token's score, shape (n_tokens,)."""
        handle = self._handle
        return np.array([_get_score(handle, i) for i in range(self.n_tokens)], np.float32)

    def attributes(self) -> npt.NDArray[np.uint32]:
        """Each token's `llama_token_attr` bits, shape (n_tokens,)."""
        handle = self._handle
        return np.array([_get_attr(handle, i) for i in range(self.n_tokens)], np.uint32)

    def end_of_generation(self) -> list[int]:
        """Every id on which llama.cpp's runtimes stop (`llama_vocab_is_eog`)."""
        handle = self._handle
        return [i for i in range(self.n_tokens) if _is_eog(handle, i)]

    def pieces(self, *, special: bool) -> list[bytes]:
        """`llama_token_to_piece(lstrip=0)` of every id; see `piece`."""
        handle, buffer = self._handle, self._buffer
        size, call, read = len(buffer), _token_to_piece, ctypes.string_at
        address = ctypes.addressof(buffer)
        out: list[bytes] = []
        for i in range(self.n_tokens):
            n = call(handle, i, address, size, 0, special)
            out.append(read(address, n) if n >= 0 else self.piece(i, special=special))
        return out

    def piece(self, token: int, *, special: bool) -> bytes:
        """The bytes llama.cpp renders for one id; control tokens are empty unless `special`."""
        self._check(token)
        return self._sized(
            lambda p, n: _token_to_piece(self._handle, token, p, n, 0, special),
        )

    def detokenize_each(self, *, special: bool) -> list[bytes]:
        """`llama_detokenize` of every id alone, as llama.cpp's llguidance bridge calls it.

        Several builders want it, so it is kept; it is not to be changed.
        """
        if special in self._detokenized:
            return self._detokenized[special]
        handle, buffer, ids = self._handle, self._buffer, self._ids
        size, call, read = len(buffer), _detokenize, ctypes.string_at
        address, pointer = ctypes.addressof(buffer), ctypes.addressof(ids)
        out: list[bytes] = []
        for i in range(self.n_tokens):
            ids[0] = i
            n = call(handle, pointer, 1, address, size, False, special)
            out.append(read(address, n) if n >= 0 else self.detokenize([i], special=special))
        self._detokenized[special] = out
        return out

    def detokenize(self, tokens: Sequence[int], *, special: bool) -> bytes:
        """`llama_detokenize(remove_special=false, unparse_special=special)`."""
        for token in tokens:
            self._check(token)
        ids = (_I32 * len(tokens))(*tokens)
        return self._sized(
            lambda p, n: _detokenize(
                self._handle, ctypes.addressof(ids), len(tokens), p, n, False, special
            ),
        )

    def tokenize(self, data: bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        """`llama_tokenize`. It throws, which ends the process, where a byte has no token."""
        room = len(data) + 16
        while True:
            ids = (_I32 * room)()
            n = _tokenize(self._handle, data, len(data), ids, room, add_special, parse_special)
            if n >= 0:
                return ids[:n]
            room = -n

    def _check(self, token: int) -> None:
        if not 0 <= token < self.n_tokens:
            raise IndexError(f"token id {token} is not in 0..{self.n_tokens - 1}")

    def _sized(self, call: Callable[[int, int], int]) -> bytes:
        buffer = self._buffer
        n = call(ctypes.addressof(buffer), len(buffer))
        if n < 0:
            buffer = ctypes.create_string_buffer(-n)
            n = call(ctypes.addressof(buffer), -n)
        return ctypes.string_at(buffer, n)


class Model:
    """A loaded GGUF; `vocab_only` reads no tensors. Raises `LoadRefused` with llama.cpp's words."""

    def __init__(self, path: Path, *, vocab_only: bool, n_gpu_layers: int = 0) -> None:
        params = _c.llama_model_default_params()
        params.vocab_only = vocab_only
        params.n_gpu_layers = n_gpu_layers
        _log_tail.clear()
        self._handle: int | None = _c.llama_model_load_from_file(os.fsencode(path), params)
        if not self._handle:
            raise LoadRefused(last_words() or "llama.cpp gave no reason")
        self.vocab = Vocab(_c.llama_model_get_vocab(self._handle), path)  # pyright: ignore

    @property
    def handle(self) -> int:
        """The `llama_model *`; raises once the model is closed."""
        if not self._handle:
            raise RuntimeError("the model is closed")
        return self._handle

    @property
    def kv_bytes(self) -> int:
        """Bytes of key and value cache for one token, in 16-bit floats."""
        arch = self.meta("general.architecture")
        head = self.meta(f"{arch}.attention.key_length")
        width = int(head) if head else _n_embd(self.handle) // max(_n_head(self.handle), 1)
        return 2 * 2 * _n_layer(self.handle) * _n_head_kv(self.handle) * width

    def meta(self, key: str) -> str | None:
        """A metadata value of the file as text, None where the key is absent."""
        room = 4096
        while True:
            buffer = ctypes.create_string_buffer(room)
            n = _meta(self.handle, key.encode(), buffer, room)
            if n < room:
                return buffer.value.decode("utf-8", "replace") if n >= 0 else None
            room = n + 1

    def close(self) -> None:
        """Free the model; harmless when done twice."""
        if self._handle:
            _c.llama_model_free(self._handle)  # pyright: ignore
            self._handle = None


def high_level(file: str) -> Any:
    """llama-cpp-python's own `Llama` of a file's vocabulary, for libraries that take one."""
    from llama_cpp import Llama

    return Llama(file, vocab_only=True, verbose=False)


def vocab_of(wrapper: Any) -> Any:
    """The `llama_vocab *` in a `Llama`, for libraries that take that; lives as long as it."""
    return _c.llama_model_get_vocab(wrapper.model)


class GrammarSampler:
    """llama.cpp's grammar sampler over a GBNF text. Raises ValueError where it does not parse.

    `accept` throws, which ends the process, for a token that the mask refuses.
    """

    def __init__(self, model: Model, grammar: str) -> None:
        handle = _c.llama_sampler_init_grammar(model.vocab.handle, grammar.encode(), b"root")  # pyright: ignore
        if not handle:
            raise ValueError(last_words() or "llama.cpp could not read the grammar")
        self._adopt(model, handle)

    def _adopt(self, model: Model, handle: Any) -> None:
        self._model, self._handle = model, handle
        weakref.finalize(self, _c.llama_sampler_free, handle)  # pyright: ignore

    def mask(self) -> bytes:
        """The allowed tokens, one bit an id, least significant first, in whole 32-bit words."""
        n_tokens = self._model.vocab.n_tokens
        data = np.zeros(n_tokens, [("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        data["id"] = np.arange(n_tokens)
        array = _c.llama_token_data_array(
            data=ctypes.cast(data.ctypes.data, _c.llama_token_data_p),  # pyright: ignore
            size=n_tokens,
            selected=-1,
            sorted=False,
        )
        _c.llama_sampler_apply(self._handle, ctypes.byref(array))  # pyright: ignore
        bits = np.zeros((n_tokens + 31) // 32 * 32, np.bool_)
        bits[data["id"]] = data["logit"] == 0
        return np.packbits(bits, bitorder="little").tobytes()

    def accept(self, token: int) -> None:
        """Advance by a token that the mask allows."""
        _c.llama_sampler_accept(self._handle, token)  # pyright: ignore

    def clone(self) -> GrammarSampler:
        """A sampler of its own in the same state."""
        twin = GrammarSampler.__new__(GrammarSampler)
        twin._adopt(self._model, _c.llama_sampler_clone(self._handle))  # pyright: ignore
        return twin


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
        integers = ctypes.POINTER(_I32)
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
