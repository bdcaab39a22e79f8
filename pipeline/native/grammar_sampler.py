"""llama.cpp's own grammar sampler (GBNF) through ctypes."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import llama_cpp.llama_cpp as _c
import numpy as np

from .llama import Model, last_log_lines


class GrammarSampler:
    """llama.cpp's grammar sampler for a GBNF text. Raises ValueError if the text does not parse.

    `accept` of a token that the mask does not allow throws in C++ and ends the process.
    """

    def __init__(self, model: Model, grammar: str) -> None:
        handle = _c.llama_sampler_init_grammar(model.vocab.handle, grammar.encode(), b"root")  # pyright: ignore
        if not handle:
            raise ValueError(last_log_lines() or "llama.cpp could not read the grammar")
        self._adopt(model, handle)

    def _adopt(self, model: Model, handle: Any) -> None:
        self._model, self._handle = model, handle
        weakref.finalize(self, _c.llama_sampler_free, handle)  # pyright: ignore

    def mask(self) -> bytes:
        """The allowed tokens: one bit per id, least significant bit first, in 32-bit words."""
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
        """Advance by one token, which the mask must allow."""
        _c.llama_sampler_accept(self._handle, token)  # pyright: ignore

    def clone(self) -> GrammarSampler:
        """An independent copy in the same state."""
        twin = GrammarSampler.__new__(GrammarSampler)
        twin._adopt(self._model, _c.llama_sampler_clone(self._handle))  # pyright: ignore
        return twin
