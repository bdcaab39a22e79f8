"""Types of vocabularies and attributes of tokens, with llama.cpp's numbers."""

from __future__ import annotations

from enum import IntFlag, StrEnum

META_SPACE = "\u2581".encode()
"""U+2581, which SentencePiece writes for a space."""


class VocabType(StrEnum):
    """`enum llama_vocab_type`, by name."""

    NONE = "NONE"
    SPM = "SPM"
    BPE = "BPE"
    WPM = "WPM"
    UGM = "UGM"
    RWKV = "RWKV"
    PLAMO2 = "PLAMO2"
    OTHER = "OTHER"


VOCAB_TYPES = (
    VocabType.NONE,
    VocabType.SPM,
    VocabType.BPE,
    VocabType.WPM,
    VocabType.UGM,
    VocabType.RWKV,
    VocabType.PLAMO2,
)


class Attr(IntFlag):
    """`enum llama_token_attr`."""

    UNDEFINED = 0
    UNKNOWN = 1
    UNUSED = 2
    NORMAL = 4
    CONTROL = 8
    USER_DEFINED = 16
    BYTE = 32
    NORMALIZED = 64
    LSTRIP = 128
    RSTRIP = 256
    SINGLE_WORD = 512


UNRENDERED = int(Attr.CONTROL | Attr.UNKNOWN)
"""Attributes of tokens that a runtime does not render (`attr_special` in llama.cpp)."""

_KIND = int(Attr.UNKNOWN | Attr.UNUSED | Attr.NORMAL | Attr.CONTROL | Attr.USER_DEFINED | Attr.BYTE)


def attr_name(attr: int) -> str:
    """The kind of a token, such as `NORMAL` or `CONTROL`, without its strip flags."""
    return Attr(attr & _KIND).name or "UNDEFINED"
