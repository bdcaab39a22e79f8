"""Whether a builder's tokenization preserves the bytes of each probe, and how it changes them.

The tokens must render exactly the bytes of the input (`llguidance.h`, `LlgTokenizeFn`). The same
bytes in another split are `non_canonical`, which is not an error. Every probe is tried and every
class is reported, not only the first that fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..engines.builders.bridge import PROBES
from ..engines.table import Tokenize
from ..model.errors import TokenizeRaised
from ..model.verdicts import ByteChange, Tokenization
from ..vocab.token_types import META_SPACE, UNRENDERED, Attr
from ..vocab.vocabulary import Vocabulary


@dataclass(frozen=True)
class ProbeResult:
    """The result of one tokenization for one probe."""

    probe: bytes
    ids: tuple[int, ...]
    got: bytes
    verdict: Tokenization
    what: ByteChange
    reason: str = ""
    """Why there are no tokens, or none that count."""


_TEXTS = (
    "",
    "hello world",
    " leading",
    "trailing ",
    "  two  spaces  ",
    "a   b       c",
    " " * 31,
    "\t",
    "\t\t\t\t\t\tx",
    "\n",
    "\n\n\n\n",
    "a\r\nb",
    " \n \n ",
    "x   =  1",
    "don't 's n't ' s",
    "Wait . . . what ?! no , yes .",
    "foo_bar(baz)[0] -> {qux};",
    "I'M HERE",
    "3.14159 1,000,000 0x1F",
    '{"key": "value", "n": -12}',
    "São Paulo, naïve café",
    "e\u0301 a\u0308\u0323",
    "Ελληνικά Русский العربية עברית हिन्दी ไทย",
    "公司 日本語 한국어",
    "😀 👩‍👩‍👧‍👦 🏳️‍🌈 🦙.cpp",
    "a\u2581b",
    "\u2581",
    "\ufffd",
    "\ufe30 \u0149 \ufb01 \u00bd",
    "\u00a0\u2003\u200b\ufeff",
    "\x00",
    "\x01\x02\x1b[31m\x7f",
)
"""Texts that tokenizers are known to change: prefixes, runs, punctuation, normal forms."""

_TWICE = "the same text was tokenized to other ids the second time"
_LONG = 3000
"""Length of the long texts, in characters."""
_SPECIALS = 256
"""Most special tokens whose spellings are probed; of more, a sample is drawn."""

_INVALID = (b"\xff", b"\xfe\xff", b"\x80", b"\xc3", b"\xf0\x9f", b"\xf0\x9f\x98", b"a\xe2\x96 b")
_SCRIPTS = (
    *range(0xA1, 0x180, 3),
    *range(0x391, 0x460, 3),
    *range(0x5D0, 0x660, 5),
    *range(0x905, 0x940, 5),
    *range(0xE01, 0xE30, 5),
    *range(0x2010, 0x2040),
    *range(0x3041, 0x30FF, 7),
    *range(0x4E00, 0x9FA0, 400),
    *range(0xAC00, 0xD7A0, 500),
    *range(0x1F600, 0x1F640, 5),
)
"""Single characters of many scripts, as code points."""
_RANDOM_ALPHABETS = (
    "abcdefghij ABC.,!?",
    "  \t\n ab",
    "é̈ß中文あ한😀\u2581 x",
    "{}[]\"':,0123456789 -",
)


def probes(vocabulary: Vocabulary, seed: int, n_random: int = 40) -> list[bytes]:
    """All probes, without repetition.

    They are the three founding probes, texts that tokenizers are known to change, invalid UTF-8,
    every single byte, single characters of many scripts, the spellings of special tokens (alone,
    inside text, and before a space, a newline and a word), long texts, and random texts and bytes
    (`seed`).
    """
    rng = random.Random(seed)
    specials = [
        text
        for text, attr in zip(vocabulary.texts, vocabulary.attrs.tolist(), strict=True)
        if attr & (UNRENDERED | int(Attr.USER_DEFINED)) and text
    ]
    if len(specials) > _SPECIALS:
        specials = rng.sample(specials, _SPECIALS)
    out = [*PROBES, *(text.encode() for text in _TEXTS), *_INVALID]
    out += [bytes([byte]) for byte in range(256)]
    out += [chr(code).encode() for code in _SCRIPTS]
    for text in specials:
        out += [text, b"a" + text + b" b", text + b" ", text + b"\n", text + b"word"]
    for _ in range(n_random):
        alphabet = rng.choice(_RANDOM_ALPHABETS)
        out.append("".join(rng.choices(alphabet, k=rng.randint(1, 24))).encode())
    out += ["".join(rng.choices(alphabet, k=_LONG)).encode() for alphabet in _RANDOM_ALPHABETS]
    out += [rng.randbytes(rng.randint(1, 8)) for _ in range(n_random // 4)]
    return list(dict.fromkeys(out))


def measure(
    vocabulary: Vocabulary,
    tokenize: Tokenize,
    canonical: Tokenize | None,
    survives: Callable[[bytes], bool],
    probe_list: list[bytes],
) -> Iterator[ProbeResult]:
    """Tokenize every probe, twice, and compare the bytes.

    `tokenize` is called as the engine calls the builder's tokenization; it may raise
    TokenizeRaised.
    `canonical` is the runtime's own split, None if there is none to compare with. A probe that does
    not survive (`survives`) would abort the process: it is not tokenized, and its result is
    `thrown`.
    """
    for probe in probe_list:
        if not survives(probe):
            yield ProbeResult(probe, (), b"", Tokenization.THROWN, ByteChange.THROWN)
            continue
        try:
            ids, again = tuple(tokenize(probe)), tuple(tokenize(probe))
        except TokenizeRaised as error:
            yield ProbeResult(
                probe, (), b"", Tokenization.THROWN, ByteChange.RAISED, reason=str(error)
            )
            continue
        if ids != again:
            yield ProbeResult(
                probe, ids, b"", Tokenization.INEXACT, ByteChange.NOT_REPEATABLE, reason=_TWICE
            )
            continue
        known = tuple(token for token in ids if 0 <= token < vocabulary.n_tokens)
        got = b"".join(vocabulary.true_bytes[token] for token in known)
        special = any(vocabulary.attrs[token] & UNRENDERED for token in known)
        if got == probe and known == ids and not special:
            same = canonical is None or tuple(canonical(probe)) == ids
            verdict = Tokenization.EXACT if same else Tokenization.NON_CANONICAL
            yield ProbeResult(probe, ids, got, verdict, ByteChange.NONE)
        else:
            yield ProbeResult(
                probe, ids, got, Tokenization.INEXACT, _what(vocabulary, probe, ids, got)
            )


def _what(vocabulary: Vocabulary, probe: bytes, ids: tuple[int, ...], got: bytes) -> ByteChange:
    """The first class that explains the difference, most specific first."""
    attrs = [
        int(vocabulary.attrs[token]) if 0 <= token < vocabulary.n_tokens else Attr.UNKNOWN
        for token in ids
    ]
    if any(attr & Attr.UNKNOWN for attr in attrs):
        return ByteChange.UNKNOWN_TOKEN
    if any(attr & Attr.CONTROL for attr in attrs):
        return ByteChange.SPECIAL
    if META_SPACE in probe and got.endswith(probe.replace(META_SPACE, b" ")):
        return ByteChange.META_SYMBOL
    if got == b" " + probe:
        return ByteChange.PREFIX_ADDED
    try:
        probe.decode("utf-8")
    except UnicodeDecodeError:
        return ByteChange.INVALID_UTF8
    if _unspaced(got) == _unspaced(probe):
        return ByteChange.PREFIX_ADDED if len(got) > len(probe) else ByteChange.SPACE_REMOVED
    return ByteChange.NORMALISED


def _unspaced(data: bytes) -> bytes:
    return b"".join(data.split())
