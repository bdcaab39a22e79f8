"""What a released engine's own masks allow and lack, against the byte oracles, by kind of token.

The walks are those of `walks`; here every mask on the way is looked at whole, so that each kind of
token that an engine lets in or loses is counted, and not only the first that decides a verdict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline import small_cases
from pipeline.constraint import Mask, Matcher
from pipeline.masks import MaskVerdict, Truth
from pipeline.oracle import ByteGrammar
from pipeline.suites import Case, Grammar
from pipeline.validate import Literal, Pattern
from pipeline.vocabulary import Vocabulary

_PERMUTED = 3
"""Properties of an object up to which every order is tried."""
LONG = 32
"""Bytes above which a token counts as long: some libraries bound a token's text."""

Bits = npt.NDArray[np.bool_]

Key = tuple[MaskVerdict, str]
"""What is wrong with a mask, and with which kind of token."""


def expressed(case: Case) -> tuple[str, str] | None:
    """A case's grammar as every engine knows it: (`regex` or `json`, text); None for any other.

    The grammar must say what the check says: one regular expression, or one text.
    """
    if case.grammar.kind == "json":
        return "json", case.grammar.text
    match case.check:
        case Pattern(source) if case.grammar.text == f"start: /{source}/":
            return "regex", source
        case Literal(data):
            text = data.decode()
            same = case.grammar.text == small_cases.literal_source(text)
            return ("regex", small_cases.escaped(text)) if same else None
        case _:
            return None


def reordered(case: Case) -> Iterator[ByteGrammar]:
    """A schema with its properties in every other order: llguidance keeps to one, JSON to none."""
    schema: dict[str, Any] = {}
    if case.grammar.text.startswith("{") and case.grammar.kind == "json":
        schema = json.loads(case.grammar.text)
    properties: dict[str, Any] = schema.get("properties", {})
    if len(properties) > _PERMUTED:
        return
    for order in [*permutations(properties)][1:]:
        other = schema | {"properties": {name: properties[name] for name in order}}
        text = json.dumps(other, separators=(",", ":"), ensure_ascii=False)
        yield ByteGrammar(Grammar("json", text).engine_text()[1])


class Recorder:
    """A matcher that keeps every mask it gives; what is done with its clones is not kept."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self.masks: list[Mask | None] = []
        self.clone = matcher.clone
        self.consume = matcher.consume
        self.accepting = matcher.accepting
        self.stopped = matcher.stopped
        self.forced = matcher.forced
        self.close = matcher.close

    @property
    def error(self) -> str | None:
        """See `Matcher.error`."""
        return self._matcher.error

    def mask(self) -> Mask | None:
        """See `Matcher.mask`."""
        self.masks.append(self._matcher.mask())
        return self.masks[-1]


@dataclass
class Found:
    """One kind of finding over all states of an engine."""

    n_states: int = 0
    ids: set[int] = field(default_factory=set[int])
    case: Case | None = None
    """The smallest case that shows it, after the fewest tokens."""
    taken: tuple[int, ...] = ()
    shown: tuple[int, ...] = ()
    """The ids of that one mask."""

    def take(self, case: Case, taken: Sequence[int], ids: Sequence[int]) -> None:
        """Count a state."""
        self.n_states += 1
        self.ids.update(ids)
        if self.case is None or size(case, taken) < size(self.case, self.taken):
            self.case, self.taken, self.shown = case, tuple(taken), tuple(ids)


def size(case: Case, taken: Sequence[int]) -> tuple[int, int]:
    """What makes one place smaller than another: its tokens, then its grammar."""
    return len(taken), len(case.grammar.text)


def smaller(
    key: Key, found: Found, vocabulary: Vocabulary, claimed: list[bytes]
) -> Iterator[tuple[Case, tuple[int, ...]]]:
    """Cases, and tokens to take first, that may show a finding in less; the smallest first."""
    assert found.case is not None
    proposed: list[tuple[Case, tuple[int, ...]]] = []
    if found.case.grammar.kind == "json":
        quotes = [token for token, true in enumerate(vocabulary.rendered) if true == b'"']
        proposed += [(small_cases.json_string(), tuple(quotes[:n])) for n in (0, 1)]
    else:
        proposed.append((small_cases.pattern("z*"), ()))  # complete at once, and free to go on
        texts = [b"a"]
        for token in found.shown[:3]:
            if token < vocabulary.n_tokens:
                texts += [vocabulary.true_bytes[token], claimed[token]]
        for case in (case for text in dict.fromkeys(texts) for case in small_cases.choice(text)):
            proposed.append((case, ()))
            if key[0] is MaskVerdict.INCOMPLETE:  # the way on, where the text could end as well
                source = case.grammar.text.removeprefix("start: /(").rpartition("|")[0]
                proposed.append((small_cases.pattern(f"({source}z)*"), ()))
    here = size(found.case, found.taken)
    yield from sorted((one for one in proposed if size(*one) < here), key=lambda one: size(*one))


@dataclass(frozen=True)
class Kinds:
    """Tells the kinds of a mask's faults apart."""

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
        """Every kind of fault in a mask after the tokens `taken`, with its ids.

        `in_other_order`: which ids are legal where properties may come in any order.
        """
        rendered = self.vocabulary.rendered
        if any(self.claimed[token] != rendered[token] for token in taken):
            place = _Place.ELSEWHERE
        elif case.grammar.kind == "json":
            place = _Place.of(b"".join(rendered[token] for token in taken))
        else:
            place = None
        end = "drifted" if place is _Place.ELSEWHERE else "end"
        n_tokens = self.vocabulary.n_tokens
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little").astype(np.bool_)
        legal, complete = truth
        ends = self._ends
        allowed = bits[:n_tokens]
        odd = allowed & ~legal & ~ends
        if in_other_order is not None and (odd & in_other_order).any():
            yield (MaskVerdict.UNSOUND, "json_order"), np.flatnonzero(odd & in_other_order).tolist()
            odd &= ~in_other_order
        yield from self._group(MaskVerdict.UNSOUND, odd, allowed, place)
        yield from self._group(MaskVerdict.INCOMPLETE, legal & ~allowed & ~ends, allowed, place)
        padding = np.flatnonzero(bits[n_tokens:]) + n_tokens
        if padding.size:
            yield (MaskVerdict.UNSOUND, "padding"), padding.tolist()
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
        groups: dict[str, list[int]] = {}
        for token in np.flatnonzero(odd).tolist():
            groups.setdefault(self._kind(token, verdict, allowed, place), []).append(token)
        for kind, ids in groups.items():
            yield (verdict, kind), ids

    def _kind(self, token: int, verdict: MaskVerdict, allowed: Bits, place: _Place | None) -> str:
        true = self.vocabulary.true_bytes[token]
        if self.vocabulary.hidden[token]:
            return "special"
        if not true:
            return "empty"
        if place is _Place.ELSEWHERE:
            return "drifted"
        if verdict is MaskVerdict.INCOMPLETE and any(allowed[i] for i in self._twins[true]):
            return "duplicate"
        if self.claimed[token] != true:
            return "wrong_bytes"
        if len(true) > LONG:
            return "long"
        if not small_cases.is_text(true):
            return "half_character"
        if place is not None:
            return _json_kind(true, place)
        return "newline" if b"\n" in true else "other"

    @cached_property
    def _twins(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for token, true in enumerate(self.vocabulary.true_bytes):
            found.setdefault(true, []).append(token)
        return found


class _Place(Enum):
    """Where a beginning of JSON ends, or that the engine is somewhere else than the text."""

    ELSEWHERE = "elsewhere"
    """A token before was claimed to be other bytes."""
    OUTSIDE = "outside"
    STRING = "string"
    ESCAPE = "escape"

    @staticmethod
    def of(prefix: bytes) -> _Place:
        plain = re.sub(rb"\\.", b"", prefix, flags=re.DOTALL)
        if plain.endswith(b"\\"):
            return _Place.ESCAPE
        return _Place.STRING if plain.count(b'"') % 2 else _Place.OUTSIDE


def _json_kind(true: bytes, place: _Place) -> str:
    """Where JSON itself leaves a choice, two engines may differ and both be right."""
    if place is _Place.ESCAPE:
        return "json_spelling"
    quoted = place is _Place.STRING
    parts = re.sub(rb"\\.", b"", true).split(b'"')
    if any(min(part, default=32) < 32 for part in parts[not quoted :: 2]):
        return "control_character"
    if b"\\" in true or b"\x7f" in true:
        return "json_spelling"
    outside = parts[quoted::2]
    return (
        "json_white_space" if any(part.split() != [part] for part in outside if part) else "other"
    )


SAID = {
    MaskVerdict.UNSOUND: "allows, though they leave the grammar or render nothing",
    MaskVerdict.INCOMPLETE: "lacks, though they are legal",
    MaskVerdict.STOP_TOO_EARLY: "allows the end before the text is complete",
    MaskVerdict.STOP_MISSING: "allows no end of a complete text; the runtime stops on",
    MaskVerdict.REFUSED_BY_CONSUME: "allows, and then refuses to take",
}


def report(
    key: Key,
    found: Found,
    vocabulary: Vocabulary,
    claimed: list[bytes],
    made_by: str,
    name: str,
    command: str,
) -> str:
    """The text block for an upstream report."""
    assert found.case is not None
    true = vocabulary.true_bytes
    kind, text = expressed(found.case) or ("", "")
    lines = [
        f"{made_by} over the vocabulary `{name}` ({vocabulary.type}, sha256 "
        f"{vocabulary.hash[:16]}): mask {key[0]} ({key[1]}).",
        "",
        f"{'JSON Schema' if kind == 'json' else 'Regular expression'}: `{text}`",
    ]
    if found.taken:
        taken = ", ".join(f"{token} {true[token]!r}" for token in found.taken)
        lines.append(f"After the tokens: {taken}")
    lines.append(f"The mask {SAID[key[0]]}; {len(found.shown)} such tokens, the first of them:")
    for token in found.shown[:5]:
        if token >= vocabulary.n_tokens:
            lines.append(f"- {token}, beyond the vocabulary of {vocabulary.n_tokens}")
            continue
        known = claimed[token]
        lines.append(
            f"- {token} {true[token]!r}" + ("" if known == true[token] else f", known as {known!r}")
        )
    lines += ["", f"Seen with `{command}`"]
    return "\n".join(lines) + "\n"
