"""Where SentencePiece's dummy prefix goes once a text is split on special tokens.

A SentencePiece vocabulary spells a word by the space before it, so a text gets a space in front
that nobody wrote (`add_dummy_prefix`, in a GGUF `add_space_prefix`). Implementations of one and
the same vocabulary disagree about where that space goes when a text holds special tokens, and
nothing in the output shows it: every id is in range and every text decodes back. A chat prompt is
an alternation of text and markers, so a model reads pieces it was not trained on.

No tokenizer file says which behaviour it was made for, so a source declares it
(`tokenizer.prefix_scheme`); `declared` says what `auto` means and why. What an implementation
really does is measured: `followed` names the scheme its ids agree with.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class SpmPrefixScheme(StrEnum):
    """The six behaviours that were measured; a *stretch* is the text between special tokens."""

    AFTER_EACH_SPECIAL = "after_each_special"
    """The first stretch and every stretch after a special token get a space.

    llama.cpp with `add_space_prefix` (`is_prev_special` in `llama_vocab::impl::tokenize`), and so
    right for every GGUF it runs; transformers with `legacy=True`."""
    ONCE = "once"
    """The whole text gets a space before it is split: one in front of a leading special token is
    left standing alone, unless the token is the BOS, the EOS or the unknown one.

    transformers' slow tokenizer with `legacy=False`, where the special token is only an added one,
    and splintr's `mistral_v2`."""
    ONCE_SWALLOWED = "once_swallowed"
    """As `ONCE`, but what would stand alone in front of a leading special token is dropped.

    transformers' slow tokenizer with `legacy=False` and an additional special token."""
    METASPACE_FIRST = "metaspace_first"
    """The first stretch, if the text begins with it and it does not begin with a space.

    transformers' fast tokenizer with `prepend_scheme=first`."""
    METASPACE_ALWAYS = "metaspace_always"
    """Every stretch that does not begin with a space.

    transformers' fast tokenizer with `prepend_scheme=always`."""
    NONE = "none"
    """No stretch: `add_space_prefix=false`, as Gemma's files have it."""

    @property
    def stands_alone(self) -> bool:
        """Whether a leading special token has a lone space before it."""
        return self is SpmPrefixScheme.ONCE

    def prefixes(self, stretch: bytes, *, at_start: bool) -> bool:
        """Whether a space goes before a stretch; `at_start`: no special token precedes it."""
        match self:
            case SpmPrefixScheme.AFTER_EACH_SPECIAL:
                return True
            case SpmPrefixScheme.ONCE | SpmPrefixScheme.ONCE_SWALLOWED:
                return at_start
            case SpmPrefixScheme.METASPACE_FIRST:
                return at_start and not stretch.startswith(_SPACES)
            case SpmPrefixScheme.METASPACE_ALWAYS:
                return not stretch.startswith(_SPACES)
            case SpmPrefixScheme.NONE:
                return False


_SPACES = (b" ", "\u2581".encode())
"""The two spellings of a space: SentencePiece cannot tell them apart."""

AUTO = "auto"
"""The value of `tokenizer.prefix_scheme` that asks for what the source says."""

LEGACY: Mapping[str, bool] = {
    "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055": True,  # Mistral 7B v0.1
    "37f00374dea48658ee8f5d0f21895b9bc55cb0103939607c8185bfd1c6ca1f89": False,  # Mistral 7B v0.2
    "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33": False,  # Mistral 7B v0.3
}
"""`legacy` in the `tokenizer_config.json` of the checkpoint a `tokenizer.model` belongs to, by the
file's sha256: the files come without that configuration. Source: the checkpoints' repositories
(mistralai/Mistral-7B-v0.1; the v2 and v3 tokenizers as in mistralai/Mistral-7B-Instruct-v0.3)."""


def declared(
    wanted: str, *, adds_prefix: bool, is_gguf: bool, sha256: str | None = None
) -> SpmPrefixScheme:
    """The scheme a tokenizer is used under; `wanted` is `tokenizer.prefix_scheme`.

    What the user declares wins. Else a vocabulary that adds no prefix has none, a GGUF is
    llama.cpp's to run, and a `tokenizer.model` (of this sha256) follows its checkpoint's `legacy`
    flag; of an unknown one nothing better is known than what llama.cpp makes of it.
    """
    if wanted != AUTO:
        return SpmPrefixScheme(wanted)
    if not adds_prefix:
        return SpmPrefixScheme.NONE
    if is_gguf or LEGACY.get(sha256 or "", True):
        return SpmPrefixScheme.AFTER_EACH_SPECIAL
    return SpmPrefixScheme.ONCE
