"""The table `field`: a row for each builder, release and vocabulary, with a mask that proves a
fault.

Nothing is judged here. `of` combines the tables of an audit. Public reports of known faults are
data in this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl

from ...model.verdicts import MaskKind, MaskVerdict
from . import schemas

_BESIDE = (MaskKind.SPECIAL, MaskKind.FORCED)
"""Kinds of reproducers that show something other than wrong bytes of a rendered token."""

_WORST = (MaskVerdict.UNSOUND, MaskVerdict.EMPTY, MaskVerdict.INCOMPLETE)
"""Verdicts of masks, worst effect first: the text is wrong, it ends, it is split differently."""

_KNOWN = {
    "unfixed": "google-ai-edge/LiteRT-LM#3510",
    "lmfe": "noamgat/lm-format-enforcer#92, abetlen/llama-cpp-python#1375",
    "outlines": "dottxt-ai/outlines#1830, dottxt-ai/outlines#820",
    "xgrammar_byte_fallback": "expected: this vocab_type does not match the vocabulary",
    "xgrammar_byte_level": "expected: this vocab_type does not match the vocabulary",
}
"""Builder → the public report of its fault, or the cause of the fault."""

_KNOWN_ENGINES: dict[tuple[str, str, str], str] = {
    ("outlines", MaskVerdict.INCOMPLETE, MaskKind.DUPLICATE): "dottxt-ai/outlines#1830",
    ("outlines", MaskVerdict.INCOMPLETE, MaskKind.HALF_CHARACTER): "dottxt-ai/outlines#820",
    (
        "lmfe",
        MaskVerdict.UNSOUND,
        MaskKind.SPECIAL,
    ): "noamgat/lm-format-enforcer#54, noamgat/lm-format-enforcer#80",
    ("lmfe", MaskVerdict.STOP_TOO_EARLY, MaskKind.END): "noamgat/lm-format-enforcer#54",
    ("lmfe", MaskVerdict.UNSOUND, MaskKind.WRONG_BYTES): "abetlen/llama-cpp-python#1375",
    ("lmfe", MaskVerdict.INCOMPLETE, MaskKind.WRONG_BYTES): "abetlen/llama-cpp-python#1375",
}
"""Public reports of engines' faults, by (engine, verdict, kind of token)."""

_ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")


def links(known: str | None) -> Iterator[tuple[str, str]]:
    """Yield (text, URL) for each part of `known`; the URL is empty if the part is not an issue."""
    for part in (known or "").split(", "):
        found = _ISSUE.fullmatch(part)
        address = f"https://github.com/{found[1]}/issues/{found[2]}" if found else ""
        if part:
            yield part, address


def known_engine(engine: str, verdict: str, kind: str) -> str | None:
    """The public report of an engine's finding, or None."""
    return _KNOWN_ENGINES.get((engine, verdict, kind))


def of(tokenizers: pl.DataFrame, reproducers: pl.DataFrame) -> pl.DataFrame:
    """The table `field` of an audit, from its other tables.

    If several masks prove a fault, the one with the fewest tokens before it is kept. Ties are
    broken by the worst verdict, then by the shortest grammar, then by the name.
    """
    wrong = pl.col("n_normal_wrong") > 0
    ranks = {verdict.value: rank for rank, verdict in enumerate(_WORST)}
    rows = tokenizers.select(
        "builder",
        "tokenizer",
        "status",
        "n_normal",
        pl.col("n_normal_wrong").alias("n_wrong"),
        pl.col("reason").replace("", None),
        pl.col("made_by").str.extract(r" (.+)$").alias("version"),
        pl.when(wrong).then(pl.col("builder").replace_strict(_KNOWN, default=None)).alias("known"),
    )
    proofs = (
        reproducers.filter(~pl.col("kind").is_in([kind.value for kind in _BESIDE]))
        .sort(
            pl.col("tokens").list.len(),
            pl.col("verdict").replace_strict(ranks, default=len(ranks)),
            pl.col("grammar").str.len_bytes(),
            "name",
        )
        .unique(["tokenizer", "builder"], keep="first", maintain_order=True)
        .select(
            *("tokenizer", "builder", "verdict", "grammar", "tokens", "ids", "true", "claimed"),
            *("file", "command"),
        )
    )
    shown = rows.filter(pl.col("n_wrong") > 0).join(
        proofs, on=["tokenizer", "builder"], how="left", maintain_order="left"
    )
    right = rows.filter(pl.col("n_wrong").fill_null(0) == 0)
    schema = schemas.SCHEMAS["field"]
    return pl.concat([shown, right], how="diagonal").match_to_schema(
        pl.Schema(schema), missing_columns="insert"
    )
