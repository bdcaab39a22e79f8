"""Read the key-values of GGUF files as raw bytes, and write them."""

import mmap
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...model.errors import LoadRefused
from ...system.files import replacing

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, U32: 4, I32: 4, F32: 4, BOOL: 1, 10: 8, 11: 8, 12: 8}


# --- reading: the key-values of a GGUF ----------------------------------------------------------


@dataclass(frozen=True)
class KeyValues:
    """The key-values of a GGUF in file order, as raw bytes.

    Each item of `raw` is a whole entry of the file: key, type and value.
    """

    raw: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def text(self, key: str) -> str | None:
        """The value of a string key; None if it is absent or not a string."""
        entry = self.raw.get(key)
        start = 8 + len(key.encode())
        if entry is None or struct.unpack_from("<I", entry, start)[0] != STRING:
            return None
        return entry[start + 12 :].decode("utf-8", "replace")

    def flag(self, key: str, *, default: bool) -> bool:
        """The value of a boolean key."""
        entry = self.raw.get(key)
        return default if entry is None else entry[-1] != 0

    def strings(self, key: str) -> list[str]:
        """The items of an array of strings; [] if the key is absent or has another type."""
        data = self._array(key, STRING)
        out: list[str] = []
        position = 0
        while position < len(data):
            (length,) = struct.unpack_from("<Q", data, position)
            position += 8 + length
            out.append(data[position - length : position].decode("utf-8", "replace"))
        return out

    def floats(self, key: str) -> list[float]:
        """The items of an array of 32-bit floats; [] if the key is absent or has another type."""
        data = self._array(key, F32)
        return list(struct.unpack(f"<{len(data) // 4}f", data))

    def _array(self, key: str, kind: int) -> bytes:
        """The bytes of the items of an array of this type; empty for any other value."""
        entry = self.raw.get(key, b"")
        start = 8 + len(key.encode())
        if entry[start : start + 8] != struct.pack("<II", ARRAY, kind):
            return b""
        return entry[start + 16 :]

    @property
    def n_tokens(self) -> int:
        """The length of `tokenizer.ggml.tokens`; 0 if it is absent."""
        key = "tokenizer.ggml.tokens"
        entry = self.raw.get(key)
        start = 8 + len(key)
        if entry is None or entry[start : start + 8] != struct.pack("<II", ARRAY, STRING):
            return 0
        return struct.unpack_from("<Q", entry, start + 8)[0]

    def tokens(self) -> Iterator[bytes]:
        """The texts of `tokenizer.ggml.tokens`, in order of ids."""
        if not self.n_tokens:
            return
        entry = self.raw["tokenizer.ggml.tokens"]
        place = len("tokenizer.ggml.tokens") + 24
        for _ in range(self.n_tokens):
            (length,) = struct.unpack_from("<Q", entry, place)
            yield entry[place + 8 : place + 8 + length]
            place += 8 + length

    @property
    def tokenizer(self) -> bytes:
        """All `tokenizer.*` entries, concatenated in file order."""
        return b"".join(raw for key, raw in self.raw.items() if key.startswith("tokenizer."))


def scan(path: Path) -> KeyValues:
    """Read the key-values of a GGUF (version 2 or 3, little-endian) without its tensors.

    `gguf.GGUFReader` makes a numpy view of every token and takes 11-22 s for 262,144 of them; this
    function takes about 0.1 s. Time and memory are bounded by the size of the file, even if it is
    damaged. Raises `LoadRefused` if the header is incomplete or malformed.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _scan(data)
    except (struct.error, IndexError, OverflowError):  # from reading beyond the end
        raise LoadRefused(f"{path}: the file ends in the middle of its GGUF header") from None
    except ValueError as error:  # from mmap (an empty file) or from _scan
        raise LoadRefused(f"{path}: not a usable GGUF file: {error}") from None


def _scan(data: mmap.mmap) -> KeyValues:
    magic, version, _, count = struct.unpack_from("<4sIQQ", data, 0)
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError(f"it begins with {magic!r}, version {version}")
    found: dict[str, bytes] = {}
    position = 24
    for _ in range(count):  # each entry takes 12 bytes or more, else struct.error ends the loop
        (length,) = struct.unpack_from("<Q", data, position)
        if not 0 < length < 65536:
            raise ValueError(f"a key of {length} bytes at byte {position}")
        key = data[position + 8 : position + 8 + length].decode("utf-8")
        (kind,) = struct.unpack_from("<I", data, position + 8 + length)
        end = _skip(data, position + 12 + length, kind)
        if end > len(data):
            raise struct.error
        if key in found:
            raise ValueError(f"it has the key {key!r} twice")
        found[key] = data[position:end]
        position = end
    return KeyValues(found)


def _skip(data: mmap.mmap, position: int, kind: int) -> int:
    """The offset after the value of type `kind` at `position`; may be beyond the end of `data`."""
    if kind in _SIZES:
        return position + _SIZES[kind]
    if kind == STRING:
        return position + 8 + struct.unpack_from("<Q", data, position)[0]
    if kind != ARRAY:
        raise ValueError(f"a value of unknown type {kind} at byte {position}")
    inner, count = struct.unpack_from("<IQ", data, position)
    position += 12
    if inner in _SIZES:
        return position + count * _SIZES[inner]
    if inner != STRING:
        raise ValueError(f"an array of unknown type {inner} at byte {position}")
    unpack = struct.Struct("<Q").unpack_from
    for _ in range(count):  # each item takes 8 bytes or more, else struct.error ends the loop
        position += 8 + unpack(data, position)[0]
    return position


# --- writing ------------------------------------------------------------------------------------


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def key_value(key: str, kind: int, value: bytes) -> bytes:
    return string(key.encode()) + struct.pack("<I", kind) + value


def u32(key: str, value: int) -> bytes:
    return key_value(key, U32, struct.pack("<I", value))


def text(key: str, value: str) -> bytes:
    return key_value(key, STRING, string(value.encode()))


def write(out: Path, chunks: Iterable[bytes]) -> None:
    """Write `chunks` to `out` atomically: it appears complete or not at all. Raises OSError."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary, temporary.open("wb") as file:
        file.writelines(chunks)
