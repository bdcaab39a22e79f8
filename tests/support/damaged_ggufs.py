"""Small GGUFs for tests: vocabularies of a few tokens, and real vocabularies with one fault.

A faulty file is a real vocabulary file with its key-values rewritten one by one, so that only the
fault is new. Field cases U-08 and U-22 show what llama.cpp does with each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import gguf

from pipeline.vocab.files.gguf import ARRAY, F32, STRING, key_value, scan, string, u32

TOKENS = "tokenizer.ggml.tokens"
TYPES = "tokenizer.ggml.token_type"
SCORES = "tokenizer.ggml.scores"
MERGES = "tokenizer.ggml.merges"
EOS = "tokenizer.ggml.eos_token_id"
PRE = "tokenizer.ggml.pre"
MODEL = "tokenizer.ggml.model"

UNKNOWN, NORMAL, CONTROL, USER_DEFINED, UNUSED, BYTE = 2, 1, 3, 4, 5, 6
"""`enum llama_token_type`, as a file holds it."""


# --- vocabularies of a few tokens -----------------------------------------------------------------


def tiny_vocabulary(
    out: Path,
    tokens: Sequence[tuple[str, int]],
    *,
    model: str = "llama",
    merges: Sequence[str] | None = None,
    pre: str | None = None,
    add_space_prefix: bool | None = None,
) -> Path:
    """Write a vocabulary of (text, type) tokens, which llama.cpp loads without tensors."""
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(model)
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_token_scores([-float(i) for i in range(len(tokens))])
    if merges is not None:
        writer.add_token_merges(merges)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    if add_space_prefix is not None:
        writer.add_add_space_prefix(add_space_prefix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return out


def tiny_spm(out: Path, *, byte_tokens: bool, add_space_prefix: bool = False) -> Path:
    """A SentencePiece vocabulary: letters, digits, a space; optional byte tokens and prefix."""
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    if byte_tokens:
        tokens += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!"
    tokens += [("\u2581", NORMAL), ("\u2581a", NORMAL), ("he", NORMAL)]
    tokens += [(letter, NORMAL) for letter in letters]
    return tiny_vocabulary(out, tokens, add_space_prefix=add_space_prefix)


# --- one fault in a real file ---------------------------------------------------------------------


def strings(entry: bytes, key: str) -> list[bytes]:
    """The items of an entry with an array of strings."""
    position = 8 + len(key) + 4
    kind, count = struct.unpack_from("<IQ", entry, position)
    assert kind == STRING
    position += 12
    out: list[bytes] = []
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", entry, position)
        out.append(entry[position + 8 : position + 8 + length])
        position += 8 + length
    return out


def string_array(key: str, items: Iterable[bytes]) -> bytes:
    """An entry with an array of strings."""
    packed = [string(item) for item in items]
    return _array(key, STRING, len(packed), b"".join(packed))


def _array(key: str, kind: int, count: int, items: bytes) -> bytes:
    head = struct.pack("<IQ", kind, count)
    return key_value(key, ARRAY, head + items)


def rewrite(source: Path, out: Path, changes: Mapping[str, bytes | None]) -> Path:
    """`source` with some entries replaced, added, or (None) left out; no tensors."""
    entries = dict(scan(source).raw)
    for key, entry in changes.items():
        entries.pop(key, None) if entry is None else entries.update({key: entry})
    header = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(entries))
    out.write_bytes(header + b"".join(entries.values()))
    return out


def with_token_text(source: Path, out: Path, token: int, text: bytes) -> Path:
    """The entry of tokens with another text for one token."""
    tokens = strings(scan(source).raw[TOKENS], TOKENS)
    tokens[token] = text
    return rewrite(source, out, {TOKENS: string_array(TOKENS, tokens)})


def duplicate_token_text(source: Path, out: Path) -> Path:
    """Tokens 1000 and 1001 have the same text: llama.cpp aborts (`GGML_ASSERT` on the map size)."""
    text = strings(scan(source).raw[TOKENS], TOKENS)[1000]
    return with_token_text(source, out, 1001, text)


def empty_token_text(source: Path, out: Path) -> Path:
    """Token 5000 without a text: llama.cpp names it `[EMPTY_5000]`."""
    return with_token_text(source, out, 5000, b"")


def without_token_type(source: Path, out: Path) -> Path:
    """Every token becomes NORMAL, byte tokens included."""
    return rewrite(source, out, {TYPES: None})


def without_merges(source: Path, out: Path) -> Path:
    """A BPE file that llama.cpp refuses."""
    return rewrite(source, out, {MERGES: None})


def scores_too_short(source: Path, out: Path) -> Path:
    """Ten scores for all tokens."""
    short = _array(SCORES, F32, 10, struct.pack("<10f", *[0.0] * 10))
    return rewrite(source, out, {SCORES: short})


def scores_of_nan(source: Path, out: Path) -> Path:
    """Every score is NaN; llama.cpp accepts the file."""
    n = scan(source).n_tokens
    nan = _array(SCORES, F32, n, struct.pack("<f", float("nan")) * n)
    return rewrite(source, out, {SCORES: nan})


def eos_out_of_range(source: Path, out: Path) -> Path:
    """An end id out of range: llama.cpp uses its default."""
    return rewrite(source, out, {EOS: u32(EOS, 999_999)})


def truncated(source: Path, out: Path) -> Path:
    """The first half of the file."""
    data = source.read_bytes()
    out.write_bytes(data[: len(data) // 2])
    return out


def wrong_magic(source: Path, out: Path) -> Path:
    """The file under another format's name."""
    out.write_bytes(b"GGML" + source.read_bytes()[4:])
    return out


Fault = Callable[[Path, Path], Path]

REFUSED: dict[str, tuple[str, Fault]] = {
    "merges removed": ("gpt2", without_merges),
    "scores too short": ("llama_spm", scores_too_short),
    "truncated": ("llama_spm", truncated),
    "wrong magic": ("llama_spm", wrong_magic),
}
"""Faults that llama.cpp refuses: (vocabulary to rewrite, fault)."""
