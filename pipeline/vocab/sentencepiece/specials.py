"""Split a text on special tokens, as llama.cpp does before any merge.

Follows `llama_vocab::impl::tokenizer_st_partition`. Longer special tokens come first; each is
searched from left to right in the text that longer ones left. Control and unknown tokens count only
if requested. A token with a strip flag swallows the white space next to it; Phi-3's special tokens
do, so that bytes are lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ..token_types import UNRENDERED, Attr
from ..vocabulary import Vocabulary

Fragment = bytes | int
"""A non-empty stretch of text, or the id of a special token."""

_WHITE = b" \t\n\v\f\r"


@dataclass(frozen=True)
class _Special:
    text: bytes
    token: int
    strips_left: bool
    strips_right: bool


class Partition:
    """Splits texts on the special tokens of one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, *, control: bool, strip: bool = True) -> None:
        """`control`: also split on control and unknown tokens. `strip`: obey the strip flags."""
        wanted = int(Attr.USER_DEFINED) | (UNRENDERED if control else 0)
        attrs = vocabulary.attrs.tolist()
        specials = [
            _Special(
                vocabulary.texts[token],
                token,
                strips_left=strip and bool(attrs[token] & Attr.LSTRIP),
                strips_right=strip and bool(attrs[token] & Attr.RSTRIP),
            )
            for token in range(vocabulary.n_tokens)
            if attrs[token] & wanted and (control or not attrs[token] & UNRENDERED)
        ]
        self._specials = sorted(specials, key=lambda special: -len(special.text))
        self._ids = {special.text: special.token for special in specials}
        self._pattern: re.Pattern[bytes] | None = None
        if specials and not _can_meet(specials):
            # No special token can overlap another, so one regex finds the same as the passes.
            texts = (re.escape(special.text) for special in self._specials)
            self._pattern = re.compile(b"(" + b"|".join(texts) + b")")

    def __call__(self, data: bytes) -> Sequence[Fragment]:
        """The fragments in order; together they spell `data` without the stripped white space."""
        if self._pattern is not None:
            parts = self._pattern.split(data)
            return [self._ids[part] if i % 2 else part for i, part in enumerate(parts) if part]
        fragments: list[Fragment] = [data] if data else []
        for special in self._specials:
            if special.text in data:
                fragments = list(chain.from_iterable(_split(one, special) for one in fragments))
        return fragments


def _split(fragment: Fragment, special: _Special) -> Iterator[Fragment]:
    if isinstance(fragment, int):
        yield fragment
        return
    parts = fragment.split(special.text)
    for i, part in enumerate(parts):
        if i and special.strips_right:
            part = part.lstrip(_WHITE)
        if i < len(parts) - 1 and special.strips_left:
            part = part.rstrip(_WHITE)
        if part:
            yield part
        if i < len(parts) - 1:
            yield special.token


def _can_meet(specials: Iterable[_Special]) -> bool:
    """Whether two special tokens may overlap in a text, or one of them strips white space."""
    specials = list(specials)
    texts = {special.text for special in specials}
    heads = {text[:size] for text in texts for size in range(1, len(text) + 1)}
    for special in specials:
        text = special.text
        if special.strips_left or special.strips_right:
            return True
        if any(text[i:] in heads for i in range(1, len(text))):
            return True
        if any(text[i:j] in texts for i in range(1, len(text)) for j in range(i + 1, len(text))):
            return True
    return False
