"""Damaged GGUF files: shortened real vocabularies with one to three structural faults.

`vocabularies` shortens them; `damaged` makes the bytes of one damaged file from a seed. The name of
a fault says what it does; it is recorded with the outcome.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.vocab.files import gguf, source
from pipeline.vocab.files.gguf import ARRAY, F32, I32, STRING, U32

NAMES = ("llama_spm", "phi3", "gpt2", "llama_bpe", "qwen2", "bert_bge", "nomic_bert_moe", "falcon")
_KEEP = 700
"""Number of tokens kept from the start of each vocabulary."""
_TOKENIZER = "tokenizer.ggml."
_PER_TOKEN = ("tokens", "scores", "token_type")
_IDS = ("bos", "eos", "eot", "unknown", "padding", "seperator", "separator", "mask", "cls")
_HUGE = (2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)
_TEXTS = (
    b"",
    b"\x00",
    b"\xff\xfe\xfd",
    b"\x1b]0;owned\x07\x1b[31m",
    b"\xe2\x96\x81" * 40,
    b"a" * 1025,
    b"b" * 70_000,
    "‮\u2028😀".encode(),
    b"<0x41>",
    b"%s%n%p",
    b"../../../etc/passwd",
)


@dataclass
class Entry:
    """One key-value of a file under construction."""

    key: bytes
    kind: int
    value: bytes

    def packed(self) -> bytes:
        return gguf.string(self.key) + struct.pack("<I", self.kind) + self.value


@dataclass
class Draft:
    """A file under construction."""

    entries: list[Entry]
    magic: bytes = b"GGUF"
    version: int = 3
    n_tensors: int = 0
    n_entries: int | None = None
    tail: bytes = b""
    faults: list[str] = field(default_factory=list[str])

    def packed(self) -> bytes:
        count = len(self.entries) if self.n_entries is None else self.n_entries
        head = self.magic + struct.pack("<IQQ", self.version, self.n_tensors, count % 2**64)
        return head + b"".join(entry.packed() for entry in self.entries) + self.tail

    def find(self, name: str) -> Entry | None:
        key = (_TOKENIZER + name).encode()
        return next((entry for entry in self.entries if entry.key == key), None)


# --- real vocabularies, cut down ------------------------------------------------------------------


def vocabularies(resolve: Callable[[str], source.Resolved]) -> dict[str, Draft]:
    """The vocabularies of `NAMES` by name."""
    return {name: _cut(resolve(name).path) for name in NAMES}


def _cut(path: Path) -> Draft:
    entries: list[Entry] = []
    kept: set[bytes] = set()
    for key, raw in gguf.scan(path).raw.items():
        start = 8 + len(key.encode())
        entry = Entry(key.encode(), struct.unpack_from("<I", raw, start)[0], raw[start + 4 :])
        name = key.removeprefix(_TOKENIZER)
        if name in _PER_TOKEN:
            items = items_of(entry)[:_KEEP]
            entry.value = _array(entry, items)
            kept |= set(items) if name == "tokens" else set()
        elif name == "merges":
            whole = (m for m in items_of(entry) if {*m.split(b" "), m.replace(b" ", b"")} <= kept)
            entry.value = _array(entry, list(whole))
        elif name.endswith("_token_id") and struct.unpack("<I", entry.value)[0] >= _KEEP:
            entry.value = struct.pack("<I", _KEEP - 1)
        elif entry.kind == ARRAY and name == "precompiled_charsmap":
            pass  # kept unchanged: readers must survive it
        entries.append(entry)
    return Draft(entries)


def items_of(entry: Entry) -> list[bytes]:
    """The bytes of each item of an array."""
    kind, count = struct.unpack_from("<IQ", entry.value)
    if count > len(entry.value):
        raise struct.error("more items than bytes: the array cannot be split into items")
    if kind != STRING:
        size = (len(entry.value) - 12) // max(count, 1)
        return [entry.value[12 + i * size : 12 + (i + 1) * size] for i in range(count)]
    out: list[bytes] = []
    at = 12
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", entry.value, at)
        out.append(entry.value[at + 8 : at + 8 + length])
        at += 8 + length
    return out


def _array(entry: Entry, items: Sequence[bytes]) -> bytes:
    """The same array with other items."""
    (kind,) = struct.unpack_from("<I", entry.value)
    packed: Iterable[bytes] = map(gguf.string, items) if kind == STRING else items
    return struct.pack("<IQ", kind, len(items)) + b"".join(packed)


# --- faults ---------------------------------------------------------------------------------------

Fault = Callable[[Draft, random.Random], None]


def _pick(draft: Draft, rng: random.Random, kind: int | None = None) -> Entry:
    fitting = [entry for entry in draft.entries if kind in (None, entry.kind)]
    return rng.choice(fitting or draft.entries)


def _header(draft: Draft, rng: random.Random) -> None:
    match rng.randrange(4):
        case 0:
            draft.version = rng.choice((0, 1, 2, 4, 2**31, 2**32 - 1))
        case 1:
            draft.n_tensors = rng.choice((1, 1000, *_HUGE))
        case 2:
            draft.n_entries = len(draft.entries) + rng.choice((-1, 1, 1000, 2**40, 2**63))
        case _:
            draft.magic = rng.choice((b"GGUF", b"FUGG", b"GGML"))


def _value_type(draft: Draft, rng: random.Random) -> None:
    _pick(draft, rng).kind = rng.choice((*range(14), 99, 2**32 - 1))


def _item_type(draft: Draft, rng: random.Random) -> None:
    entry = _pick(draft, rng, ARRAY)
    entry.value = struct.pack("<I", rng.choice((*range(14), 2**32 - 1))) + entry.value[4:]


def _count(draft: Draft, rng: random.Random) -> None:
    entry = _pick(draft, rng, ARRAY)
    (count,) = struct.unpack_from("<Q", entry.value[4:12].ljust(8, b"\0"))
    count = rng.choice((0, count - 1, count + 1, count * 2, *_HUGE)) % 2**64
    entry.value = entry.value[:4] + struct.pack("<Q", count) + entry.value[12:]


def _string_length(draft: Draft, rng: random.Random) -> None:
    entry = _pick(draft, rng, STRING)
    length = rng.choice((len(entry.value) - 9, len(entry.value), *_HUGE)) % 2**64
    entry.value = struct.pack("<Q", length) + entry.value[8:]


def _text(draft: Draft, rng: random.Random) -> None:
    entry = _pick(draft, rng, STRING)
    entry.value = gguf.string(rng.choice(_TEXTS))


def _key(draft: Draft, rng: random.Random) -> None:
    entry = _pick(draft, rng)
    other = _pick(draft, rng).key
    entry.key = rng.choice((b"", other, entry.key + b"\x00x", entry.key[:-1], b"k" * 65_536))


def _token_text(draft: Draft, rng: random.Random) -> None:
    if (entry := draft.find("tokens")) is not None:
        items = items_of(entry)
        for _ in range(rng.choice((1, 1, 3, 50))):
            items[rng.randrange(len(items))] = rng.choice((*_TEXTS, rng.choice(items)))
        entry.value = _array(entry, items)


def _per_token(draft: Draft, rng: random.Random) -> None:
    entry = draft.find(rng.choice(_PER_TOKEN))
    if entry is not None:
        items = items_of(entry)
        n = rng.choice((0, 1, len(items) - 1, len(items) + 1, len(items) * 3))
        entry.value = _array(entry, (items * 4)[:n])


def _token_kind(draft: Draft, rng: random.Random) -> None:
    if (entry := draft.find("token_type")) is not None:
        items = items_of(entry)
        kinds = [rng.choice((-1, 0, 1, 2, 3, 4, 5, 6, 7, 2**30)) for _ in range(3)]
        some = rng.choice((0.01, 0.3, 1.0))
        items = [struct.pack("<i", rng.choice(kinds)) if rng.random() < some else i for i in items]
        entry.value = _array(entry, items)


def _scores(draft: Draft, rng: random.Random) -> None:
    if (entry := draft.find("scores")) is not None:
        wild = (float("nan"), float("inf"), -float("inf"), 0.0, 3e38, -1e9)
        items = [struct.pack("<f", rng.choice(wild)) for _ in items_of(entry)]
        entry.value = _array(entry, items)


def _merges(draft: Draft, rng: random.Random) -> None:
    if (entry := draft.find("merges")) is not None:
        items = items_of(entry)
        odd = (b"", b" ", b"a", b"a  b", b"zz qq", b"a b c", *items[:3])
        changed = [rng.choice(odd) if rng.random() < 0.2 else item for item in items]
        entry.value = _array(entry, rng.choice(([], changed, changed[::-1])))


def _special_id(draft: Draft, rng: random.Random) -> None:
    key = (_TOKENIZER + rng.choice(_IDS) + "_token_id").encode()
    value = struct.pack("<I", rng.choice((0, 1, _KEEP - 1, _KEEP, 2**31 - 1, 2**32 - 1)))
    draft.entries = [entry for entry in draft.entries if entry.key != key]
    draft.entries.append(Entry(key, U32, value))


def _flag(draft: Draft, rng: random.Random) -> None:
    names = ("add_space_prefix", "add_bos_token", "add_eos_token", "remove_extra_whitespaces")
    kind = rng.choice((7, 7, 7, U32, F32, I32))
    value = struct.pack("<B" if kind == 7 else "<I", rng.choice((0, 1, 1, 255 if kind == 7 else 9)))
    key = (_TOKENIZER + rng.choice(names)).encode()
    draft.entries = [entry for entry in draft.entries if entry.key != key]
    draft.entries.append(Entry(key, kind, value))


def _model(draft: Draft, rng: random.Random) -> None:
    models = (b"llama", b"gpt2", b"bert", b"t5", b"rwkv", b"none", b"no_vocab", *_TEXTS[:4])
    if (entry := draft.find("model")) is not None:
        entry.value = gguf.string(rng.choice(models))


def _pre(draft: Draft, rng: random.Random) -> None:
    pres = (b"default", b"llama3", b"qwen2", b"gpt-2", b"deepseek-llm", b"tekken", *_TEXTS[:5])
    draft.entries = [e for e in draft.entries if e.key != b"tokenizer.ggml.pre"]
    draft.entries.append(Entry(b"tokenizer.ggml.pre", STRING, gguf.string(rng.choice(pres))))


def _remove(draft: Draft, rng: random.Random) -> None:
    draft.entries.remove(_pick(draft, rng))


def _twice(draft: Draft, rng: random.Random) -> None:
    draft.entries.insert(rng.randrange(len(draft.entries)), _pick(draft, rng))


def _order(draft: Draft, rng: random.Random) -> None:
    rng.shuffle(draft.entries)


def _alignment(draft: Draft, rng: random.Random) -> None:
    value = struct.pack("<I", rng.choice((0, 1, 3, 31, 2**31, 2**32 - 1)))
    draft.entries.append(Entry(b"general.alignment", U32, value))


def _tensors(draft: Draft, rng: random.Random) -> None:
    """Declare tensors with unusual ranks, shapes, types and offsets."""
    draft.n_tensors = rng.choice((1, 2, 5))
    for _ in range(draft.n_tensors):
        rank = rng.choice((0, 1, 2, 4, 5, 2**31))
        shape = [rng.choice((0, 1, 32, 2**31, 2**62)) for _ in range(min(rank, 5))]
        draft.tail += gguf.string(rng.choice((b"token_embd.weight", b"", b"x" * 200)))
        draft.tail += struct.pack(f"<I{len(shape)}Q", rank, *shape)
        draft.tail += struct.pack("<IQ", rng.choice((0, 1, 8, 40, 99)), rng.choice((0, 7, *_HUGE)))
    draft.tail += bytes(rng.choice((0, 64, 4096)))


FAULTS: dict[str, Fault] = {
    fault.__name__.strip("_"): fault
    for fault in (
        *(_header, _value_type, _item_type, _count, _string_length, _text, _key, _token_text),
        *(_per_token, _token_kind, _scores, _merges, _special_id, _flag, _model, _pre),
        *(_remove, _twice, _order, _alignment, _tensors),
    )
}


def damaged(seeds: dict[str, Draft], rng: random.Random) -> tuple[str, bytes]:
    """(description, bytes of the file): one to three faults, then maybe a cut or flipped bytes."""
    name = rng.choice(sorted(seeds))
    whole = seeds[name]
    draft = Draft([Entry(e.key, e.kind, e.value) for e in whole.entries])
    done = [name]
    for fault in rng.sample(sorted(FAULTS), rng.choice((1, 1, 1, 2, 3))):
        try:
            FAULTS[fault](draft, rng)
        except (struct.error, IndexError, ZeroDivisionError):
            continue  # an earlier fault removed what this one changes
        done.append(fault)
    data = bytearray(draft.packed())
    match rng.randrange(8):
        case 0:
            del data[rng.randrange(len(data)) :]
            done.append("cut")
        case 1:
            for _ in range(rng.choice((1, 4, 64))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            done.append("bits")
        case 2:
            data += rng.randbytes(rng.choice((1, 100, 100_000)))
            done.append("more")
        case _:
            pass
    return "+".join(done), bytes(data)
