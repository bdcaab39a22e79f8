"""Derive a token's bytes from its text in the file, as a check on `llama_token_to_piece`."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from .token_types import META_SPACE, UNRENDERED, Attr, VocabType


def second_reading(
    kind: VocabType, texts: list[bytes], attrs: npt.NDArray[np.uint32], *, meta_space: bool
) -> list[bytes]:
    """The bytes of each token, derived from its text by the rules of the vocabulary's type.

    `meta_space` is for BPE vocabularies: True if they spell a space as U+2581 (as Gemma 4 does),
    False if they use GPT-2's byte-level alphabet. `texts` and `attrs` have one entry per id.
    """
    if kind is VocabType.RWKV:
        return [_rwkv(text) for text in texts]
    if kind is VocabType.PLAMO2:  # keeps U+2581 and emits unused tokens
        bits = attrs.tolist()
        return [
            _byte_token(text) if attr & Attr.BYTE else text
            for text, attr in zip(texts, bits, strict=True)
        ]
    unspell = _meta_to_space if kind is not VocabType.BPE or meta_space else _byte_level
    out: list[bytes] = []
    normal, byte = int(Attr.NORMAL), int(Attr.BYTE)  # `&` of an enum takes ten times as long
    verbatim = UNRENDERED | int(Attr.USER_DEFINED)
    for text, attr in zip(texts, attrs.tolist(), strict=True):
        if attr & verbatim:
            out.append(text)
        elif attr & normal:
            out.append(unspell(text))
        elif attr & byte:
            out.append(_byte_token(text))
        else:
            out.append(b"")  # unused and undefined tokens emit nothing
    return out


def _meta_to_space(text: bytes) -> bytes:
    return text.replace(META_SPACE, b" ")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: character → byte. Printable bytes are themselves, others from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [byte for byte in range(256) if byte not in set(plain)]
    table = {chr(byte): byte for byte in plain}
    table.update({chr(0x100 + i): byte for i, byte in enumerate(shifted)})
    return table


_ALPHABET = _byte_alphabet()


def _byte_level(text: bytes) -> bytes:
    out = bytearray()
    whole = text.decode("utf-8", "replace")
    for char in whole:
        byte = _ALPHABET.get(char)
        if byte is None:  # llama_decode_text writes this marker with the whole text
            out += b"[UNK_BYTE_0x" + char.encode().hex().encode() + text + b"]"
        else:
            out.append(byte)
    return bytes(out)


def _byte_token(text: bytes) -> bytes:
    match = re.fullmatch(rb"<0x([0-9A-Fa-f]{2})>", text)
    return bytes([int(match[1], 16)]) if match else text


_RWKV_SHORT = {ord("t"): b"\t", ord("n"): b"\n", ord("r"): b"\r"}


def _rwkv(text: bytes) -> bytes:
    """Undo the escapes of an RWKV vocabulary as `llama_unescape_rwkv_token` does.

    Like that function, it reads every hex digit as lower case and drops an incomplete escape.
    """
    out = bytearray()
    place = 0
    while place < len(text):
        byte = text[place]
        place += 1
        if byte != 0x5C:  # a backslash
            out.append(byte)
        elif place < len(text) and text[place] == ord("x"):
            digits = text[place + 1 : place + 3]
            place += 3
            if len(digits) == 2:
                high, low = (d - (87 if d >= ord("a") else 48) for d in digits)
                out.append((high * 16 + low) & 0xFF)
        elif place < len(text):
            out += _RWKV_SHORT.get(text[place], text[place : place + 1])
            place += 1
    return bytes(out)
