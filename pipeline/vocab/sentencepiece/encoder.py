"""A SentencePiece encoder: llama.cpp's ids under any prefix scheme, or exactly the bytes given.

Two modes. *llama's ids* equal `llama_tokenize` (its scheme is `AFTER_EACH_SPECIAL`, or `NONE` where
the file says `add_space_prefix=false`), its ways of losing bytes included: a space is added, U+2581
becomes a space, some specials swallow white space, and a broken UTF-8 sequence swallows what
follows it. *Lossless* gives back every byte string to the byte: no prefix, no control token out of
text, U+2581 and broken UTF-8 as byte tokens; what llama.cpp itself keeps is split as it splits it.

Internally a text is a Python string with a space for U+2581, and U+DC00 + n for a byte n that is
no part of a character; so characters are symbols, and those that no token has become bytes.
What a part of a text is merged to is remembered, so natural text costs a look-up a word.
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
"""The lone surrogate that stands for byte 0; no text in UTF-8 has it."""
_LONE = [chr(_BYTE + byte) for byte in range(256)]
_LONE_BYTES = {bytes([byte]): _LONE[byte] for byte in range(0x80, 256)}
_META_AS_BYTES = "".join(_LONE[byte] for byte in META_SPACE)

_NO_TOKEN = -1
_LEAST = -3.0e38
"""Below every score there is; a token of -inf can still be merged."""

_REMEMBERED = 1 << 18
"""Parts whose ids are kept; when there are more, all are forgotten."""
_MEMORABLE = 64
"""Characters of a part up to which it is kept."""

_SYMBOLS = re.compile(
    rb"(?:[\x00-\x7f]++|[\xc2-\xdf][\x80-\xbf]"
    rb"|(?:\xe0[\xa0-\xbf]|\xed[\x80-\x9f]|[\xe1-\xec\xee\xef][\x80-\xbf])[\x80-\xbf]"
    rb"|(?:\xf0[\x90-\xbf]|\xf4[\x80-\x8f]|[\xf1-\xf3][\x80-\xbf])[\x80-\xbf]{2})+"
    rb"|[\xc0-\xdf].?|[\xe0-\xef].{0,2}|[\xf0-\xff].{0,3}|.",
    re.DOTALL,
)
"""Whole characters, or a symbol as llama.cpp cuts it: its first byte alone says how long it is.

The group is greedy and not possessive: Python before 3.11.5 matches possessive groups wrongly.
"""


class SpmEncoder:
    """Bytes to ids under one SentencePiece vocabulary; see the module for the two modes."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        scheme: SpmPrefixScheme,
        *,
        parse_special: bool = True,
        at_start: bool = True,
    ) -> None:
        """llama's ids. `parse_special` as in `llama_tokenize`.

        `at_start=False` keeps the prefix from a text's own beginning and leaves it after special
        tokens. Raises ValueError where the vocabulary is no SentencePiece one or has a score that
        is not a number.
        """
        self._scheme, self._at_start = scheme, at_start
        self._begin(vocabulary, range(vocabulary.n_tokens), _as_llama_reads)
        self._partition = Partition(vocabulary, control=parse_special)
        self._space = META_SPACE

    @classmethod
    def lossless(cls, vocabulary: Vocabulary) -> SpmEncoder:
        """The lossless mode. Raises ValueError as above, and where a byte has no token."""
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
        # A file without token types has `<0x0A>` as six letters: such a token is no byte.
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
            raise ValueError(f"a vocabulary of type {vocabulary.type} is not merged by score")
        self._read = read
        scores = vocabulary.scores.tolist()
        if any(map(math.isnan, scores)):
            raise ValueError("a token's score is not a number")
        self._ids: dict[str, int] = {}
        for token in tokens:
            text = vocabulary.texts[token]
            if b" " not in text:  # no text has a plain space by the time it is merged
                self._ids[text.decode("utf-8", "surrogateescape").replace(_META, " ")] = token
        self._scores: Scores = {
            text: max(scores[token], _LEAST) for text, token in self._ids.items()
        }
        self._bytes = _byte_tokens(vocabulary)
        unknown = (vocabulary.attrs & int(Attr.UNKNOWN)) != 0
        self._own = {vocabulary.bos, vocabulary.eos, *unknown.nonzero()[0].tolist()}
        self._cuts = Cuts(self._scores)
        self._parts = _Parts(self._merged)

    def under(self, scheme: SpmPrefixScheme) -> SpmEncoder:
        """The same encoder under another scheme; both share their tables."""
        twin = copy.copy(self)
        twin._scheme = scheme
        return twin

    def encode(self, data: bytes) -> list[int]:
        """The ids of a text. Raises LookupError where llama.cpp dies: a byte without a token."""
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
        """The ids of a text that is merged in one."""
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
        """A character that is no token, byte by byte."""
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
    """The ids of the parts met so far; a new one is merged."""

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
    """The token of each byte as `llama_vocab::byte_to_token` finds it: `<0xNN>`, else the byte."""
    ids = {text: token for token, text in enumerate(vocabulary.texts)}
    own = [ids.get(bytes([byte]), _NO_TOKEN) for byte in range(256)]
    return [ids.get(b"<0x%02X>" % byte, own[byte]) for byte in range(256)]


def _as_it_is(data: bytes) -> str:
    """Every byte kept: U+2581 and broken UTF-8 as lone bytes."""
    return data.decode("utf-8", "surrogateescape").replace(_META, _META_AS_BYTES)


def _as_llama_reads(data: bytes) -> str:
    """U+2581 is a space; a symbol that is no character is its bytes, whatever they are.

    llama.cpp writes spaces as U+2581 first, so a broken sequence can swallow part of one.
    """
    try:
        return data.decode().replace(_META, " ")
    except UnicodeDecodeError:
        symbols = _SYMBOLS.findall(data.replace(b" ", META_SPACE))
        return "".join(map(_Symbols(_LONE_BYTES).__getitem__, symbols))


class _Symbols(dict[bytes, str]):
    """Symbols of `_SYMBOLS` as the encoder has them, each read once."""

    def __missing__(self, symbol: bytes) -> str:
        # A broken start is told by its second byte: an exception costs more than all the rest.
        if symbol[0] < 0xC0 or b"\x80" <= symbol[1:2] < b"\xc0":
            try:
                read = symbol.decode().replace(_META, " ")
            except UnicodeDecodeError:
                return "".join([_LONE[byte] for byte in symbol])
            if len(symbol) <= _MEMORABLE:
                self[symbol] = read
            return read
        return "".join([_LONE[byte] for byte in symbol])
