"""Regular languages over bytes, matched byte by byte in linear time, without an engine.

Python's own parser (`re._parser`) reads the pattern, which means `re.fullmatch` on bytes. The parse
tree becomes a Thompson automaton, whose deterministic states are built on demand (Cox, *Regular
Expression Matching Can Be Simple And Fast*). Two libraries were tried first. The partial matching
of the `regex` package backtracks for minutes on `( ?[a-z.,!?]){20,40}`. `interegular` did not
finish on counted repetitions of wide classes.

Anything that is not regular, or not about single bytes (anchors, look-around, back-references),
raises `Unsupported`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

# The parser of `re` has no public name; CPython 3.11 and later have it in these modules.
_ops: Any = import_module("re._constants")
_parser: Any = import_module("re._parser")

_ALL = frozenset(range(256))
_DIGIT = frozenset(b"0123456789")
_SPACE = frozenset(b" \t\n\r\f\v")
_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_MAX_STATES = 100_000
_UNKNOWN, _DEAD = -2, -1


class Unsupported(ValueError):
    """The pattern is not a regular language over bytes, or its automaton is too large."""


@dataclass
class _Automaton:
    """Thompson's automaton: a state has one exit on a set of bytes, or exits without a byte."""

    by_bytes: list[tuple[frozenset[int], int] | None] = field(
        default_factory=list[tuple[frozenset[int], int] | None]
    )
    by_nothing: list[list[int]] = field(default_factory=list[list[int]])

    def state(self, *nothing: int, on: frozenset[int] | None = None, to: int = -1) -> int:
        """Add a state with these exits; returns its number. Raises `Unsupported` if too many."""
        if len(self.by_bytes) >= _MAX_STATES:
            raise Unsupported(f"more than {_MAX_STATES} states")
        self.by_bytes.append(None if on is None else (on, to))
        self.by_nothing.append(list(nothing))
        return len(self.by_bytes) - 1

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        """These states and all states reachable from them without a byte."""
        found, left = set(states), list(states)
        while left:
            for target in self.by_nothing[left.pop()]:
                if target not in found:
                    found.add(target)
                    left.append(target)
        return frozenset(found)


class ByteRegex:
    """The language of a Python pattern over bytes (`re.fullmatch`). Raises `Unsupported`."""

    def __init__(self, pattern: bytes) -> None:
        self._automaton = _Automaton()
        try:
            tree: Any = _parser.parse(pattern)
        except re.error as error:
            raise Unsupported(str(error)) from None
        self._end = self._automaton.state()
        flags = int(tree.state.flags)
        begin = _sequence(self._automaton, tree, self._end, flags)
        self._sets: list[frozenset[int]] = []
        self._ids: dict[frozenset[int], int] = {}
        self.steps: list[list[int]] = []
        """The next state for each known state and byte; negative if unknown or dead."""
        self._begin = self._add(self._automaton.closure([begin]))

    def after(self, prefix: bytes) -> RegexState | None:
        """The state after `prefix`; None if no text of the language begins with it."""
        state = self._begin
        for byte in prefix:
            state = self.step(state, byte)
            if state == _DEAD:
                return None
        return RegexState(self, state)

    def step(self, state: int, byte: int) -> int:
        """The state after one more byte; negative if the byte is not allowed."""
        known = self.steps[state][byte]
        if known != _UNKNOWN:
            return known
        ways = (self._automaton.by_bytes[i] for i in self._sets[state])
        reached = {way[1] for way in ways if way is not None and byte in way[0]}
        following = self._add(self._automaton.closure(reached)) if reached else _DEAD
        self.steps[state][byte] = following
        return following

    def complete(self, state: int) -> bool:
        """Whether the text may end in this state."""
        return self._end in self._sets[state]

    def _add(self, states: frozenset[int]) -> int:
        if states not in self._ids:
            self._ids[states] = len(self._sets)
            self._sets.append(states)
            self.steps.append([_UNKNOWN] * 256)
        return self._ids[states]


class RegexState:
    """A language after a legal prefix (`languages.State`)."""

    def __init__(self, language: ByteRegex, state: int) -> None:
        self._language, self._state = language, state

    def fits(self, piece: list[int], /) -> int:
        """The number of leading bytes of `piece` that the language allows next."""
        language, state = self._language, self._state
        steps = language.steps
        for n, byte in enumerate(piece):
            following = steps[state][byte]
            if following == _UNKNOWN:
                following = language.step(state, byte)
            if following == _DEAD:
                return n
            state = following
        return len(piece)

    def complete(self) -> bool:
        """Whether the text may end here."""
        return self._language.complete(self._state)


def _sequence(automaton: _Automaton, tree: Sequence[Any], to: int, flags: int) -> int:
    """Add states that read a sequence and then enter `to`; returns the first one."""
    for op, value in reversed(list(tree)):
        to = _item(automaton, op, value, to, flags)
    return to


def _item(automaton: _Automaton, op: Any, value: Any, to: int, flags: int) -> int:
    if op is _ops.BRANCH:
        return automaton.state(*(_sequence(automaton, way, to, flags) for way in value[1]))
    if op is _ops.SUBPATTERN:
        _, added, removed, inner = value
        return _sequence(automaton, inner, to, (flags | added) & ~removed)
    if op in (_ops.MAX_REPEAT, _ops.MIN_REPEAT):
        least, most, inner = value
        return _repeat(automaton, least, most, inner, to, flags)
    return automaton.state(on=_class(op, value, flags), to=to)


def _repeat(
    automaton: _Automaton, least: int, most: Any, inner: Sequence[Any], to: int, flags: int
) -> int:
    """Repeat `inner` by copying its states; without an upper bound the last copy loops."""
    if most is _ops.MAXREPEAT:
        loop = automaton.state(to)
        automaton.by_nothing[loop].append(_sequence(automaton, inner, loop, flags))
        to = loop
    else:
        end = to
        for _ in range(most - least):
            to = automaton.state(end, _sequence(automaton, inner, to, flags))
    for _ in range(least):
        to = _sequence(automaton, inner, to, flags)
    return to


def _class(op: Any, value: Any, flags: int) -> frozenset[int]:
    """The set of bytes that one item of a pattern matches."""
    if op is _ops.ANY:
        return _ALL if flags & re.DOTALL else _ALL - {10}
    if op is _ops.LITERAL:
        found = frozenset({value})
    elif op is _ops.NOT_LITERAL:
        return _ALL - _fold(frozenset({value}), flags)
    elif op is _ops.IN:
        negate = value[0][0] is _ops.NEGATE
        members = [_member(*item) for item in value[negate:]]
        found = _fold(frozenset[int]().union(*members), flags)
        return _ALL - found if negate else found
    else:
        raise Unsupported(f"{op} is not regular over bytes")
    return _fold(found, flags)


def _member(op: Any, value: Any) -> frozenset[int]:
    if op is _ops.LITERAL:
        return frozenset({value})
    if op is _ops.RANGE:
        return frozenset(range(value[0], value[1] + 1))
    named = {
        _ops.CATEGORY_DIGIT: _DIGIT,
        _ops.CATEGORY_NOT_DIGIT: _ALL - _DIGIT,
        _ops.CATEGORY_SPACE: _SPACE,
        _ops.CATEGORY_NOT_SPACE: _ALL - _SPACE,
        _ops.CATEGORY_WORD: _WORD,
        _ops.CATEGORY_NOT_WORD: _ALL - _WORD,
    }
    return named[value]


def _fold(found: frozenset[int], flags: int) -> frozenset[int]:
    if not flags & re.IGNORECASE:
        return found
    both = bytes(sorted(found))
    return frozenset(both.lower() + both.upper())
