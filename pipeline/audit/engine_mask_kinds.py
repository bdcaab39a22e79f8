"""Kinds of tokens that an engine's mask wrongly allows or misses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..engines.protocol import Mask
from ..grammars.case import Case
from ..model.verdicts import MaskKind, MaskVerdict
from ..vocab.vocabulary import Vocabulary
from . import small_cases
from .masks import Truth

_LONG = 32
"""Bytes above which a token counts as long: some libraries limit a token's text."""

Bits = npt.NDArray[np.bool_]

Key = tuple[MaskVerdict, MaskKind]
"""(verdict of the mask, kind of the wrong tokens)."""


@dataclass(frozen=True)
class Kinds:
    """Classifies the faults of a mask."""

    vocabulary: Vocabulary
    claimed: list[bytes]

    def of(
        self,
        case: Case,
        taken: Sequence[int],
        mask: Mask,
        truth: Truth,
        in_other_order: Bits | None = None,
    ) -> Iterator[tuple[Key, list[int]]]:
        """Yield every kind of fault in the mask after the tokens `taken`, with the wrong ids.

        `in_other_order` marks the ids that are legal if properties may come in any order, shape
        (n_tokens,).
        """
        rendered = self.vocabulary.rendered
        if any(self.claimed[token] != rendered[token] for token in taken):
            place = _Place.ELSEWHERE
        elif case.grammar.kind == "json":
            place = _Place.of(b"".join(rendered[token] for token in taken))
        else:
            place = None
        end = MaskKind.DRIFTED if place is _Place.ELSEWHERE else MaskKind.END
        n_tokens = self.vocabulary.n_tokens
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little").astype(np.bool_)
        legal, complete = truth
        ends = self._ends
        allowed = bits[:n_tokens]
        odd = allowed & ~legal & ~ends
        if in_other_order is not None and (odd & in_other_order).any():
            yield (
                (MaskVerdict.UNSOUND, MaskKind.JSON_ORDER),
                np.flatnonzero(odd & in_other_order).tolist(),
            )
            odd &= ~in_other_order
        yield from self._group(MaskVerdict.UNSOUND, odd, allowed, place)
        yield from self._group(MaskVerdict.INCOMPLETE, legal & ~allowed & ~ends, allowed, place)
        padding = np.flatnonzero(bits[n_tokens:]) + n_tokens
        if padding.size:
            yield (MaskVerdict.UNSOUND, MaskKind.PADDING), padding.tolist()
        stops = np.flatnonzero(allowed & ends)
        if stops.size and not complete:
            yield (MaskVerdict.STOP_TOO_EARLY, end), stops.tolist()
        if complete and not stops.size and ends.any():
            yield (MaskVerdict.STOP_MISSING, end), np.flatnonzero(ends).tolist()

    @cached_property
    def _ends(self) -> npt.NDArray[np.bool_]:
        ends = np.zeros(self.vocabulary.n_tokens, np.bool_)
        ends[list(self.vocabulary.end_ids)] = True
        return ends

    def _group(
        self, verdict: MaskVerdict, odd: Bits, allowed: Bits, place: _Place | None
    ) -> Iterator[tuple[Key, list[int]]]:
        groups: dict[MaskKind, list[int]] = {}
        for token in np.flatnonzero(odd).tolist():
            groups.setdefault(self._kind(token, verdict, allowed, place), []).append(token)
        for kind, ids in groups.items():
            yield (verdict, kind), ids

    def _kind(
        self, token: int, verdict: MaskVerdict, allowed: Bits, place: _Place | None
    ) -> MaskKind:
        true = self.vocabulary.true_bytes[token]
        if self.vocabulary.hidden[token]:
            return MaskKind.SPECIAL
        if not true:
            return MaskKind.NO_BYTES
        if place is _Place.ELSEWHERE:
            return MaskKind.DRIFTED
        if verdict is MaskVerdict.INCOMPLETE and any(allowed[i] for i in self._twins[true]):
            return MaskKind.DUPLICATE
        if self.claimed[token] != true:
            return MaskKind.WRONG_BYTES
        if len(true) > _LONG:
            return MaskKind.LONG
        if not small_cases.is_text(true):
            return MaskKind.HALF_CHARACTER
        if place is not None:
            return _json_kind(true, place)
        return MaskKind.NEWLINE if b"\n" in true else MaskKind.OTHER

    @cached_property
    def _twins(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for token, true in enumerate(self.vocabulary.true_bytes):
            found.setdefault(true, []).append(token)
        return found


class _Place(Enum):
    """Where a JSON prefix ends; `ELSEWHERE` if the engine's state differs from the text."""

    ELSEWHERE = "elsewhere"
    """An earlier token has wrong claimed bytes."""
    OUTSIDE = "outside"
    STRING = "string"
    ESCAPE = "escape"

    @staticmethod
    def of(prefix: bytes) -> _Place:
        plain = re.sub(rb"\\.", b"", prefix, flags=re.DOTALL)
        if plain.endswith(b"\\"):
            return _Place.ESCAPE
        return _Place.STRING if plain.count(b'"') % 2 else _Place.OUTSIDE


def _json_kind(true: bytes, place: _Place) -> MaskKind:
    """The kind of a token that continues JSON.

    JSON leaves some choices open, such as white space and escapes. Two engines can differ in these,
    and both can be right.
    """
    if place is _Place.ESCAPE:
        return MaskKind.JSON_SPELLING
    quoted = place is _Place.STRING
    parts = re.sub(rb"\\.", b"", true).split(b'"')
    if any(min(part, default=32) < 32 for part in parts[not quoted :: 2]):
        return MaskKind.CONTROL_CHARACTER
    if b"\\" in true or b"\x7f" in true:
        return MaskKind.JSON_SPELLING
    outside = parts[quoted::2]
    return (
        MaskKind.JSON_WHITE_SPACE
        if any(part.split() != [part] for part in outside if part)
        else MaskKind.OTHER
    )
