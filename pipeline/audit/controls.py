"""Causes by experiment: the same tokens over controls, tables with one part made true.

What mends a fault names its cause. The engine is named only if the fault stands on true bytes,
tokenized greedily.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ..engines.protocol import Engine, allowed_ids
from ..engines.table import TokenTable
from ..grammars.case import Case
from ..model.verdicts import Cause, Control

_ENOUGH = 10
"""Experiments of one builder and one kind of fault with the same outcome, after which further
faults of that kind get the same cause by likeness."""


class FaultKind(StrEnum):
    """What went wrong after a prefix of tokens."""

    NO_MASK = "no_mask"
    EMPTY = "empty"
    """The mask allows nothing."""
    ALLOWED = "allowed"
    """The mask allows the next token, whose true bytes leave the grammar."""
    REFUSED = "refused"
    """The mask allows the next token, and it is refused when it is consumed."""


@dataclass(frozen=True)
class Shown:
    """A fault after some tokens."""

    kind: FaultKind
    before: tuple[int, ...]
    """The tokens before it; their true bytes are legal."""
    token: int | None = None
    """The next token, for `ALLOWED` and `REFUSED`."""


@dataclass(frozen=True)
class Found:
    """The outcome of an experiment."""

    cause: Cause
    by: Control
    """The control that mended the fault, or on which it stands."""


@dataclass
class Controls:
    """Runs experiments for the builders of one vocabulary."""

    engine: Engine
    true: TokenTable
    """True bytes, marks and end, tokenized greedily."""
    _seen: dict[tuple[str, FaultKind], list[Found]] = field(
        default_factory=dict[tuple[str, FaultKind], list[Found]]
    )

    def cause(self, builder: str, table: TokenTable, case: Case, shown: Shown) -> Found:
        """The cause of a fault of a builder's table."""
        earlier = self._seen.setdefault((builder, shown.kind), [])
        if len(earlier) >= _ENOUGH and len(set(earlier)) == 1:
            return Found(earlier[0].cause, Control.LIKENESS)
        found = self._tried(table, case, shown)
        earlier.append(found)
        return found

    def _tried(self, table: TokenTable, case: Case, shown: Shown) -> Found:
        true = self.true
        controls = [
            (Cause.TOKENIZE, Control.GREEDY, replace(table, tokenize=None)),
            (Cause.BYTES, Control.TRUE_BYTES, replace(table, claimed=true.claimed)),
            (Cause.SPECIAL, Control.TRUE_MARKS, replace(table, special=true.special, eos=true.eos)),
        ]
        for cause, by, control in controls:
            if control.identity != table.identity and self._stands(control, case, shown) is False:
                return Found(cause, by)
        match self._stands(true, case, shown):
            case True:
                return Found(Cause.ENGINE, Control.TRUE_TABLE)
            case False:
                return Found(Cause.BUILDER, Control.TRUE_TABLE)
            case None:
                return Found(Cause.UNKNOWN, Control.TRUE_TABLE)

    def _stands(self, table: TokenTable, case: Case, shown: Shown) -> bool | None:
        """Whether the fault is also there over another table; None if that table does not get as
        far as the fault."""
        with closing(self.engine.compile(table, *case.grammar.engine_text())) as matcher:
            if not all(matcher.consume(token) for token in shown.before):
                return None
            mask = matcher.mask()
            if mask is None:
                return True
            allowed: Sequence[int] = allowed_ids(mask, len(self.true.claimed)).tolist()
            match shown.kind:
                case FaultKind.NO_MASK:
                    return False
                case FaultKind.EMPTY:
                    return not allowed
                case FaultKind.ALLOWED:
                    return shown.token in allowed
                case FaultKind.REFUSED:
                    assert shown.token is not None
                    return shown.token in allowed and not matcher.consume(shown.token)
