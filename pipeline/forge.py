"""A tiny seeded llama-architecture GGUF around any vocabulary, and vocabularies from SentencePiece.

So every tokenizer can generate without a download: `tiny` copies the `tokenizer.*` key-values of a
GGUF byte for byte and puts two small random layers beneath them. The bytes depend on nothing but
those key-values and the seed: header and weights are laid out here, and the random numbers are
numpy's raw PCG64 words, whose stream numpy guarantees (it does not for `Generator`'s methods).

Weights are odd multiples of 2**-7 times a power of two, so that F32, F16 and Q8_0 hold them
exactly. Logits spread over about +-14, attention outweighs the token's own embedding, and each
token speaks against itself, so that greedy text wanders. It means nothing: no training here.
"""

import hashlib
import mmap
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .errors import LoadRefused

FORGE_VERSION = 1  # raise it when the bytes of a forged file change: the cache then forges anew

_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, _U32: 4, _I32: 4, _F32: 4, _BOOL: 1, 10: 8, 11: 8, 12: 8}
_ALIGNMENT = 32
_F32_TENSOR, _F16_TENSOR, _Q8_0_TENSOR = 0, 1, 8
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"

_BLOCKS, _WIDTH, _HEADS, _HEAD, _FEED, _CONTEXT = 2, 64, 2, 64, 128, 4096


# --- reading: the key-values of a GGUF ----------------------------------------------------------


@dataclass(frozen=True)
class KeyValues:
    """The key-values of a GGUF in file order, as raw bytes.

    Each item of `raw` is a whole entry: key, type and value as they stand in the file.
    """

    raw: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def text(self, key: str) -> str | None:
        """The value of a string key, or None."""
        entry = self.raw.get(key)
        start = 8 + len(key.encode())
        if entry is None or struct.unpack_from("<I", entry, start)[0] != _STRING:
            return None
        return entry[start + 12 :].decode("utf-8", "replace")

    @property
    def n_tokens(self) -> int:
        """Length of `tokenizer.ggml.tokens`; 0 where there is none."""
        key = "tokenizer.ggml.tokens"
        entry = self.raw.get(key)
        start = 8 + len(key)
        if entry is None or entry[start : start + 8] != struct.pack("<II", _ARRAY, _STRING):
            return 0
        return struct.unpack_from("<Q", entry, start + 8)[0]

    @property
    def tokenizer(self) -> bytes:
        """All `tokenizer.*` entries, concatenated in file order."""
        return b"".join(raw for key, raw in self.raw.items() if key.startswith("tokenizer."))


def scan(path: Path) -> KeyValues:
    """Read the key-values of a GGUF (version 2 or 3, little-endian) without its tensors.

    `gguf.GGUFReader` makes a numpy view of every token and takes 11-22 s on 262,144 of them; this
    walks the same bytes in about 0.1 s. Whatever the file holds, work and memory are bounded by
    its size. Raises `LoadRefused` for anything that is not a whole, well-formed header.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _scan(data)
    except (struct.error, IndexError, OverflowError):  # of reading at an offset beyond the end
        raise LoadRefused(f"{path}: the file ends in the middle of its GGUF header") from None
    except ValueError as error:  # of mmap (an empty file) or of _scan
        raise LoadRefused(f"{path}: not a usable GGUF file: {error}") from None


def _scan(data: mmap.mmap) -> KeyValues:
    magic, version, _, count = struct.unpack_from("<4sIQQ", data, 0)
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError(f"it begins with {magic!r}, version {version}")
    found: dict[str, bytes] = {}
    position = 24
    for _ in range(count):  # each turn takes 12 bytes or more, or struct.error ends it
        (length,) = struct.unpack_from("<Q", data, position)
        if not 0 < length < 65536:
            raise ValueError(f"a key of {length} bytes at byte {position}")
        key = data[position + 8 : position + 8 + length].decode("utf-8")
        (kind,) = struct.unpack_from("<I", data, position + 8 + length)
        end = _skip(data, position + 12 + length, kind)
        if end > len(data):
            raise struct.error
        if key in found:
            raise ValueError(f"the key {key!r} stands in it twice")
        found[key] = data[position:end]
        position = end
    return KeyValues(found)


def _skip(data: mmap.mmap, position: int, kind: int) -> int:
    """The byte after the value of type `kind` at `position`; may lie beyond the end of `data`."""
    if kind in _SIZES:
        return position + _SIZES[kind]
    if kind == _STRING:
        return position + 8 + struct.unpack_from("<Q", data, position)[0]
    if kind != _ARRAY:
        raise ValueError(f"a value of unknown type {kind} at byte {position}")
    inner, count = struct.unpack_from("<IQ", data, position)
    position += 12
    if inner in _SIZES:
        return position + count * _SIZES[inner]
    if inner != _STRING:
        raise ValueError(f"an array of unknown type {inner} at byte {position}")
    unpack = struct.Struct("<Q").unpack_from
    for _ in range(count):  # each turn takes 8 bytes or more, or struct.error ends it
        position += 8 + unpack(data, position)[0]
    return position


# --- writing ------------------------------------------------------------------------------------


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _entry(key: str, kind: int, value: bytes) -> bytes:
    return _string(key.encode()) + struct.pack("<I", kind) + value


def _array(key: str, kind: int, count: int, items: bytes) -> bytes:
    return _entry(key, _ARRAY, struct.pack("<IQ", kind, count) + items)


def _u32(key: str, value: int) -> bytes:
    return _entry(key, _U32, struct.pack("<I", value))


def _bool(key: str, value: bool) -> bytes:
    return _entry(key, _BOOL, struct.pack("<?", value))


def _text(key: str, value: str) -> bytes:
    return _entry(key, _STRING, _string(value.encode()))


def _write(out: Path, chunks: Iterable[bytes]) -> None:
    """Write `chunks` to `out`; it appears whole or not at all. Raises OSError."""
    out.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(chunks)
        Path(name).chmod(0o644)
        Path(name).replace(out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# --- the tiny model -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tensor:
    """`rows` x `columns` weights (rows 0: a vector of ones), odd multiples of 2**-7 x `scale`."""

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
        return _string(self.name.encode()) + struct.pack(form, len(shape), *shape, self.kind)

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
        if self.name == _OUTPUT:  # a token speaks against itself: even a narrow mask sees no loops
            weights -= _levels(_EMBEDDING, levels.size, seed).astype(form)
        weights *= np.asarray(self.scale / 128, form)
        return weights.tobytes()


def _levels(name: str, count: int, seed: int) -> npt.NDArray[np.int8]:
    """`count` random odd numbers from -127 to 127, the same wherever the name and seed are."""
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
    """Forge a two-layer llama around the vocabulary of `tokenizer_gguf` into `out`.

    Size: about 200 bytes a token beside the vocabulary itself (7 MB for 32,000 tokens, 69 MB for
    262,144). Raises `LoadRefused` where the file is no GGUF or carries no tokens.
    """
    _forge(_vocabulary(tokenizer_gguf), out, seed)


def _vocabulary(path: Path) -> KeyValues:
    found = scan(path)
    if not found.n_tokens:
        raise LoadRefused(f"{path}: it carries no tokenizer (no tokenizer.ggml.tokens)")
    return found


def _forge(vocabulary: KeyValues, out: Path, seed: int) -> None:
    tensors = list(_tensors(vocabulary.n_tokens))
    entries = [
        _text("general.architecture", "llama"),
        _text("general.name", f"byte-exact tiny, seed {seed}"),
        _u32("general.quantization_version", 2),
        _u32("llama.block_count", _BLOCKS),
        _u32("llama.context_length", _CONTEXT),
        _u32("llama.embedding_length", _WIDTH),
        _u32("llama.feed_forward_length", _FEED),
        _u32("llama.attention.head_count", _HEADS),
        _u32("llama.attention.head_count_kv", _HEADS),
        _u32("llama.attention.key_length", _HEAD),
        _u32("llama.attention.value_length", _HEAD),
        _entry("llama.attention.layer_norm_rms_epsilon", _F32, struct.pack("<f", 1e-5)),
        _u32("llama.rope.dimension_count", _HEAD),
        _u32("llama.vocab_size", vocabulary.n_tokens),
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

    _write(out, chunks())


# --- vocabularies from SentencePiece ------------------------------------------------------------


def sentencepiece_gguf(model_file: Path, out: Path) -> None:
    """Write a vocab-only GGUF of a SentencePiece `tokenizer.model`, as llama.cpp's converter does.

    Piece types carry over one to one (both number NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED,
    BYTE from 1 to 6); `add_space_prefix` is the model's `add_dummy_prefix`. The file is read as
    the protobuf it is (`sentencepiece_model.proto`): `SentencePieceProcessor` does not tell the
    latter. Raises `LoadRefused` where it is no such file.
    """
    try:
        message = list(_protobuf(model_file.read_bytes()))
        pieces = [dict(_protobuf(_octets(value))) for number, value in message if number == 1]
        trainer = _submessage(message, 2)
        normalizer = _submessage(message, 3)
        texts = [_octets(piece[1]) for piece in pieces]
        scores = b"".join(_octets(piece.get(2, bytes(4))) for piece in pieces)
        types = struct.pack(f"<{len(pieces)}i", *(_number(piece.get(3, 1)) for piece in pieces))
    except (ValueError, KeyError, IndexError, struct.error) as error:
        raise LoadRefused(f"{model_file}: not a SentencePiece model: {error!r}") from None
    count = len(texts)
    if not count or len(scores) != 4 * count:
        raise LoadRefused(f"{model_file}: not a SentencePiece model: no pieces")
    entries = [
        _text("general.architecture", "llama"),
        _text("tokenizer.ggml.model", "llama"),
        _text("tokenizer.ggml.pre", "default"),
        _array("tokenizer.ggml.tokens", _STRING, count, b"".join(map(_string, texts))),
        _array("tokenizer.ggml.scores", _F32, count, scores),
        _array("tokenizer.ggml.token_type", _I32, count, types),
    ]
    for name, number, default in (("unknown", 40, 0), ("bos", 41, 1), ("eos", 42, 2)):
        token = _number(trainer.get(number, default))
        if token < count:  # an absent token is -1, in protobuf 2**64 - 1
            entries.append(_u32(f"tokenizer.ggml.{name}_token_id", token))
    entries += [
        _bool("tokenizer.ggml.add_bos_token", True),
        _bool("tokenizer.ggml.add_eos_token", False),
        _bool("tokenizer.ggml.add_space_prefix", bool(normalizer.get(3, 1))),
    ]
    _write(out, [struct.pack("<4sIQQ", b"GGUF", 3, 0, len(entries)), *entries])


def _protobuf(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The (field number, value) pairs of one protobuf message; submessages stay bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        wire = tag & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        if wire == 2:
            size, position = _varint(data, position)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"protobuf wire type {wire}")
        if position + size > len(data):
            raise ValueError("it ends in the middle of a field")
        yield tag >> 3, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        octet = data[position]
        value |= (octet & 127) << shift
        position, shift = position + 1, shift + 7
        if octet < 128:
            return value, position
    raise ValueError("a number of more than ten bytes")


def _submessage(message: list[tuple[int, int | bytes]], number: int) -> dict[int, int | bytes]:
    parts = [_octets(value) for found, value in message if found == number]
    return dict(_protobuf(b"".join(parts)))


def _octets(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where text belongs")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("text where a number belongs")
    return value


# --- the cache ----------------------------------------------------------------------------------


def forged(tokenizer: Path, seed: int, cache: Path) -> Path:
    """The tiny model around the vocabulary of `tokenizer` (a GGUF), forged unless `cache` has it.

    The name holds the sha256 of the `tokenizer.*` key-values, the seed and `FORGE_VERSION`, so a
    stale forge is never served. Raises `LoadRefused`, and OSError where `cache` is not writable.
    """
    vocabulary = _vocabulary(tokenizer)
    digest = hashlib.sha256(vocabulary.tokenizer).hexdigest()
    out = cache / "forged" / f"tiny-{digest[:24]}-seed{seed}-v{FORGE_VERSION}.gguf"
    if not out.is_file():
        _forge(vocabulary, out, seed)
    return out


def vocabulary_of(model_file: Path, cache: Path) -> Path:
    """The vocab-only GGUF of a SentencePiece `tokenizer.model`, written unless `cache` has it."""
    digest = hashlib.sha256(model_file.read_bytes()).hexdigest()
    out = cache / "forged" / f"sentencepiece-{digest[:24]}-v{FORGE_VERSION}.gguf"
    if not out.is_file():
        sentencepiece_gguf(model_file, out)
    return out
