"""llguidance's C interface through ctypes, as owning handles.

The extension module of the `llguidance` wheel exports the C functions that llama.cpp's bridge links
against (`parser/llguidance.h`). So a token table is passed as the bridge passes it, through
`LlgTokenizerInit`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..model.errors import BuilderRefused, TokenizeRaised, described

_NO_TOKEN = 0xFFFFFFFF
"""llama.cpp's -1 ("no such token") when stored in an `LlgToken`."""

_TokenizeFn = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_size_t,
)


class _TokenizerInit(ctypes.Structure):
    """`LlgTokenizerInit` (version 1, which the bridge uses)."""

    _fields_ = (
        ("vocab_size", ctypes.c_uint32),
        ("tok_eos", ctypes.c_uint32),
        ("token_lens", ctypes.c_void_p),
        ("token_bytes", ctypes.c_void_p),
        ("tokenizer_json", ctypes.c_char_p),
        ("tokenize_assumes_string", ctypes.c_bool),
        ("tokenize_fn", _TokenizeFn),
        ("use_approximate_greedy_tokenize_fn", ctypes.c_bool),
        ("tokenize_user_data", ctypes.c_void_p),
        ("slices", ctypes.c_void_p),
    )


class _ParserLimits(ctypes.Structure):
    """`LlgParserLimits`."""

    _fields_ = (
        ("max_items_in_row", ctypes.c_size_t),
        ("initial_lexer_fuel", ctypes.c_uint64),
        ("step_lexer_fuel", ctypes.c_uint64),
        ("step_max_items", ctypes.c_size_t),
        ("max_lexer_states", ctypes.c_size_t),
        ("max_grammar_size", ctypes.c_size_t),
        ("precompute_large_lexemes", ctypes.c_bool),
        ("verbose_errors", ctypes.c_bool),
    )


class _ConstraintInit(ctypes.Structure):
    """`LlgConstraintInit`."""

    _fields_ = (
        ("tokenizer", ctypes.c_void_p),
        ("log_buffer_level", ctypes.c_uint32),
        ("log_stderr_level", ctypes.c_uint32),
        ("ff_tokens_ok", ctypes.c_bool),
        ("backtrack_ok", ctypes.c_bool),
        ("limits", _ParserLimits),
    )


def library_path() -> Path:
    """The shared library in use: `$BYTE_EXACT_LLGUIDANCE_LIB`, else the one in the wheel.

    Does not import llguidance. Raises ImportError if it is not installed.
    """
    if told := os.environ.get("BYTE_EXACT_LLGUIDANCE_LIB"):
        return Path(told)
    spec = importlib.util.find_spec("llguidance")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("llguidance is not installed")
    folder = Path(next(iter(spec.submodule_search_locations)))
    return next(path for path in sorted(folder.glob("_lib*")) if path.suffix in {".so", ".pyd"})


_lib = ctypes.CDLL(os.fspath(library_path()))


def _bind(name: str, restype: Any, *argtypes: Any) -> Any:
    function = getattr(_lib, name)
    function.restype, function.argtypes = restype, list(argtypes)
    return function


_P, _I32, _SIZE, _BOOL = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t, ctypes.c_bool
_version = _bind("llg_get_version", ctypes.c_char_p)
_new_tokenizer = _bind("llg_new_tokenizer", _P, _P, _P, _SIZE)
_free_tokenizer = _bind("llg_free_tokenizer", None, _P)
_tokenize_bytes = _bind("llg_tokenize_bytes", _SIZE, _P, _P, _SIZE, _P, _SIZE)
_set_defaults = _bind("llg_constraint_init_set_defaults", None, _P, _P)
_new_matcher = _bind("llg_new_matcher", _P, _P, ctypes.c_char_p, ctypes.c_char_p)
_clone_matcher = _bind("llg_clone_matcher", _P, _P)
_free_matcher = _bind("llg_free_matcher", None, _P)
_get_error = _bind("llg_matcher_get_error", ctypes.c_char_p, _P)
_compute_mask = _bind("llg_matcher_compute_mask_into", _I32, _P, _P, _SIZE)
_own_mask = _bind("llg_matcher_compute_mask", _I32, _P)
_get_mask = _bind("llg_matcher_get_mask", _P, _P)
_mask_size = _bind("llg_matcher_get_mask_byte_size", _SIZE, _P)
_consume = _bind("llg_matcher_consume_token", _I32, _P, ctypes.c_uint32)
_is_accepting = _bind("llg_matcher_is_accepting", _BOOL, _P)
_is_stopped = _bind("llg_matcher_is_stopped", _BOOL, _P)
_ff_tokens = _bind("llg_matcher_compute_ff_tokens", _I32, _P, _P, _SIZE)


def version() -> str:
    """The library's version text, such as `llguidance@1.9.1 derivre@…`."""
    return bytes(_version()).decode()


class Tokenizer:
    """An `LlgTokenizer`. Raises `BuilderRefused` with llguidance's message.

    `token_bytes` has one entry per id; special tokens already begin with their 0xFF marker. If
    `tokenize` is None, llguidance tokenizes greedily (`use_approximate_greedy_tokenize_fn`) and
    never forces tokens.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        *,
        eos: int,
        tokenize: Callable[[bytes], list[int]] | None,
    ) -> None:
        self.n_tokens = len(token_bytes)
        self._raised: dict[int, str] = {}
        """By thread: the words of the first exception of the callback since `take_raised`."""
        lens = np.fromiter(map(len, token_bytes), np.uint32, self.n_tokens)
        arena = b"".join(token_bytes)
        self._tokenize = tokenize
        # The callback must live as long as the tokenizer: llguidance keeps only a pointer to it.
        self._callback = _TokenizeFn(self._call) if tokenize else _TokenizeFn()
        init = _TokenizerInit(
            vocab_size=self.n_tokens,
            tok_eos=eos & _NO_TOKEN,
            token_lens=lens.ctypes.data,
            token_bytes=ctypes.cast(ctypes.c_char_p(arena), _P),
            tokenize_assumes_string=True,
            tokenize_fn=self._callback,
            use_approximate_greedy_tokenize_fn=tokenize is None,
        )
        message = ctypes.create_string_buffer(1024)
        self._handle: int | None = _new_tokenizer(ctypes.byref(init), message, len(message))
        if not self._handle:
            raise BuilderRefused(message.value.decode("utf-8", "replace"))

    def _call(self, _: int | None, data: int | None, size: int, out: Any, room: int) -> int:
        try:
            assert self._tokenize is not None
            ids = self._tokenize(ctypes.string_at(data, size) if data and size else b"")
            strange = [token for token in ids if not 0 <= token < self.n_tokens]
        except BaseException as error:  # must not pass through C: kept for the caller
            return self._fail(described(error))
        if strange:
            return self._fail(f"id {strange[0]}, of {self.n_tokens} ids")
        for i, token in enumerate(ids[:room]):
            out[i] = token
        return len(ids)

    def _fail(self, said: str) -> int:
        """Keep the first failure of this thread; returns the number of ids, 0."""
        self._raised.setdefault(threading.get_ident(), said)
        return 0

    @property
    def raises(self) -> bool:
        """Whether an exception is kept for some thread; much cheaper than `take_raised`."""
        return bool(self._raised)

    def take_raised(self) -> str | None:
        """The first exception that the callback raised in this thread since the last call, in
        words; None if it raised none."""
        return self._raised.pop(threading.get_ident(), None)

    def tokenize(self, data: bytes) -> list[int]:
        """The ids of bytes as the engine tokenizes them (`llg_tokenize_bytes`).

        Raises TokenizeRaised if the builder's tokenization raises or returns an unknown id.
        """
        room = (ctypes.c_uint32 * (len(data) + 1))()
        n = _tokenize_bytes(self.handle, data, len(data), room, len(room))
        if (raised := self.take_raised()) is not None:
            raise TokenizeRaised(raised)
        return room[:n]

    @property
    def handle(self) -> int:
        """The `LlgTokenizer *`. Raises RuntimeError after `close`."""
        if not self._handle:
            raise RuntimeError("the tokenizer is closed")
        return self._handle

    def close(self) -> None:
        """Free the tokenizer; close all its matchers first."""
        if self._handle:
            _free_tokenizer(self._handle)
            self._handle = None


class Matcher:
    """An `LlgMatcher`: the state of one grammar over one tokenizer.

    If the grammar does not compile, `error` is set, as in the C interface.
    """

    def __init__(self, tokenizer: Tokenizer, kind: str, data: str) -> None:
        init = _ConstraintInit()
        _set_defaults(ctypes.byref(init), tokenizer.handle)
        init.log_stderr_level = 0
        init.limits.verbose_errors = False  # verbose errors hold the parser's state and timings
        self._adopt(tokenizer, _new_matcher(ctypes.byref(init), kind.encode(), _c_text(data)))

    def _adopt(self, tokenizer: Tokenizer, handle: int) -> None:
        self._tokenizer = tokenizer  # keeps the tokenize callback alive
        self._handle: int | None = handle
        self._raised = tokenizer.take_raised()
        self._words = _mask_size(handle) // 4 if self.error is None else 0

    def clone(self) -> Matcher:
        """An independent copy in the same state."""
        twin = Matcher.__new__(Matcher)
        twin._adopt(self._tokenizer, _clone_matcher(self._handle))
        twin._raised = self.raised
        return twin

    @property
    def raised(self) -> str | None:
        """See `engines.protocol.Matcher`."""
        return self._raised

    @property
    def error(self) -> str | None:
        """The first part of the error message, without the traces; None if there is no error."""
        message = _get_error(self._handle)
        if message is None:
            return None
        told = message.decode("utf-8", "replace").split("\n<")[0]
        return told if self.raised is None else f"{told} (the tokenization raised {self.raised})"

    def mask(self) -> npt.NDArray[np.uint32] | None:
        """The allowed tokens, one bit per id, shape (ceil(n_tokens / 32),); None on error."""
        if self._words * 32 < self._tokenizer.n_tokens:
            return None
        mask = np.empty(self._words, np.uint32)
        failed = _compute_mask(self._handle, mask.ctypes.data, mask.nbytes)
        self._keep_raised()
        return None if failed else mask

    def allows(self, token: int) -> bool | None:
        """Whether the mask allows one token; None on error.

        Reads one bit of the computed mask in place: copying a mask can take as long as computing
        it.
        """
        if self._words * 32 < self._tokenizer.n_tokens or _own_mask(self._handle):
            return None
        word = ctypes.c_uint32.from_address(_get_mask(self._handle) + 4 * (token >> 5))
        return bool(word.value >> (token & 31) & 1)

    def consume(self, token: int) -> bool:
        """Advance by one token. False if it is refused; the matcher then stays in error."""
        taken = _consume(self._handle, token) == 0
        self._keep_raised()
        return taken

    def accepting(self) -> bool:
        """Whether the text so far is complete."""
        return bool(_is_accepting(self._handle))

    def stopped(self) -> bool:
        """Whether no token can follow except the end; also True after an error."""
        return bool(_is_stopped(self._handle))

    def forced(self) -> list[int]:
        """Tokens that the grammar and the tokenization force; empty with greedy tokenization."""
        room = (ctypes.c_uint32 * 256)()
        n = _ff_tokens(self._handle, room, len(room))
        self._keep_raised()
        return room[:n] if n > 0 else []

    def _keep_raised(self) -> None:
        """Keep an exception of the builder's tokenization that the last call caused."""
        if self._tokenizer.raises:
            self._raised = self._raised or self._tokenizer.take_raised()

    def close(self) -> None:
        """Free the matcher; a second call does nothing."""
        if self._handle:
            _free_matcher(self._handle)
            self._handle = None


def _c_text(data: str) -> bytes:
    if "\0" in data:
        raise ValueError("a grammar with a NUL character cannot pass through a C string")
    return data.encode()
