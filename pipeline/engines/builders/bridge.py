"""The steps of llama.cpp's llguidance bridge, shared by the builders that follow it.

Follows `llama_sampler_llg_new_tokenizer` and `llama_sampler_llg_tokenize_fn` in llama.cpp's
`common/llguidance.cpp`. Nothing here adds or strips a space itself: the code calls the real
`llama_detokenize`, `llama_token_to_piece` and `llama_tokenize`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model.errors import BuilderRefused
from ...model.verdicts import TokenizeMode
from ...native.llama import PIECE_LIMIT, Vocab
from ..table import SPECIAL_MARKER, Material, Tokenize, TokenTable

PROBES = (b"The", b"a b", b"1\n2")
"""Texts with which the fix tests whether a tokenizer is byte-exact: for an added prefix, an inner
space, a newline."""


def end_token(material: Material) -> int:
    """The id with which the bridge ends a text: end of turn, else end of sequence, else -1."""
    vocabulary = material.vocabulary
    return vocabulary.eot if vocabulary.eot != -1 else vocabulary.eos


def entries(plain: list[bytes], special: list[bytes]) -> tuple[list[bytes], list[bool]]:
    """The bridge's loop over all ids: (claimed bytes, special marks), one entry per id.

    A token whose `plain` bytes are empty is entered as special, with its `special` bytes. Raises
    `BuilderRefused` as `refuse_long` does.
    """
    pairs = list(zip(plain, special, strict=True))
    claimed = [shown or whole for shown, whole in pairs]
    marked = [not shown and whole != b"" for shown, whole in pairs]
    for claim, mark in zip(claimed, marked, strict=True):
        if len(claim) + mark > PIECE_LIMIT:
            refuse_long(SPECIAL_MARKER + claim if mark else claim)
    return claimed, marked


def refuse_long(entry: bytes) -> None:
    """Raise `BuilderRefused` if the bridge aborts: the entry exceeds its buffer (`max_token`)."""
    if len(entry) > PIECE_LIMIT:
        raise BuilderRefused(
            f"a token of {len(entry)} bytes: the bridge aborts above {PIECE_LIMIT}"
        )


def detokenized_entries(vocab: Vocab) -> tuple[list[bytes], list[bool]]:
    """Entries as the unfixed bridge makes them (defect A): `llama_detokenize` of each id."""
    return entries(vocab.detokenize_each(special=False), vocab.detokenize_each(special=True))


def _piece_entries(material: Material) -> tuple[list[bytes], list[bool]]:
    """Entries as the fixed bridge makes them: `llama_token_to_piece` with lstrip 0."""
    return entries(material.vocabulary.rendered, material.vocabulary.true_bytes)


def true_table(
    material: Material,
    tokenize: Tokenize | None = None,
    mode: str = TokenizeMode.GREEDY.value,
    *,
    note: str = "",
    guarded: bool = False,
) -> TokenTable:
    """A table with the entries of the fixed bridge and this tokenization; greedy without one."""
    claimed, special = _piece_entries(material)
    return TokenTable(
        claimed, special, end_token(material), tokenize, mode, note=note, guarded=guarded
    )


@dataclass(frozen=True)
class LlamaTokenize:
    """`tokenize_fn` of the unfixed bridge (defect B): `llama_tokenize` with specials parsed.

    Equal for equal vocabularies, so that builders that use it may share a native tokenizer.
    """

    vocab: Vocab

    def __call__(self, data: bytes) -> list[int]:
        """The ids of some bytes."""
        return self.vocab.tokenize(data, add_special=False, parse_special=True)


def raw_tokenize(vocab: Vocab) -> Tokenize:
    """See `LlamaTokenize`."""
    return LlamaTokenize(vocab)


def throwing_probe(material: Material) -> bytes | None:
    """The first probe on which `llama_tokenize` throws here; None if it throws on none."""
    return next((probe for probe in PROBES if not material.survives(probe)), None)


def probed_tokenize(material: Material) -> Tokenize | None:
    """`tokenize_fn` of the fixed bridge: `llama_tokenize` if it is exact on all probes, else None.

    A probe that throws, or that gets an id out of range, counts as inexact. None means greedy.
    """
    vocab, tokenize = material.vocab, raw_tokenize(material.vocab)
    for probe in PROBES:
        if not material.survives(probe):
            return None
        ids = tokenize(probe)
        if not all(0 <= token < vocab.n_tokens for token in ids):
            return None
        if b"".join(vocab.piece(token, special=False) for token in ids) != probe:
            return None
    return tokenize
