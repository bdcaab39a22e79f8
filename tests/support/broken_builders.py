"""Builders that are broken on purpose, to test the harness.

A fault that no suite detects here would not be detected in a real builder either. Each builder is
`fixed` with one fault. Faults that the law suite also needs are in `spoilt`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline.engines import builders
from pipeline.engines.builders import bridge
from pipeline.engines.protocol import Engine, Mask, Matcher
from pipeline.engines.table import Material, TokenTable
from support import spoilt

BUFFER = 32


def _same_engine(engine: Engine) -> Engine:
    return engine


@dataclass
class BrokenBuilder:
    """A builder (`engines.table.Builder`) with one fault, or with a faulty engine."""

    name: str
    why: str
    """How this fault may arise in real code."""
    spoil: Callable[[TokenTable, Material], TokenTable] = lambda table, _: table
    wrap: Callable[[Engine], Engine] = _same_engine
    """The engine that its table is run in."""
    version: int = 1

    def build(self, material: Material) -> TokenTable:
        """The faulty table."""
        return self.spoil(builders.get("fixed").build(material), material)

    def breaks(self, material: Material) -> bool:
        """Whether the fault exists on this vocabulary: not all have duplicates or long tokens."""
        right, wrong = builders.get("fixed").build(material), self.build(material)
        same_tokens = (right.tokenize is None) == (wrong.tokenize is None) and (
            right.tokenize is None
            or wrong.tokenize is None
            or right.tokenize(b"a b") == wrong.tokenize(b"a b")
        )
        return self.wrap is not _same_engine or right.hash != wrong.hash or not same_tokens


# --- tables -------------------------------------------------------------------------------------


def _keeps_the_last_duplicate(table: TokenTable, _: Material) -> TokenTable:
    """As from `{bytes: id}` filled in order: the last id of the same bytes remains."""
    kept = {claim: i for i, claim in enumerate(table.claimed)}
    return replace(table, claimed=[c if kept[c] == i else b"" for i, c in enumerate(table.claimed)])


def _keeps_the_first_duplicate(table: TokenTable, _: Material) -> TokenTable:
    """As from `setdefault(bytes, id)`: the first id of the same bytes remains."""
    kept = {claim: i for i, claim in reversed(list(enumerate(table.claimed)))}
    return replace(table, claimed=[c if kept[c] == i else b"" for i, c in enumerate(table.claimed)])


def _strips_a_space_each(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, claimed=[c[1:] if c[:1] == b" " else c for c in table.claimed])


def _cuts_long_tokens(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, claimed=[claim[:BUFFER] for claim in table.claimed])


def _tokenizes_behind_a_space(table: TokenTable, material: Material) -> TokenTable:
    raw = bridge.raw_tokenize(material.vocab)

    def tokenize(data: bytes) -> list[int]:
        return raw(b" " + data)

    return replace(table, tokenize=tokenize, tokenize_mode="behind a space")


# --- an engine ------------------------------------------------------------------------------------


class _CrashingMatcher:
    """Takes tokens like the real matcher, and fails at the first mask."""

    def __init__(self, inner: Matcher) -> None:
        self._inner = inner
        self._crashed = False
        self.consume, self.accepting = inner.consume, inner.accepting
        self.forced, self.stopped, self.close = inner.forced, inner.stopped, inner.close

    @property
    def error(self) -> str | None:
        return "crashed on mask" if self._crashed else self._inner.error

    @property
    def raised(self) -> str | None:
        return self._inner.raised

    def mask(self) -> Mask | None:
        self._crashed = True
        return None

    def clone(self) -> Matcher:
        return _CrashingMatcher(self._inner.clone())


class _CrashingEngine:
    """Any engine, with matchers that crash."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner
        self.name, self.version, self.close = inner.name, inner.version, inner.close

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def compile(self, table: TokenTable, kind: str, grammar: str) -> Matcher:
        return _CrashingMatcher(self._inner.compile(table, kind, grammar))


# --- all of them ----------------------------------------------------------------------------------

BROKEN = (
    BrokenBuilder(
        "keeps_last_duplicate",
        "a map from bytes to id, which keeps the last of several ids with the same bytes",
        _keeps_the_last_duplicate,
    ),
    BrokenBuilder(
        "keeps_first_duplicate",
        "a map from bytes to id, which keeps the first of several ids with the same bytes",
        _keeps_the_first_duplicate,
    ),
    BrokenBuilder(
        "strips_one_space",
        "removes the leading space of a token as if the tokenizer added it, like llama_detokenize",
        _strips_a_space_each,
    ),
    BrokenBuilder(
        "strips_one_tokens_space",
        "the same fault for a single token: the smallest fault of a table",
        spoilt.strips_one_space,
    ),
    BrokenBuilder(
        "shifts_ids",
        "an extra entry at the front, so that every id gets the bytes of its neighbour",
        spoilt.shifts_ids,
    ),
    BrokenBuilder(
        "wrong_end", "the BOS token declared as the end of a sequence", spoilt.ends_elsewhere
    ),
    BrokenBuilder("no_end", "passes -1 although the vocabulary has an end", spoilt.ends_nowhere),
    BrokenBuilder(
        "text_marked_special",
        "one ordinary token with the special marker",
        spoilt.marks_text_special,
    ),
    BrokenBuilder(
        "forgets_the_marker",
        "control tokens entered as text, by their names",
        spoilt.forgets_the_marker,
    ),
    BrokenBuilder(
        "greedy_but_claims_exact",
        "always greedy, but claims to return the runtime's tokens",
        spoilt.claims_a_tokenization,
    ),
    BrokenBuilder(
        "forces_inexact",
        "forces tokens with a tokenization that adds a space, without a probe",
        _tokenizes_behind_a_space,
    ),
    BrokenBuilder("crashes_on_mask", "an engine that fails at every mask", wrap=_CrashingEngine),
    BrokenBuilder(
        "cuts_at_32_bytes",
        "a buffer of 32 bytes for a piece, without checking the returned length",
        _cuts_long_tokens,
    ),
)
