"""Seeded byte strings on which SentencePiece encoders may differ, for one vocabulary.

The kinds alternate: random bytes, letters, runs of white space and U+2581, specials among words,
scripts without spaces, random code points, joined tokens, broken UTF-8, and letters of which nearly
every pair can be merged.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator

from pipeline.vocab.prefix_schemes import SpmPrefixScheme
from pipeline.vocab.sentencepiece.encoder import SpmEncoder
from pipeline.vocab.token_types import UNRENDERED, Attr
from pipeline.vocab.vocabulary import Vocabulary

_SIZES = (1, 2, 3, 5, 8, 13, 30, 60, 120, 300)
_WORDS = (b" ", b"a", b" b", b"\n", b"word", b"  ")
_BROKEN = (b"\xc3", b"\xe2", b"\xf0", b"\xff", b"\x80", b"\xe2\x96", b"\xe2\x96\x81", b" ", b"the")


def strings(vocabulary: Vocabulary, n: int, seed: int) -> Iterator[bytes]:
    """`n` strings; the same seed gives the same ones."""
    rng = random.Random(seed)
    marks = UNRENDERED | int(Attr.USER_DEFINED)
    pairs = zip(vocabulary.texts, vocabulary.attrs.tolist(), strict=True)
    specials = [text for text, attr in pairs if attr & marks]

    def special_or_word() -> bytes:
        return rng.choice(specials) if rng.random() < 0.4 else rng.choice(_WORDS)

    def anything() -> int:
        return rng.choice((rng.randrange(32, 127), rng.randrange(0xD800), rng.randrange(0x110000)))

    for i in range(n):
        size = rng.choice(_SIZES)
        match i % 9:
            case 0:
                yield rng.randbytes(size)
            case 1:
                yield "".join(rng.choices(string.ascii_letters, k=size)).encode()
            case 2:
                yield "".join(rng.choices("   \t\nab\u2581", k=size)).encode()
            case 3:
                yield b"".join(special_or_word() for _ in range(size // 3 + 1))
            case 4:
                yield "".join(rng.choices("é̈ß中文あ한😀\u2581 x公司日本語", k=size)).encode()
            case 5:
                yield "".join(chr(anything()) for _ in range(size)).encode("utf-8", "surrogatepass")
            case 6:
                yield b"".join(rng.choices(vocabulary.true_bytes, k=size // 3 + 1))
            case 7:
                yield b"".join(rng.choices(_BROKEN, k=size))
            case _:
                yield "".join(rng.choices("aes", k=size)).encode()


def native_scheme(vocabulary: Vocabulary) -> SpmPrefixScheme:
    """The prefix scheme that llama.cpp itself follows for a vocabulary."""
    adds = vocabulary.add_space_prefix
    return SpmPrefixScheme.AFTER_EACH_SPECIAL if adds else SpmPrefixScheme.NONE


class Compared:
    """Our encoders for one vocabulary, to compare with llama.cpp string by string."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        scheme = native_scheme(vocabulary)
        self.vocabulary = vocabulary
        self.lossless = SpmEncoder.lossless(vocabulary)
        self.encoders = {
            parse: SpmEncoder(vocabulary, scheme, parse_special=parse) for parse in (True, False)
        }

    def lost(self, data: bytes) -> bytes | None:
        """The decoded bytes of the lossless encoding if they differ from `data`, else None."""
        got = b"".join(self.vocabulary.rendered[token] for token in self.lossless.encode(data))
        return None if got == data else got
