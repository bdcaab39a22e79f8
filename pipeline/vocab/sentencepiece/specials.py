"""A text split on special tokens, as llama.cpp does it before any merge.

Follows `llama_vocab::impl::tokenizer_st_partition`: the longest special first, each at its
leftmost places in what the longer ones left over; control and unknown tokens only if they are
asked for; a token marked to strip swallows the white space beside it. Phi-3's specials do that,
which makes bytes vanish.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ..token_types import UNRENDERED, Attr
from ..vocabulary import Vocabulary

Fragment = bytes | int
"""A stretch of text, never empty, or the id of a special token."""

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
        """`control`: split on control and unknown tokens too. `strip`: swallow white space."""
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
            # None can overlap another, so the leftmost longest is what the passes would find.
            texts = (re.escape(special.text) for special in self._specials)
            self._pattern = re.compile(b"(" + b"|".join(texts) + b")")

    def __call__(self, data: bytes) -> Sequence[Fragment]:
        """The fragments in order; their bytes are `data` but for what was stripped."""
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
    """Whether two specials may overlap in a text, or one's white space be another."""
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
