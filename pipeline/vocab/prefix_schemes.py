"""Prefix schemes: where SentencePiece's dummy prefix goes in a text with special tokens.

In a SentencePiece vocabulary, word tokens begin with a space. So the tokenizer adds a space at the
beginning of a text (`add_dummy_prefix`; `add_space_prefix` in a GGUF). Implementations of the same
vocabulary disagree about where it goes if the text has special tokens. The output does not show
this: every id is in range, and every text decodes back. A chat prompt alternates text and markers,
so with the wrong scheme a model gets tokens it was not trained on.

No tokenizer file says which scheme it was made for, so a source declares it
(`tokenizer.prefix_scheme`); `declared` resolves `auto`. `audit/prefix_placement.py` measures which
scheme an implementation follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class SpmPrefixScheme(StrEnum):
    """Six measured behaviours. A *stretch* is a text between special tokens."""

    AFTER_EACH_SPECIAL = "after_each_special"
    """The first stretch and every stretch after a special token get a space.

    llama.cpp with `add_space_prefix` (`is_prev_special` in `llama_vocab::impl::tokenize`), so it is
    right for every GGUF that llama.cpp runs; transformers with `legacy=True`."""
    ONCE = "once"
    """The whole text gets one space before it is split. In front of a leading special token this
    space becomes a token of its own, unless the special token is BOS, EOS or unknown.

    transformers' slow tokenizer with `legacy=False` if the special token is only an added token,
    and splintr's `mistral_v2`."""
    ONCE_SWALLOWED = "once_swallowed"
    """As `ONCE`, but the lone space in front of a leading special token is dropped.

    transformers' slow tokenizer with `legacy=False` and an additional special token."""
    METASPACE_FIRST = "metaspace_first"
    """The first stretch gets a space if the text begins with it and it has no leading space.

    transformers' fast tokenizer with `prepend_scheme=first`."""
    METASPACE_ALWAYS = "metaspace_always"
    """Every stretch without a leading space gets one.

    transformers' fast tokenizer with `prepend_scheme=always`."""
    NONE = "none"
    """No stretch gets a space: `add_space_prefix=false`, as in Gemma's files."""

    @property
    def stands_alone(self) -> bool:
        """Whether the scheme puts a lone space before a leading special token."""
        return self is SpmPrefixScheme.ONCE

    def prefixes(self, stretch: bytes, *, at_start: bool) -> bool:
        """Whether a stretch gets a space; `at_start`: no special token precedes it."""
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
"""The two spellings of a space, which SentencePiece does not distinguish."""

AUTO = "auto"
"""The value of `tokenizer.prefix_scheme` that chooses the scheme by the source (`declared`)."""

LEGACY: Mapping[str, bool] = {
    "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055": True,  # Mistral 7B v0.1
    "37f00374dea48658ee8f5d0f21895b9bc55cb0103939607c8185bfd1c6ca1f89": False,  # Mistral 7B v0.2
    "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33": False,  # Mistral 7B v0.3
}
"""sha256 of a `tokenizer.model` → `legacy` in the `tokenizer_config.json` of its checkpoint. The
files come without that configuration. Source: the checkpoints' repositories
(mistralai/Mistral-7B-v0.1; for the v2 and v3 tokenizers mistralai/Mistral-7B-Instruct-v0.3)."""


def declared(
    wanted: str, *, adds_prefix: bool, is_gguf: bool, sha256: str | None = None
) -> SpmPrefixScheme:
    """The prefix scheme of a tokenizer; `wanted` is `tokenizer.prefix_scheme`.

    The user's choice comes first. With `auto`, a vocabulary that adds no prefix has the scheme
    `NONE`, and a GGUF has llama.cpp's. A `tokenizer.model` follows the `legacy` flag of its
    checkpoint (`LEGACY`, by `sha256`); an unknown one gets llama.cpp's scheme.

    Raises ValueError if `wanted` is not a scheme.
    """
    if wanted != AUTO:
        return SpmPrefixScheme(wanted)
    if not adds_prefix:
        return SpmPrefixScheme.NONE
    if is_gguf or LEGACY.get(sha256 or "", True):
        return SpmPrefixScheme.AFTER_EACH_SPECIAL
    return SpmPrefixScheme.ONCE
