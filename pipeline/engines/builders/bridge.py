"""The steps of llama.cpp's llguidance bridge that its builders share.

Follows `llama_sampler_llg_new_tokenizer` and `llama_sampler_llg_tokenize_fn` in llama.cpp's
`common/llguidance.cpp`. Nothing here adds or strips a space: the real `llama_detokenize`,
`llama_token_to_piece` and `llama_tokenize` do whatever they do.
"""

from __future__ import annotations

from ...model.errors import BuilderRefused
from ...native.llama import PIECE_LIMIT, Vocab
from ..table import SPECIAL_MARKER, Material, Tokenize, TokenTable

PROBES = (b"The", b"a b", b"1\n2")
"""Texts by which the fix tells a byte-exact tokenizer: a prefix, a space within, a newline."""


def end_token(material: Material) -> int:
    """The id the bridge ends a text with: end of turn, else end of sequence, else -1."""
    vocabulary = material.vocabulary
    return vocabulary.eot if vocabulary.eot != -1 else vocabulary.eos


def entries(plain: list[bytes], special: list[bytes]) -> tuple[list[bytes], list[bool]]:
    """The bridge's loop: a token that renders as nothing is entered as special, by its text."""
    pairs = list(zip(plain, special, strict=True))
    claimed = [shown or whole for shown, whole in pairs]
    marked = [not shown and whole != b"" for shown, whole in pairs]
    for claim, mark in zip(claimed, marked, strict=True):
        if len(claim) + mark > PIECE_LIMIT:
            refuse_long(SPECIAL_MARKER + claim if mark else claim)
    return claimed, marked


def refuse_long(entry: bytes) -> None:
    """Refuse where the bridge aborts: an entry that does not fit its buffer (`max_token`)."""
    if len(entry) > PIECE_LIMIT:
        raise BuilderRefused(
            f"a token of {len(entry)} bytes: the bridge aborts above {PIECE_LIMIT}"
        )


def detokenized_entries(vocab: Vocab) -> tuple[list[bytes], list[bool]]:
    """Entries as the unfixed bridge fills them in (defect A): `llama_detokenize` of one id."""
    return entries(vocab.detokenize_each(special=False), vocab.detokenize_each(special=True))


def _piece_entries(material: Material) -> tuple[list[bytes], list[bool]]:
    """Entries as the fixed bridge fills them in: `llama_token_to_piece` with lstrip 0."""
    return entries(material.vocabulary.rendered, material.vocabulary.true_bytes)


def true_table(
    material: Material,
    tokenize: Tokenize | None = None,
    mode: str = "greedy",
    *,
    note: str = "",
    guarded: bool = False,
) -> TokenTable:
    """Entries as the fixed bridge has them, under any tokenization; greedy where none is given."""
    claimed, special = _piece_entries(material)
    return TokenTable(
        claimed, special, end_token(material), tokenize, mode, note=note, guarded=guarded
    )


def raw_tokenize(vocab: Vocab) -> Tokenize:
    """`tokenize_fn` as the unfixed bridge has it (defect B): `llama_tokenize`, specials parsed."""
    return lambda data: vocab.tokenize(data, add_special=False, parse_special=True)


def probed_tokenize(material: Material) -> Tokenize | None:
    """`tokenize_fn` as the fixed bridge has it: `llama_tokenize` where the probes come back exact.

    A probe that throws, or comes back as an id of no token, counts as inexact. None stands for
    greedy.
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
