"""A tiny llama-architecture GGUF with seeded random weights, for any vocabulary.

With it every tokenizer can generate without a download. `tiny` copies the `tokenizer.*` key-values
of a GGUF byte for byte and adds two small random layers. The bytes of the file depend only on those
key-values and the seed. This module writes header and weights itself. Random numbers are numpy's
raw PCG64 words, because numpy guarantees their stream (but not that of `Generator`'s methods).

Weights are odd multiples of 2**-7 times a power of two, so that F32, F16 and Q8_0 hold them
exactly. Logits spread over about +-14. Attention outweighs the token's own embedding, and each
token lowers its own logit, so that greedy text does not loop. The text has no meaning: the model
is not trained.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...model.errors import LoadRefused
from .gguf import F32, KeyValues, key_value, scan, string, text, u32, write
from .sentencepiece import sentencepiece_gguf

_FORGE_VERSION = 1  # increase it when the bytes of a forged file change; it is part of cache names

_ALIGNMENT = 32
_F32_TENSOR, _F16_TENSOR, _Q8_0_TENSOR = 0, 1, 8
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"

_BLOCKS, _WIDTH, _HEADS, _HEAD, _FEED, _CONTEXT = 2, 64, 2, 64, 128, 4096


# --- the tiny model -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tensor:
    """A tensor of shape (rows, columns), or a vector of ones if `rows` is 0.

    Its weights are odd multiples of 2**-7 x `scale`.
    """

    name: str
    columns: int
    rows: int
    kind: int
    scale: float = 1.0

    @property
    def n_bytes(self) -> int:
        weights = self.columns * max(self.rows, 1)
        return {_F32_TENSOR: 4 * weights, _F16_TENSOR: 2 * weights}.get(
            self.kind, weights // 32 * 34
        )

    @property
    def info(self) -> bytes:
        shape = (self.columns, self.rows) if self.rows else (self.columns,)
        form = f"<I{len(shape)}QI"
        return string(self.name.encode()) + struct.pack(form, len(shape), *shape, self.kind)

    def data(self, seed: int) -> bytes:
        if not self.rows:
            return np.ones(self.columns, "<f4").tobytes()
        levels = _levels(self.name, self.columns * self.rows, seed)
        if self.kind == _Q8_0_TENSOR:
            blocks = np.empty((levels.size // 32, 34), np.uint8)
            blocks[:, :2] = np.array([self.scale / 128], "<f2").view(np.uint8)
            blocks[:, 2:] = levels.view(np.uint8).reshape(-1, 32)
            return blocks.tobytes()
        form = "<f2" if self.kind == _F16_TENSOR else "<f4"
        weights = levels.astype(form)
        if self.name == _OUTPUT:  # a token lowers its own logit: no loops even under narrow masks
            weights -= _levels(_EMBEDDING, levels.size, seed).astype(form)
        weights *= np.asarray(self.scale / 128, form)
        return weights.tobytes()


def _levels(name: str, count: int, seed: int) -> npt.NDArray[np.int8]:
    """`count` random odd numbers from -127 to 127, determined by the name and the seed."""
    label = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    words = np.random.PCG64([seed % 2**64, label]).random_raw(-(-count // 8))
    octets = np.asarray(words, "<u8").view(np.uint8)[:count]
    return ((octets & 127) * 2).view(np.int8) - np.int8(127)


def _tensors(n_tokens: int) -> Iterator[_Tensor]:
    yield _Tensor(_EMBEDDING, _WIDTH, n_tokens, _Q8_0_TENSOR, 0.5)
    for block in range(_BLOCKS):
        name, inner = f"blk.{block}.", _HEADS * _HEAD
        yield _Tensor(name + "attn_norm.weight", _WIDTH, 0, _F32_TENSOR)
        yield _Tensor(name + "attn_q.weight", _WIDTH, inner, _F32_TENSOR, 0.25)
        yield _Tensor(name + "attn_k.weight", _WIDTH, inner, _F32_TENSOR, 0.5)
        yield _Tensor(name + "attn_v.weight", _WIDTH, inner, _F32_TENSOR, 0.25)
        yield _Tensor(name + "attn_output.weight", inner, _WIDTH, _F32_TENSOR, 0.125)
        yield _Tensor(name + "ffn_norm.weight", _WIDTH, 0, _F32_TENSOR)
        yield _Tensor(name + "ffn_gate.weight", _WIDTH, _FEED, _F32_TENSOR, 0.25)
        yield _Tensor(name + "ffn_up.weight", _WIDTH, _FEED, _F32_TENSOR, 0.25)
        yield _Tensor(name + "ffn_down.weight", _FEED, _WIDTH, _F32_TENSOR, 0.125)
    yield _Tensor("output_norm.weight", _WIDTH, 0, _F32_TENSOR)
    yield _Tensor(_OUTPUT, _WIDTH, n_tokens, _F16_TENSOR, 0.5)


def tiny(tokenizer_gguf: Path, out: Path, seed: int) -> None:
    """Write a two-layer llama with the vocabulary of `tokenizer_gguf` to `out`.

    Size: about 200 bytes per token plus the vocabulary itself (7 MB for 32,000 tokens, 69 MB for
    262,144). Raises `LoadRefused` if the file is not a GGUF or has no tokens.
    """
    _forge(_vocabulary(tokenizer_gguf), out, seed)


def _vocabulary(path: Path) -> KeyValues:
    found = scan(path)
    if not found.n_tokens:
        raise LoadRefused(f"{path}: has no tokenizer (no tokenizer.ggml.tokens)")
    return found


def _forge(vocabulary: KeyValues, out: Path, seed: int) -> None:
    tensors = list(_tensors(vocabulary.n_tokens))
    entries = [
        text("general.architecture", "llama"),
        text("general.name", f"byte-exact tiny, seed {seed}"),
        u32("general.quantization_version", 2),
        u32("llama.block_count", _BLOCKS),
        u32("llama.context_length", _CONTEXT),
        u32("llama.embedding_length", _WIDTH),
        u32("llama.feed_forward_length", _FEED),
        u32("llama.attention.head_count", _HEADS),
        u32("llama.attention.head_count_kv", _HEADS),
        u32("llama.attention.key_length", _HEAD),
        u32("llama.attention.value_length", _HEAD),
        key_value("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
        u32("llama.rope.dimension_count", _HEAD),
        u32("llama.vocab_size", vocabulary.n_tokens),
    ]
    raw = [entry for key, entry in vocabulary.raw.items() if key.startswith("tokenizer.")]

    def chunks() -> Iterator[bytes]:
        header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(entries) + len(raw))
        header += b"".join([*entries, *raw])
        offset = 0
        for tensor in tensors:
            header += tensor.info + struct.pack("<Q", offset)
            offset += tensor.n_bytes + -tensor.n_bytes % _ALIGNMENT
        yield header + bytes(-len(header) % _ALIGNMENT)
        for tensor in tensors:
            yield tensor.data(seed) + bytes(-tensor.n_bytes % _ALIGNMENT)

    write(out, chunks())


# --- the cache ----------------------------------------------------------------------------------


def forge_model(tokenizer: Path, seed: int, cache: Path) -> Path:
    """The tiny model with the vocabulary of `tokenizer` (a GGUF), from `cache` or written there.

    The file name holds the sha256 of the `tokenizer.*` key-values, the seed and `_FORGE_VERSION`,
    so that no outdated file is used. Raises `LoadRefused`, and OSError if `cache` is not writable.
    """
    vocabulary = _vocabulary(tokenizer)
    digest = hashlib.sha256(vocabulary.tokenizer).hexdigest()
    out = cache / "forged" / f"tiny-{digest[:24]}-seed{seed}-v{_FORGE_VERSION}.gguf"
    if not out.is_file():
        _forge(vocabulary, out, seed)
    return out


def vocabulary_of(model_file: Path, cache: Path) -> Path:
    """The vocab-only GGUF of a SentencePiece `tokenizer.model`, from `cache` or written there.

    Raises `LoadRefused`, and OSError if `cache` is not writable.
    """
    digest = hashlib.sha256(model_file.read_bytes()).hexdigest()
    out = cache / "forged" / f"sentencepiece-{digest[:24]}-v{_FORGE_VERSION}.gguf"
    if not out.is_file():
        sentencepiece_gguf(model_file, out)
    return out
