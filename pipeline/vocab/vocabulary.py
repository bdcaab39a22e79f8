"""A vocabulary as llama.cpp reads it: every token's true bytes, and a second reading of them.

The *true bytes* of a token are what llama.cpp emits for it: `llama_token_to_piece(lstrip=0,
special=true)`. The second reading derives the bytes from the token's text by the rules of the
vocabulary type, without `token_to_piece`. Ids for which the two differ are in
`Vocabulary.disagreements`. A runtime *renders* less: it leaves control and unknown tokens out of
the text.

The rules follow `llama_vocab::impl::token_to_piece` and its helpers in llama.cpp's
`src/llama-vocab.cpp`; the byte-level alphabet is GPT-2's `bytes_to_unicode` (`encoder.py`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..native import llama
from ..system.provenance import framed
from .second_reading import second_reading
from .token_types import UNRENDERED, VOCAB_TYPES, VocabType

_BEYOND_UNICODE = re.compile(rb"(?:\xf4[\x90-\xbf]|[\xf5-\xf7][\x80-\xbf])[\x80-\xbf]{2}")
"""Bytes that llama.cpp decodes to a code point above U+10FFFF; it then throws."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of one GGUF; sequences with one entry per id have length `n_tokens`."""

    type: VocabType
    true_bytes: list[bytes] = field(repr=False)
    """What llama.cpp emits for each id, control tokens included."""
    texts: list[bytes] = field(repr=False)
    """Each token's text as in the file."""
    attrs: npt.NDArray[np.uint32] = field(repr=False)
    """`Attr` bits, shape (n_tokens,)."""
    scores: npt.NDArray[np.float32] = field(repr=False)
    """SentencePiece scores, shape (n_tokens,)."""
    bos: int
    eos: int
    eot: int
    end_ids: frozenset[int]
    """All ids at which llama.cpp's runtimes stop; a builder declares only one of them."""
    add_space_prefix: bool
    """Whether detokenizing removes the leading space of a text; measured."""
    clean_spaces: bool
    """Whether detokenizing removes the space before punctuation; measured."""
    disagreements: tuple[tuple[int, bytes], ...]
    """(id, second reading) of each token whose second reading differs from its true bytes."""
    hash: str
    """sha256 (hex) over everything above that affects an outcome."""

    @property
    def n_tokens(self) -> int:
        """The number of ids."""
        return len(self.true_bytes)

    @cached_property
    def hidden(self) -> list[bool]:
        """Whether a runtime leaves the token out of the text, by id."""
        return ((self.attrs & UNRENDERED) != 0).tolist()

    @cached_property
    def rendered(self) -> list[bytes]:
        """The bytes that a runtime writes for each id: empty for control and unknown tokens."""
        pairs = zip(self.true_bytes, self.hidden, strict=True)
        return [b"" if hidden else piece for piece, hidden in pairs]

    def written(self, ids: Iterable[int]) -> bytes | None:
        """The joined true bytes of some ids; None if one of them is out of range.

        `llama_tokenize` returns -1 for unknown text if a WordPiece vocabulary has no unknown token.
        """
        known = range(self.n_tokens)
        pieces = [self.true_bytes[token] if token in known else None for token in ids]
        return None if None in pieces else b"".join(piece for piece in pieces if piece)

    def may_throw(self, data: bytes) -> bool:
        """Whether `llama_tokenize` of these bytes may throw in C++, which ends the process."""
        if self.type is VocabType.SPM:
            return self.tokenize_can_throw
        return _BEYOND_UNICODE.search(data) is not None

    @cached_property
    def tokenize_can_throw(self) -> bool:
        """Whether `llama_tokenize` throws on some byte: SentencePiece without a token for it.

        `llama_vocab::impl::byte_to_token` tries `<0xNN>`, then the byte itself, and throws if
        neither is a token. (Other types throw on a code point above U+10FFFF: see `may_throw`.)
        """
        if self.type is not VocabType.SPM:
            return False
        texts = set(self.texts)
        return any(
            b"<0x%02X>" % byte not in texts and bytes([byte]) not in texts for byte in range(256)
        )


def read(model: llama.Model) -> Vocabulary:
    """Read the vocabulary of a loaded model, with the true bytes and the second reading."""
    vocab = model.vocab
    kind = VOCAB_TYPES[vocab.type] if 0 <= vocab.type < len(VOCAB_TYPES) else VocabType.OTHER
    true_bytes = vocab.pieces(special=True)
    texts = vocab.texts()
    attrs = vocab.attributes()
    scores = vocab.scores()
    ends = frozenset(vocab.end_of_generation())
    second = second_reading(kind, texts, attrs, meta_space=_spells_space_as_meta(model, kind))
    ids = {name: vocab.special_id(name) for name in ("bos", "eos", "eot")}
    add_space_prefix = _drops_leading_space(vocab, true_bytes)
    clean_spaces = _cleans_spaces(vocab, true_bytes)
    return Vocabulary(
        type=kind,
        true_bytes=true_bytes,
        texts=texts,
        attrs=attrs,
        scores=scores,
        bos=ids["bos"],
        eos=ids["eos"],
        eot=ids["eot"],
        end_ids=ends,
        add_space_prefix=add_space_prefix,
        clean_spaces=clean_spaces,
        disagreements=tuple(
            (i, mine)
            for i, (mine, true) in enumerate(zip(second, true_bytes, strict=True))
            if mine != true
        ),
        hash=_hash(
            texts,
            true_bytes,
            attrs.tobytes(),
            scores.tobytes(),
            repr((kind.value, ids, sorted(ends), add_space_prefix, clean_spaces)).encode(),
        ),
    )


def _spells_space_as_meta(model: llama.Model, kind: VocabType) -> bool:
    """Whether this is a BPE file for which llama.cpp sets `escape_whitespaces`."""
    pre = model.meta("tokenizer.ggml.pre")
    named = model.meta("tokenizer.ggml.model")
    return kind is VocabType.BPE and (
        named == "gemma4" or pre in {"gemma4", "granite-embed-multi-311m", "sarvam-moe"}
    )


def _drops_leading_space(vocab: llama.Vocab, pieces: list[bytes]) -> bool:
    for i, piece in enumerate(pieces):
        if len(piece) > 1 and piece[:1] == b" " and piece[1:].isalnum():
            return vocab.detokenize([i], special=True) == piece[1:]
    return False


def _cleans_spaces(vocab: llama.Vocab, pieces: list[bytes]) -> bool:
    ids = {piece: i for i, piece in reversed(list(enumerate(pieces)))}
    word = next((i for piece, i in ids.items() if piece.isalpha()), None)
    if word is None:
        return False
    for split in ([b" ."], [b" ", b"."], [b" ,"], [b" ", b","]):
        if all(part in ids for part in split):
            tail = b"".join(split)
            text = vocab.detokenize([word, *(ids[part] for part in split)], special=True)
            return not text.endswith(tail)
    return False


def _hash(texts: list[bytes], pieces: list[bytes], *rest: bytes) -> str:
    return hashlib.sha256(framed([*texts, *pieces, *rest])).hexdigest()


def open_vocabulary(path: Path) -> tuple[llama.Model, Vocabulary]:
    """Load a GGUF without its tensors and read its vocabulary. The caller closes the model.

    Raises `LoadRefused`.
    """
    model = llama.Model(path, vocab_only=True)
    return model, read(model)
