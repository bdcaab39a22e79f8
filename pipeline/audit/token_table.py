"""Compare token tables with true bytes, and check first masks for the effects of a wrong table.

The figures are those of the founding document's sections 4.3, 4.4 and 7.2.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from ..engines.builders.bridge import PROBES
from ..engines.protocol import Engine, allowed_ids
from ..engines.table import Material, TokenTable
from ..grammars.languages import cached_grammar
from ..model.verdicts import Damage, MaskVerdict, TokenizeMode
from ..vocab.token_types import attr_name
from ..vocab.vocabulary import Vocabulary
from .masks import MaskJudge

Row = dict[str, object]


_MARKS = {Damage.MARKED_SPECIAL, Damage.NOT_MARKED}


@dataclass(frozen=True)
class MaskProbe:
    """A grammar whose first mask is checked."""

    name: str
    grammar: str
    literal: bytes | None
    """The only legal text; None if spaces are forbidden instead."""

    def bad(self, token: bytes) -> bool:
        """Whether these bytes must not be allowed at the start."""
        if self.literal is None:
            return b" " in token
        return not token or not self.literal.startswith(token)


MASK_PROBES = (
    MaskProbe("no_space", '%llguidance {}\nstart: /[.a-z]{2,6}/ "!"', None),
    MaskProbe("hello_world", '%llguidance {}\nstart: "hello world"', b"hello world"),
)


def damage(true: bytes, claimed: bytes) -> Damage | None:
    """How claimed bytes differ from true bytes; None if they are equal."""
    if claimed == true:
        return None
    if not claimed:
        return Damage.EMPTIED
    if not true.strip(b" ") and not claimed.strip(b" ") and len(claimed) < len(true):
        return Damage.RUN_SHORTENED
    if true[:1] == b" " and claimed == true[1:]:
        return Damage.LEADING_SPACE_LOST
    if len(claimed) < len(true) and true.replace(b" ", b"") == claimed.replace(b" ", b""):
        leading = _indent(claimed) < _indent(true)
        return Damage.LEADING_SPACE_LOST if leading else Damage.INNER_SPACE_LOST
    return Damage.OTHER


def misfit(vocabulary: Vocabulary, table: TokenTable) -> str | None:
    """Why a table cannot be a table of this vocabulary; None if it can."""
    n = vocabulary.n_tokens
    for what, found in (("bytes", table.claimed), ("marks", table.special)):
        if len(found) != n:
            return f"the table has {what} for {len(found)} of {n} ids"
    for token, claim in enumerate(table.claimed):
        if not isinstance(claim, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            return f"the table has {type(claim).__name__} instead of bytes for id {token}"
    if not -1 <= table.eos < n:
        return f"the table's end id is {table.eos}, of {n} ids"
    return None


def wrong_tokens(vocabulary: Vocabulary, table: TokenTable) -> Iterator[Row]:
    """A row for each token with wrong bytes or a wrong mark. `damage` names wrong bytes first."""
    facts = zip(
        vocabulary.true_bytes, vocabulary.rendered, table.claimed, table.special, strict=True
    )
    # Up to a million ids are compared to find the few wrong ones.
    for token in [
        token
        for token, (true, shown, claimed, special) in enumerate(facts)
        if true != claimed or special != (not shown and true != b"")
    ]:
        true, claimed = vocabulary.true_bytes[token], table.claimed[token]
        kind = damage(true, claimed) or _wrong_mark(vocabulary, table, token)
        if kind is not None:
            yield {
                "token": token,
                "attribute": attr_name(int(vocabulary.attrs[token])),
                "true": true,
                "claimed": claimed,
                "damage": kind.value,
                "marked_special": table.special[token],
            }


def _wrong_mark(vocabulary: Vocabulary, table: TokenTable, token: int) -> Damage | None:
    """What is wrong with a token's mark; None if it is right.

    A token must be marked special if it has bytes but renders none. Otherwise it must be entered as
    text.
    """
    hidden = bool(vocabulary.true_bytes[token]) and not vocabulary.rendered[token]
    if hidden == table.special[token]:
        return None
    return Damage.NOT_MARKED if hidden else Damage.MARKED_SPECIAL


def table_row(
    vocabulary: Vocabulary, table: TokenTable, wrong: list[Row], mode: TokenizeMode
) -> Row:
    """The row of table `tokenizers`: numbers of wrong tokens, and how the builder tokenizes."""
    counts = {kind: sum(row["damage"] == kind.value for row in wrong) for kind in Damage}
    return {
        "n_tokens": vocabulary.n_tokens,
        "n_wrong": len(wrong) - sum(counts[kind] for kind in _MARKS),
        "n_lost_leading_space": sum(_lost_leading_space(row) for row in wrong),
        "n_inner_space_lost": counts[Damage.INNER_SPACE_LOST],
        "n_emptied": counts[Damage.EMPTIED],
        "n_run_shortened": counts[Damage.RUN_SHORTENED],
        "n_other": counts[Damage.OTHER],
        "n_normal": vocabulary.hidden.count(False),
        "n_normal_wrong": sum(
            claim != true and not skip
            for claim, true, skip in zip(
                table.claimed, vocabulary.true_bytes, vocabulary.hidden, strict=True
            )
        ),
        "n_special": sum(table.special),
        "n_mark_wrong": sum(counts[kind] for kind in _MARKS),
        "claimed_end": table.eos,
        "end_is_wrong": bool(vocabulary.end_ids) and table.eos not in vocabulary.end_ids,
        "tokenize": mode.value,
        "table_hash": table.hash,
        "made_by": table.made_by or None,
    }


COUNTS = (
    "n_wrong",
    "n_lost_leading_space",
    "n_inner_space_lost",
    "n_emptied",
    "n_run_shortened",
    "n_other",
    "n_normal",
    "n_normal_wrong",
    "n_special",
    "n_mark_wrong",
    "claimed_end",
    "end_is_wrong",
    "tokenize",
    "table_hash",
    "made_by",
)
"""The columns of `table_row` that a refused table leaves empty."""


def tokenize_mode(table: TokenTable, material: Material) -> TokenizeMode:
    """Tokenize the three founding probes with the builder's own tokenization.

    `greedy` if it has none. `inexact` if a probe would abort the process or its tokens do not
    render its bytes; else `exact`.
    """
    if table.tokenize is None:
        return TokenizeMode.GREEDY
    for probe in PROBES:
        if not material.survives(probe):
            return TokenizeMode.INEXACT
        if material.vocabulary.written(table.tokenize(probe)) != probe:
            return TokenizeMode.INEXACT
    return TokenizeMode.EXACT


def mask_rows(
    vocabulary: Vocabulary, table: TokenTable, engine: Engine, judge: MaskJudge
) -> Iterator[Row]:
    """One row of `masks` for each probe: what the first mask allows, and its wrong ids.

    `n_missing` counts missing legal tokens, except those that a forced token replaces. It is None
    if the oracle's budget is spent.
    """
    pieces = vocabulary.true_bytes
    for probe in MASK_PROBES:
        with closing(engine.compile(table, "lark", probe.grammar)) as matcher:
            mask = matcher.mask()
            found = judge.judge(cached_grammar(probe.grammar), b"", matcher, mask, random.Random(0))
            error = matcher.error
        judged = found.verdict is not MaskVerdict.OVER_BUDGET
        ids = [] if mask is None else [int(i) for i in allowed_ids(mask, vocabulary.n_tokens)]
        bad = [token for token in ids if probe.bad(pieces[token])]
        yield {
            "probe": probe.name,
            "grammar": probe.grammar,
            "n_allowed": len(ids),
            "n_bad": len(bad),
            "n_missing": found.n_incomplete if judged else None,
            "allowed_ids": ids if probe.literal is not None else None,
            "bad_ids": bad,
            "engine_error": error,
        }


def _indent(data: bytes) -> int:
    return len(data) - len(data.lstrip(b" "))


def _lost_leading_space(row: Row) -> bool:
    true, claimed = row["true"], row["claimed"]
    assert isinstance(true, bytes)
    assert isinstance(claimed, bytes)
    return true[:1] == b" " and claimed[:1] != b" "
