"""Masks of released engines, compared with the byte oracles, by kind of token.

The walks are those of `walks`. Here every id of every mask is checked, so every kind of wrong token
is counted. (A mask's verdict names only the first kind.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from ..engines.protocol import Mask, Matcher
from ..grammars.case import Case, Grammar
from ..grammars.checkers import Literal, Pattern
from ..grammars.languages import ByteGrammar
from ..model.verdicts import MaskVerdict
from ..vocab.vocabulary import Vocabulary
from . import small_cases
from .engine_mask_kinds import Key
from .upstream import Fault

_PERMUTED = 3
"""Every order of an object's properties is tried up to this number of properties."""


def portable_grammar(case: Case) -> tuple[str, str] | None:
    """A case's grammar in a form that every engine supports: (`regex` or `json`, its text).

    None if there is no such form. A grammar that is not JSON must mean the same as the case's
    check: one regular expression, or one text.
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


def property_orders(case: Case) -> Iterator[ByteGrammar]:
    """The schema with its properties in every other order.

    llguidance accepts one order only; JSON has no order. Nothing is yielded for more than 3
    properties, or if the grammar is not a JSON schema.
    """
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
    """A matcher that records every mask it computes; those of its clones are not recorded."""

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

    @property
    def raised(self) -> str | None:
        """See `Matcher.raised`."""
        return self._matcher.raised

    def mask(self) -> Mask | None:
        """See `Matcher.mask`."""
        self.masks.append(self._matcher.mask())
        return self.masks[-1]


@dataclass
class FaultSummary:
    """All findings of one kind for one engine."""

    n_states: int = 0
    ids: set[int] = field(default_factory=set[int])
    case: Case | None = None
    """The case that shows it after the fewest tokens; of several, the one with the shortest
    grammar.
    """
    taken: tuple[int, ...] = ()
    shown: tuple[int, ...] = ()
    """The wrong ids of the mask after the tokens `taken` of `case`."""

    def add(self, case: Case, taken: Sequence[int], ids: Sequence[int]) -> None:
        """Count a state with these wrong ids, and keep its case if it is the smallest so far."""
        self.n_states += 1
        self.ids.update(ids)
        if self.case is None or _size(case, taken) < _size(self.case, self.taken):
            self.case, self.taken, self.shown = case, tuple(taken), tuple(ids)


def fault(key: Key, found: FaultSummary) -> Fault:
    """The finding for an upstream report."""
    assert found.case is not None
    kind, text = portable_grammar(found.case) or ("", "")
    language = "JSON Schema" if kind == "json" else "Regular expression"
    return Fault(*key, found.case, (language, text), found.taken, found.shown)


def _size(case: Case, taken: Sequence[int]) -> tuple[int, int]:
    """Sort key for size: number of tokens, then the grammar."""
    return len(taken), len(case.grammar.text)


def smaller_cases(
    key: Key, found: FaultSummary, vocabulary: Vocabulary, claimed: list[bytes]
) -> Iterator[tuple[Case, tuple[int, ...]]]:
    """Smaller cases that may show the finding, as (case, tokens to take first), smallest first."""
    assert found.case is not None
    proposed: list[tuple[Case, tuple[int, ...]]] = []
    if found.case.grammar.kind == "json":
        quotes = [token for token, true in enumerate(vocabulary.rendered) if true == b'"']
        proposed += [(small_cases.json_string(), tuple(quotes[:n])) for n in (0, 1)]
    else:
        proposed.append((small_cases.pattern("z*"), ()))  # complete at once, and may continue
        texts = [b"a"]
        for token in found.shown[:3]:
            if token < vocabulary.n_tokens:
                texts += [vocabulary.true_bytes[token], claimed[token]]
        for case in (case for text in dict.fromkeys(texts) for case in small_cases.choice(text)):
            proposed.append((case, ()))
            if key[0] is MaskVerdict.INCOMPLETE:  # the text may continue where it could also end
                source = case.grammar.text.removeprefix("start: /(").rpartition("|")[0]
                proposed.append((small_cases.pattern(f"({source}z)*"), ()))
    here = _size(found.case, found.taken)
    yield from sorted((one for one in proposed if _size(*one) < here), key=lambda one: _size(*one))
