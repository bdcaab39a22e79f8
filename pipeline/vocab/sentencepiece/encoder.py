"""A SentencePiece encoder: llama.cpp's ids under any prefix scheme, or lossless encoding.

It has two modes. The first, *llama's ids*, equals `llama_tokenize`, whose scheme is
`AFTER_EACH_SPECIAL`, or `NONE` if the file has `add_space_prefix=false`. It loses bytes as
llama.cpp does: a space is added, U+2581 becomes a space, some special tokens swallow white space,
and a broken UTF-8 sequence swallows bytes after it. The second mode, *lossless*, encodes every byte
string so that it decodes to the same bytes. It adds no prefix, makes no control token from text,
and encodes U+2581 and broken UTF-8 as byte tokens. Texts that llama.cpp keeps unchanged get
llama.cpp's split.

Internally a text is a Python string with a space for U+2581, and U+DC00 + n for a byte n that is
not part of a character. Each character is a symbol; a symbol without a token becomes byte tokens.
The ids of merged parts are cached, so that natural text costs one lookup per word.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterable
from itertools import chain, pairwise

from ..prefix_schemes import SpmPrefixScheme
from ..token_types import META_SPACE, UNRENDERED, Attr, VocabType
from ..vocabulary import Vocabulary
from .cut_points import Cuts
from .merge import Scores, merge
from .specials import Partition

_META = META_SPACE.decode()
_BYTE = 0xDC00
"""The lone surrogate that stands for byte 0; it does not occur in UTF-8 text."""
_LONE = [chr(_BYTE + byte) for byte in range(256)]
_LONE_BYTES = {bytes([byte]): _LONE[byte] for byte in range(0x80, 256)}
_META_AS_BYTES = "".join(_LONE[byte] for byte in META_SPACE)

_NO_TOKEN = -1
_LEAST = -3.0e38
"""The lowest score; it replaces -inf, so that such a token can still be merged."""

_REMEMBERED = 1 << 18
"""Largest number of cached parts; when it is reached, the cache is cleared."""
_MEMORABLE = 64
"""Longest cached part, in characters."""

_SYMBOLS = re.compile(
    rb"(?:[\x00-\x7f]++|[\xc2-\xdf][\x80-\xbf]"
    rb"|(?:\xe0[\xa0-\xbf]|\xed[\x80-\x9f]|[\xe1-\xec\xee\xef][\x80-\xbf])[\x80-\xbf]"
    rb"|(?:\xf0[\x90-\xbf]|\xf4[\x80-\x8f]|[\xf1-\xf3][\x80-\xbf])[\x80-\xbf]{2})+"
    rb"|[\xc0-\xdf].?|[\xe0-\xef].{0,2}|[\xf0-\xff].{0,3}|.",
    re.DOTALL,
)
"""Runs of valid characters, or one broken symbol, whose length llama.cpp takes from its first byte.

The group is greedy, not possessive, because Python before 3.11.5 matches possessive groups wrongly.
"""


class SpmEncoder:
    """Encodes bytes to ids under one SentencePiece vocabulary; the module describes both modes."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        scheme: SpmPrefixScheme,
        *,
        parse_special: bool = True,
        at_start: bool = True,
    ) -> None:
        """The mode *llama's ids*; `parse_special` as in `llama_tokenize`.

        `at_start=False` adds no prefix at the beginning of a text, but still after special tokens.
        Raises ValueError if the vocabulary is not SentencePiece or has a score that is NaN.
        """
        self._scheme, self._at_start = scheme, at_start
        self._begin(vocabulary, range(vocabulary.n_tokens), _as_llama_reads)
        self._partition = Partition(vocabulary, control=parse_special)
        self._space = META_SPACE

    @classmethod
    def lossless(cls, vocabulary: Vocabulary) -> SpmEncoder:
        """The lossless mode. Raises ValueError as `__init__` does, and if a byte has no token."""
        made = cls.__new__(cls)
        made._scheme, made._at_start = SpmPrefixScheme.NONE, False
        rendered, texts, attrs = vocabulary.rendered, vocabulary.texts, vocabulary.attrs.tolist()
        plain = (
            token
            for token, text in enumerate(texts)
            if not attrs[token] & UNRENDERED and text.replace(META_SPACE, b" ") == rendered[token]
        )
        made._begin(vocabulary, plain, _as_it_is)
        made._partition = Partition(vocabulary, control=False, strip=False)
        made._space = b" "
        # In a file without token types, `<0x0A>` is a text of six characters, not a byte token.
        made._bytes = [
            token if token != _NO_TOKEN and rendered[token] == bytes([byte]) else _NO_TOKEN
            for byte, token in enumerate(made._bytes)
        ]
        if missing := [byte for byte, token in enumerate(made._bytes) if token == _NO_TOKEN]:
            raise ValueError(f"no token for {len(missing)} bytes, the first 0x{missing[0]:02X}")
        return made

    def _begin(
        self, vocabulary: Vocabulary, tokens: Iterable[int], read: Callable[[bytes], str]
    ) -> None:
        if vocabulary.type is not VocabType.SPM:
            raise ValueError(f"the vocabulary has type {vocabulary.type}, not SPM")
        self._read = read
        scores = vocabulary.scores.tolist()
        if any(map(math.isnan, scores)):
            raise ValueError("a token's score is not a number")
        self._ids: dict[str, int] = {}
        for token in tokens:
            text = vocabulary.texts[token]
            if b" " not in text:  # by the time of merging, spaces have been replaced by U+2581
                self._ids[text.decode("utf-8", "surrogateescape").replace(_META, " ")] = token
        self._scores: Scores = {
            text: max(scores[token], _LEAST) for text, token in self._ids.items()
        }
        self._bytes = _byte_tokens(vocabulary)
        unknown = (vocabulary.attrs & int(Attr.UNKNOWN)) != 0
        self._own = {vocabulary.bos, vocabulary.eos, *unknown.nonzero()[0].tolist()}
        self._cuts = Cuts(self._scores)
        self._parts = _Parts(self._merged)

    def with_scheme(self, scheme: SpmPrefixScheme) -> SpmEncoder:
        """A copy of this encoder with another scheme; both share their tables."""
        twin = copy.copy(self)
        twin._scheme = scheme
        return twin

    def encode(self, data: bytes) -> list[int]:
        """The ids of a text. Raises LookupError for a byte without a token (llama.cpp crashes)."""
        out: list[int] = []
        special_before = False
        for fragment in self._partition(data):
            if isinstance(fragment, int):
                if not out and self._scheme.stands_alone and fragment not in self._own:
                    out += self._ids_of(" ")
                out.append(fragment)
                special_before = True
            else:
                out += self._ids_of(self._prefix(fragment, special_before) + self._read(fragment))
        return out

    def _prefix(self, stretch: bytes, special_before: bool) -> str:
        wanted = self._scheme.prefixes(stretch, at_start=not special_before)
        return " " if wanted and (special_before or self._at_start) else ""

    def _ids_of(self, text: str) -> list[int] | tuple[int, ...]:
        if len(text) <= _MEMORABLE:
            return self._parts[text]
        parts = [text[start:end] for start, end in pairwise(self._cuts.cuts(text))]
        return list(chain.from_iterable(map(self._parts.__getitem__, parts)))

    def _merged(self, text: str) -> tuple[int, ...]:
        """The ids of a part that is merged as a whole."""
        ids = self._ids
        if len(text) == 1:
            return (ids[text],) if text in ids else self._fallback(text)
        out: list[int] = []
        for symbol in merge(text, self._scores):
            if symbol in ids:
                out.append(ids[symbol])
            else:
                out += self._fallback(symbol)
        return tuple(out)

    def _fallback(self, symbol: str) -> tuple[int, ...]:
        """The byte tokens of a character that has no token. Raises LookupError."""
        code = ord(symbol)
        if _BYTE <= code < _BYTE + 256:
            data = bytes([code - _BYTE])
        else:
            data = self._space if symbol == " " else symbol.encode()
        found = tuple(map(self._bytes.__getitem__, data))
        if _NO_TOKEN in found:
            raise LookupError(f"no token for a byte of {data!r}")
        return found


class _Parts(dict[str, tuple[int, ...]]):
    """Cache: part → ids; a missing part is merged."""

    def __init__(self, merged: Callable[[str], tuple[int, ...]]) -> None:
        super().__init__()
        self._merged = merged

    def __missing__(self, part: str) -> tuple[int, ...]:
        ids = self._merged(part)
        if len(part) <= _MEMORABLE:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[part] = ids
        return ids


def _byte_tokens(vocabulary: Vocabulary) -> list[int]:
    """The token of each byte as in `llama_vocab::byte_to_token`: `<0xNN>`, else the byte itself."""
    ids = {text: token for token, text in enumerate(vocabulary.texts)}
    own = [ids.get(bytes([byte]), _NO_TOKEN) for byte in range(256)]
    return [ids.get(b"<0x%02X>" % byte, own[byte]) for byte in range(256)]


def _as_it_is(data: bytes) -> str:
    """The text without any loss: U+2581 and broken UTF-8 become lone bytes."""
    return data.decode("utf-8", "surrogateescape").replace(_META, _META_AS_BYTES)


def _as_llama_reads(data: bytes) -> str:
    """The text as llama.cpp reads it: U+2581 is a space; a broken symbol becomes lone bytes.

    llama.cpp replaces spaces by U+2581 first, so a broken sequence can swallow part of a space.
    """
    try:
        return data.decode().replace(_META, " ")
    except UnicodeDecodeError:
        symbols = _SYMBOLS.findall(data.replace(b" ", META_SPACE))
        return "".join(map(_Symbols(_LONE_BYTES).__getitem__, symbols))


class _Symbols(dict[bytes, str]):
    """Cache: symbol of `_SYMBOLS` → its internal text."""

    def __missing__(self, symbol: bytes) -> str:
        # Most broken symbols have a wrong second byte; this test avoids a slow exception.
        if symbol[0] < 0xC0 or b"\x80" <= symbol[1:2] < b"\xc0":
            try:
                read = symbol.decode().replace(_META, " ")
            except UnicodeDecodeError:
                return "".join([_LONE[byte] for byte in symbol])
            if len(symbol) <= _MEMORABLE:
                self[symbol] = read
            return read
        return "".join([_LONE[byte] for byte in symbol])
