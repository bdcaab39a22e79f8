"""Where implementations put the dummy prefix, measured on texts that distinguish the schemes.

Each implementation encodes these texts. It follows a scheme if our encoder, under that scheme,
gives the same ids on every discriminating text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..vocab import chat_template
from ..vocab.prefix_schemes import SpmPrefixScheme
from ..vocab.sentencepiece.encoder import SpmEncoder
from ..vocab.token_types import Attr
from ..vocab.vocabulary import Vocabulary

_NO_SCHEME = "none of them"


@dataclass(frozen=True)
class Answer:
    """One implementation's answer: ids of each text, and of each conversation if it has chats."""

    implementation: str
    ids: list[list[int]]
    chats: list[dict[str, Any] | None]


@dataclass(frozen=True)
class Placement:
    """The texts of one vocabulary and our own encoder's ids of them under every scheme."""

    vocabulary: Vocabulary

    @cached_property
    def encoders(self) -> Mapping[SpmPrefixScheme, SpmEncoder]:
        """Our encoder under each scheme; its tables are shared."""
        made = SpmEncoder(self.vocabulary, SpmPrefixScheme.NONE)
        return {scheme: made.with_scheme(scheme) for scheme in SpmPrefixScheme}

    @cached_property
    def marker(self) -> int:
        """The special token in the texts: `[INST]` if the vocabulary has it, else an end id."""
        vocabulary = self.vocabulary
        special = int(Attr.CONTROL | Attr.USER_DEFINED)
        ids = {vocabulary.texts[i]: i for i in range(vocabulary.n_tokens) if self._is(i, special)}
        fallback = next(iter(sorted(ids.values(), key=lambda i: i == vocabulary.bos)), -1)
        return ids.get(b"[INST]", vocabulary.eos if vocabulary.eos in ids.values() else fallback)

    @cached_property
    def texts(self) -> list[str]:
        """The texts, discriminating ones first."""
        if self.marker == -1:
            return ["", "Write", " Write"]
        mark = self.vocabulary.texts[self.marker].decode("utf-8", "replace")
        first = [f"{mark}Write", f"a{mark}b", f"{mark} Write", f" a{mark} b", mark]
        bos = self._text_of(self.vocabulary.bos)
        return [*first, "", "Write", " Write", *([f"{bos}x"] if bos and bos != mark else [])]

    def discriminating(self, text: str) -> bool:
        """Whether schemes differ on a text that every implementation parses in the same way.

        A text that begins with the BOS is excluded: implementations treat it as their own BOS.
        """
        bos = self._text_of(self.vocabulary.bos)
        ids = {tuple(encoder.encode(text.encode())) for encoder in self.encoders.values()}
        return len(ids) > 1 and not (bos and text.startswith(bos))

    def matching_schemes(self, ids: Sequence[Sequence[int]]) -> str:
        """The schemes that give these ids on every discriminating text, joined by `|`.

        `ids` has one sequence for each of `texts`. If no scheme does, it is `none of them`.
        """
        pairs = [(t, [*i]) for t, i in zip(self.texts, ids, strict=True) if self.discriminating(t)]
        fits = [
            scheme
            for scheme, encoder in self.encoders.items()
            if all(encoder.encode(text.encode()) == found for text, found in pairs)
        ]
        return "|".join(fits) or _NO_SCHEME

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The texts of these tokens, as the file spells them."""
        return [self.vocabulary.texts[token].decode("utf-8", "replace") for token in ids]

    def request(self, model: str, sha256: str) -> dict[str, Any]:
        """The request to `reference_tokenizers` for a `tokenizer.model` of this vocabulary."""
        return {
            "model": model,
            "sha256": sha256,
            "marker": self._text_of(self.marker),
            "marker_id": self.marker,
            "texts": self.texts,
            "conversations": list(chat_template.CONVERSATIONS.values()),
        }

    def _is(self, token: int, attributes: int) -> bool:
        return bool(int(self.vocabulary.attrs[token]) & attributes)

    def _text_of(self, token: int) -> str:
        return self.vocabulary.texts[token].decode("utf-8", "replace") if token >= 0 else ""


def first_difference(one: Sequence[int], two: Sequence[int]) -> int | None:
    """The first index at which two id sequences differ; None if they are equal."""
    if list(one) == list(two):
        return None
    pairs = zip(one, two, strict=False)
    shorter = min(len(one), len(two))
    return next((i for i, (left, right) in enumerate(pairs) if left != right), shorter)
