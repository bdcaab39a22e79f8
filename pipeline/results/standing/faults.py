"""The faults that each table shows of one builder, and the circumstance that each of them needs.

What counts is what the fault needs, never which other builders have it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from ...model.names import IN_PROCESS
from ...model.verdicts import (
    FAULTY_MASKS,
    ByteChange,
    Cause,
    InstanceVerdict,
    MaskVerdict,
    SpecialVerdict,
    Status,
    Tokenization,
    Verdict,
    WalkVerdict,
)
from ...system.text import quoted
from .evidence import Evidence, Fault
from .missing import UNFINISHED

_SPELLS_A_SPECIAL = "a grammar whose text spells a special token"
_META_SYMBOL = "a grammar with the character U+2581, which stands for a space in this vocabulary"
_CANNOT_SPELL = "a grammar with a character that this vocabulary cannot spell"

_SPECIAL_GRAMMARS = "specials/"
"""Grammars of walks whose literal begins with the spelling of a special token."""

_NO_FAULT = (Verdict.OK, Verdict.TRUNCATED, Verdict.IMPOSSIBLE)
_WRONG_TEXTS = (
    InstanceVerdict.VALID_REFUSED,
    InstanceVerdict.INVALID_ACCEPTED,
    InstanceVerdict.NO_STOP,
)
OTHERS = (Cause.ENGINE, Cause.GRAMMAR, Cause.CHECKER, Cause.VOCABULARY, Cause.RUNTIME)
"""Causes that are not the builder's."""


def of(evidence: Evidence) -> Iterator[Fault]:
    """The faults of a builder, most important first."""
    yield from _token_table(evidence)
    yield from _cells(evidence)
    yield from _masks(evidence)
    yield from _texts(evidence)
    yield from _tokenization(evidence)
    yield from _specials(evidence)


def _token_table(evidence: Evidence) -> Iterator[Fault]:
    tokens = evidence.table("tokens").sort("token")
    wrong = pl.col("true") != pl.col("claimed")
    for row in evidence.table("tokenizers").filter(status=Status.OK).iter_rows(named=True):
        if n := row["n_wrong"]:
            shown = tokens.filter(wrong).head(1).to_dicts()
            first = "".join(f", such as {_token(one)}" for one in shown)
            yield Fault(f"{_n(n, 'token has', 'tokens have')} wrong bytes{first}", "tokens")
        if n := row["n_mark_wrong"]:
            first = "".join(
                f", such as token {one['token']} {quoted(one['true'])}"
                for one in tokens.filter(~wrong).head(1).to_dicts()
            )
            are = _n(n, "token is", "tokens are")
            yield Fault(f"{are} wrongly marked as special or as text{first}", "tokens")
        if row["end_is_wrong"]:
            end = row["claimed_end"]
            yield Fault(f"the runtime does not stop on the end id {end}", "tokenizers")
        named = dict(evidence.table("specials").select("token", "true").iter_rows())
        for token in row["text_ends"] or ():
            shown = f" {quoted(named[token])}" if token in named else ""
            yield Fault(
                f"the runtime also stops on the ordinary token {token}{shown}", "tokenizers"
            )


def _token(row: dict[str, Any]) -> str:
    return f"token {row['token']} {quoted(row['true'])}, claimed as {quoted(row['claimed'])}"


def _cells(evidence: Evidence) -> Iterator[Fault]:
    """Wrong cells. In process those with another cause are not the builder's; a server is judged
    as a whole, so the engine and the runtime are parts of it."""
    not_its_own = OTHERS if evidence.subject.target == IN_PROCESS else _NOT_THE_SERVERS
    wrong = evidence.table("cells").filter(
        ~pl.col("verdict").is_in(_words(*_NO_FAULT, *UNFINISHED))
        & ~pl.col("cause").is_in(_words(*not_its_own))
    )
    for verdict in Verdict:
        same = wrong.filter(verdict=verdict).sort("cell_key")
        if same.height:
            row = same.row(0, named=True)
            where = f"{row['model']} {row['suite']}/{row['case']}"
            cells = _n(same.height, "cell is", "cells are")
            yield Fault(f"{cells} {verdict}, such as {where}: {row['reason']}", "cells")


_NOT_THE_SERVERS = (Cause.GRAMMAR, Cause.CHECKER, Cause.VOCABULARY)


def _masks(evidence: Evidence) -> Iterator[Fault]:
    states = evidence.table("states").filter(pl.col("verdict").is_in(_words(*FAULTY_MASKS)))
    by_need = pl.col("grammar").str.starts_with(_SPECIAL_GRAMMARS)
    for needs, group in (
        ("", states.filter(~by_need)),
        (_SPELLS_A_SPECIAL, states.filter(by_need)),
    ):
        for verdict in MaskVerdict:
            same = group.filter(verdict=verdict).sort("grammar", "walk", "step")
            if same.height:
                row = same.row(0, named=True)
                ids = f", ids {_listed(row['ids'])}" if row["ids"] else ""
                where = f"{row['grammar']}, {row['walk']}, step {row['step']}{ids}"
                masks = _n(same.height, "mask is", "masks are")
                yield Fault(f"{masks} {verdict}, such as {where}", "states", needs)
    first = evidence.table("masks")
    wrong = (pl.col("n_bad") > 0) | (pl.col("n_missing") > 0) | pl.col("engine_error").is_not_null()
    for row in first.filter(wrong.fill_null(value=False)).sort("probe").iter_rows(named=True):
        what = f"allows {row['n_bad']} wrong tokens and misses {row['n_missing'] or 0} legal ones"
        if row["engine_error"]:
            what = f"fails: {row['engine_error']}"
        yield Fault(f"the first mask of {row['probe']} {what}", "masks")
    walks = evidence.table("walks").filter(verdict=WalkVerdict.NOT_ACCEPTING).sort("walk")
    if walks.height:
        row = walks.row(0, named=True)
        ended = _n(walks.height, "walk ended", "walks ended")
        where = f"{row['grammar']}, {row['walk']}"
        yield Fault(f"{ended} before the text was complete, such as {where}", "walks")


def _texts(evidence: Evidence) -> Iterator[Fault]:
    """Wrong strings and replayed instances that are not another part's fault."""
    for table, names in (("strings", ("grammar", "string")), ("replay", ("schema", "instance"))):
        wrong = evidence.table(table).filter(
            pl.col("verdict").is_in(_words(*_WRONG_TEXTS, InstanceVerdict.GRAMMAR_ERROR))
            & ~pl.col("cause").is_in(_words(*OTHERS))
        )
        for verdict in InstanceVerdict:
            same = wrong.filter(verdict=verdict).sort(*names, "split", nulls_last=True)
            if same.height:
                row = same.row(0, named=True)
                shown = row[names[1]]
                shown = quoted(shown) if isinstance(shown, bytes) else shown
                where = f"{row[names[0]]}: {shown} ({row['split']})"
                what = "string" if table == "strings" else "replayed walk"
                are = _n(same.height, f"{what} is", f"{what}s are")
                yield Fault(f"{are} {verdict}, such as {where}", table)


def _tokenization(evidence: Evidence) -> Iterator[Fault]:
    wrong = evidence.table("exactness").filter(
        ~pl.col("verdict").is_in(_words(Tokenization.EXACT, Tokenization.NON_CANONICAL))
    )
    if wrong.is_empty():
        return
    specials = _spelt_specials(evidence)
    kinds: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in wrong.sort("probe").iter_rows(named=True):
        needs = _need(row, specials)
        kinds.setdefault((needs, row["verdict"], row["class"]), []).append(row)
    for (needs, verdict, what), rows in sorted(kinds.items()):
        row = min(rows, key=lambda row: (len(row["probe"]), row["probe"]))
        texts = _n(len(rows), "text is", "texts are")
        came = f"{quoted(row['probe'])} comes back as {quoted(row['got'])}"
        if verdict == Tokenization.THROWN:
            came = f"{quoted(row['probe'])}: {row['reason'] or 'llama.cpp throws'}"
        how = f"tokenized wrongly ({verdict}, {what})"
        yield Fault(f"{texts} {how}, such as {came}", "exactness", needs)


def _spelt_specials(evidence: Evidence) -> dict[int, bytes]:
    """id → text of each control token and of the unknown token."""
    named = evidence.table("specials").filter(
        pl.col("attribute").str.contains("CONTROL|UNKNOWN|USER_DEFINED") & (pl.col("true") != b"")
    )
    return dict(named.select("token", "true").iter_rows())


def _need(row: dict[str, Any], specials: dict[int, bytes]) -> str:
    """The circumstance that a wrong tokenization needs; empty for none."""
    if any(specials.get(token, b"\0") in row["probe"] for token in row["ids"] or ()):
        return _SPELLS_A_SPECIAL
    if row["class"] == ByteChange.META_SYMBOL:
        return _META_SYMBOL
    if row["spellable"] is False:
        return _CANNOT_SPELL
    return ""


def _specials(evidence: Evidence) -> Iterator[Fault]:
    wrong = evidence.table("specials").filter(pl.col("verdict") != SpecialVerdict.OK)
    for verdict in SpecialVerdict:
        same = wrong.filter(verdict=verdict).sort("token")
        if same.height:
            row = same.row(0, named=True)
            which = f"token {row['token']} {quoted(row['true'])}"
            tokens = _n(same.height, "special token is", "special tokens are")
            yield Fault(f"{tokens} {verdict}, such as {which}", "specials")


def _words(*words: str) -> list[str]:
    return [str(word) for word in words]


def _listed(ids: Iterable[int], most: int = 3) -> str:
    every = list(ids)
    more = ", …" if len(every) > most else ""
    return ", ".join(map(str, every[:most])) + more


def _n(count: int, one: str, more: str) -> str:
    """`1 token has` or `2 tokens have`."""
    return f"{count:,} {one if count == 1 else more}"
