"""llama.cpp's vocabularies and models through ctypes, as owning handles (use `contextlib.closing`).

Imported in worker processes only. llama.cpp aborts the process on many bad inputs: ids out of
range, a batch larger than `n_batch`, any tokenization with a vocabulary-only "none" file.

Sources: `include/llama.h` and `src/llama-vocab.cpp` of the llama.cpp in llama-cpp-python.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

# By default ggml's asserts run gdb, whose output would fill the pipe to the parent.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import llama_cpp.llama_cpp as _c

from ..model.errors import LoadRefused

VOID = ctypes.c_void_p
I32 = ctypes.c_int32
_BOOL = ctypes.c_bool


def bind(name: str, restype: Any, *argtypes: Any) -> Any:
    """A llama.h function with its own ctypes prototype, so that hot loops convert no arguments."""
    function = _c._lib[name]  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType]
    function.restype = restype
    function.argtypes = list(argtypes)
    return function  # pyright: ignore[reportUnknownVariableType]


_tokenize = bind("llama_tokenize", I32, VOID, VOID, I32, VOID, I32, _BOOL, _BOOL)
_token_to_piece = bind("llama_token_to_piece", I32, VOID, I32, VOID, I32, I32, _BOOL)
_detokenize = bind("llama_detokenize", I32, VOID, VOID, I32, VOID, I32, _BOOL, _BOOL)
_get_text = bind("llama_vocab_get_text", ctypes.c_char_p, VOID, I32)
_get_score = bind("llama_vocab_get_score", ctypes.c_float, VOID, I32)
_get_attr = bind("llama_vocab_get_attr", I32, VOID, I32)
_is_eog = bind("llama_vocab_is_eog", _BOOL, VOID, I32)
_n_tokens = bind("llama_vocab_n_tokens", I32, VOID)
_vocab_type = bind("llama_vocab_type", ctypes.c_int, VOID)
_special = {
    name: bind(f"llama_vocab_{name}", I32, VOID) for name in ("bos", "eos", "eot", "nl", "pad")
}
_n_layer, _n_embd, _n_head, _n_head_kv = (
    bind(f"llama_model_n_{name}", I32, VOID) for name in ("layer", "embd", "head", "head_kv")
)
_adds = {name: bind(f"llama_vocab_get_add_{name}", _BOOL, VOID) for name in ("bos", "eos")}
_meta = bind("llama_model_meta_val_str", I32, VOID, ctypes.c_char_p, VOID, ctypes.c_size_t)

PIECE_LIMIT = 1024
"""Longest piece in bytes; above it llama.cpp's llguidance bridge aborts (`max_token` there)."""

_AMX = "AMX_INT8 = 1"
"""The part of `system_info` that says llama.cpp multiplies quantized weights with AMX. Compilers
such as GCC 12 drop most of the tile configuration, and llama.cpp then crashes with SIGSEGV at its
first batch (llama.cpp issue 20824, pull request 26954). So weights are never laid out for AMX."""

_log_tail: deque[str] = deque(maxlen=20)


@_c.llama_log_callback  # pyright: ignore[reportUntypedFunctionDecorator, reportUnknownMemberType]
def _keep_log(level: int, text: bytes, _: Any) -> None:
    if level in (3, 4):  # GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR
        _log_tail.append(text.decode("utf-8", "replace").strip())


def start() -> None:
    """Start the backend; call it once per process. Its log is kept in memory, not printed."""
    _c.llama_log_set(_keep_log, ctypes.c_void_p(0))  # pyright: ignore
    _c.llama_backend_init()


def last_log_lines() -> str:
    """The last four warnings and errors that llama.cpp logged, newest last."""
    return " | ".join(line for line in list(_log_tail)[-4:] if line)


def library_path() -> Path:
    """The path of the llama.cpp shared library in use."""
    return Path(_c._lib._name)  # pyright: ignore


def can_offload() -> bool:
    """Whether this llama.cpp was built with GPU support and finds a GPU."""
    return bool(_c.llama_supports_gpu_offload())


def build() -> str:
    """The version of ggml and the commit that the library reports (`ggml_version`, `ggml_commit`);
    empty if it reports none."""
    said: list[str] = []
    for name in ("ggml_version", "ggml_commit"):
        try:
            function = _c._lib[name]  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType]
        except AttributeError:
            continue
        function.restype = ctypes.c_char_p
        said.append(bytes(function()).decode("utf-8", "replace"))  # pyright: ignore[reportUnknownArgumentType]
    return " ".join(part for part in (*said[:1], *(f"commit {one}" for one in said[1:])) if part)


def system_info() -> str:
    """llama.cpp's description of its build and the processor (`llama_print_system_info`)."""
    return bytes(_c.llama_print_system_info()).decode("utf-8", "replace").strip()


class Vocab:
    """The `llama_vocab` of a loaded model; valid as long as its `Model` is open."""

    def __init__(self, handle: int, file: Path) -> None:
        self._handle = handle
        self.file = file
        self.n_tokens: int = _n_tokens(handle)
        self.type: int = _vocab_type(handle)
        self._buffer = ctypes.create_string_buffer(1 << 16)
        self._ids = (I32 * 1)()
        self._detokenized: dict[bool, list[bytes]] = {}

    @property
    def handle(self) -> int:
        """The `llama_vocab *`."""
        return self._handle

    def special_id(self, name: str) -> int:
        """The id of `bos`, `eos`, `eot`, `nl` or `pad`; -1 if the vocabulary has none."""
        return int(_special[name](self._handle))

    def adds(self, name: str) -> bool:
        """Whether `add_special` adds this token: `bos` at the start or `eos` at the end."""
        return bool(_adds[name](self._handle))

    def texts(self) -> list[bytes]:
        """Each token's text as in the file, with its escapes (`llama_vocab_get_text`)."""
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
        """Every id at which llama.cpp's runtimes stop (`llama_vocab_is_eog`)."""
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
        """The bytes that llama.cpp renders for one id; control tokens are empty unless `special`.

        Raises IndexError for an id out of range.
        """
        self._check(token)
        return self._sized(
            lambda p, n: _token_to_piece(self._handle, token, p, n, 0, special),
        )

    def detokenize_each(self, *, special: bool) -> list[bytes]:
        """`llama_detokenize` of every id alone, as llama.cpp's llguidance bridge calls it.

        Several builders use the list, so it is cached; do not modify it.
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
        """`llama_detokenize(remove_special=false, unparse_special=special)`.

        Raises IndexError for an id out of range.
        """
        for token in tokens:
            self._check(token)
        ids = (I32 * len(tokens))(*tokens)
        return self._sized(
            lambda p, n: _detokenize(
                self._handle, ctypes.addressof(ids), len(tokens), p, n, False, special
            ),
        )

    def tokenize(self, data: bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        """`llama_tokenize`. If a byte has no token, it throws in C++ and ends the process."""
        room = len(data) + 16
        while True:
            ids = (I32 * room)()
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
    """A loaded GGUF; `vocab_only` reads no tensors. Raises `LoadRefused` with llama.cpp's log."""

    def __init__(self, path: Path, *, vocab_only: bool, n_gpu_layers: int = 0) -> None:
        params = _c.llama_model_default_params()
        params.vocab_only = vocab_only
        params.n_gpu_layers = n_gpu_layers
        if _AMX in system_info():
            params.use_extra_bufts = False
        _log_tail.clear()
        self._handle: int | None = _c.llama_model_load_from_file(os.fsencode(path), params)
        if not self._handle:
            raise LoadRefused(last_log_lines() or "llama.cpp gave no reason")
        self.vocab = Vocab(_c.llama_model_get_vocab(self._handle), path)  # pyright: ignore

    @property
    def handle(self) -> int:
        """The `llama_model *`; raises once the model is closed."""
        if not self._handle:
            raise RuntimeError("the model is closed")
        return self._handle

    @property
    def kv_bytes(self) -> int:
        """Bytes that the key-value cache needs for one token, with 16-bit floats."""
        arch = self.meta("general.architecture")
        head = self.meta(f"{arch}.attention.key_length")
        width = int(head) if head else _n_embd(self.handle) // max(_n_head(self.handle), 1)
        return 2 * 2 * _n_layer(self.handle) * _n_head_kv(self.handle) * width

    def meta(self, key: str) -> str | None:
        """A metadata value of the file as text; None if the key is absent."""
        room = 4096
        while True:
            buffer = ctypes.create_string_buffer(room)
            n = _meta(self.handle, key.encode(), buffer, room)
            if n < room:
                return buffer.value.decode("utf-8", "replace") if n >= 0 else None
            room = n + 1

    def close(self) -> None:
        """Free the model; a second call does nothing."""
        if self._handle:
            _c.llama_model_free(self._handle)  # pyright: ignore
            self._handle = None


def high_level(file: str) -> Any:
    """llama-cpp-python's `Llama` with the vocabulary of a file, for libraries that need one."""
    from llama_cpp import Llama

    return Llama(file, vocab_only=True, verbose=False)


def vocab_of(wrapper: Any) -> Any:
    """The `llama_vocab *` of a `Llama`, for libraries that need it; valid while `wrapper` lives."""
    return _c.llama_model_get_vocab(wrapper.model)
