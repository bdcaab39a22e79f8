"""Console text about token tables, judged masks and released engines."""

from __future__ import annotations

from typing import Any

import polars as pl

from ...model.verdicts import Agreement, MaskVerdict, Status, TokenizeMode

TOKEN_TABLES = "Token tables against true bytes"
MASKS = "Masks against the byte oracle"
ENGINE_MASKS = "Engines' own masks"

_SAFE = {
    (0, TokenizeMode.EXACT): "safe: bytes and tokens are exact",
    (0, TokenizeMode.GREEDY): "safe: bytes are exact; tokenized greedily, so nothing is forced",
    (0, TokenizeMode.INEXACT): "NOT SAFE: forced text is tokenized to other bytes",
}

_UNJUDGED = (MaskVerdict.NO_ORACLE.value, MaskVerdict.AFTER_DIVERGENCE.value)
_RIGHT = (MaskVerdict.EXACT.value, MaskVerdict.INCOMPLETE_FORCED.value)


def token_table_rows(tokenizers: pl.DataFrame, masks: pl.DataFrame) -> list[list[str]]:
    """Wrong tokens, bad tokens of the first masks, and the result, as in sections 4.3 and 4.4 of
    the founding document.

    Rows of text; the first row is the header.
    """
    bad = {
        (row["tokenizer"], row["builder"], row["probe"]): row["n_bad"]
        for row in masks.iter_rows(named=True)
    }
    head = ["tokenizer", "type", "builder", "wrong tokens", "lost space", "bad no_space"]
    rows = [[*head, "bad hello_world", "tokenize", "in words"]]
    for row in tokenizers.iter_rows(named=True):
        key = (row["tokenizer"], row["builder"])
        rows.append(
            [
                row["tokenizer"],
                row["vocab_type"] or "?",
                row["builder"],
                f"{_figure(row['n_wrong'])}/{_figure(row['n_tokens'])}",
                _figure(row["n_lost_leading_space"]),
                _figure(bad.get((*key, "no_space"))),
                _figure(bad.get((*key, "hello_world"))),
                row["tokenize"] or "-",
                _in_words(row),
            ]
        )
    return rows


def mask_rows(states: pl.DataFrame, walks: pl.DataFrame) -> list[list[str]]:
    """Walks, judged masks and faults of each tokenizer and builder; the first row is the header."""
    rows = [["tokenizer", "builder", "walks", "steps a walk", "non-canonical", "masks judged"]]
    rows[0] += ["not judged", "exact", "forced only", "engine's own", "faults"]
    for (tokenizer, builder), group in states.group_by(
        ["tokenizer", "builder"], maintain_order=True
    ):
        mine = walks.filter(tokenizer=tokenizer, builder=builder)
        mine = mine.filter(~pl.col("grammar").str.starts_with("specials/"))  # one step by design
        steps, odd = int(mine["n_steps"].sum()), int(mine["n_non_canonical"].sum())
        judged = group.filter(~pl.col("verdict").is_in(_UNJUDGED))
        exact = judged.filter(verdict=MaskVerdict.EXACT).height
        forced = judged.filter(verdict=MaskVerdict.INCOMPLETE_FORCED).height
        faults = judged.filter(~pl.col("verdict").is_in(_RIGHT))
        kinds = faults["verdict"].value_counts().sort("verdict").iter_rows()
        rows.append(
            [
                str(tokenizer),
                str(builder),
                f"{mine.height}",
                f"{steps / max(mine.height, 1):.1f}",
                f"{100 * odd / max(steps, 1):.0f} %",
                f"{judged.height}",
                f"{group.height - judged.height}",
                f"{exact}",
                f"{forced}",
                f"{group.filter(engine_free=Agreement.DISAGREES).height}",
                ", ".join(f"{n} {kind}" for kind, n in kinds) or "none",
            ]
        )
    return rows


def engine_mask_rows(engines: pl.DataFrame, findings: pl.DataFrame) -> list[list[str]]:
    """Masks of released engines: how many are exact, and how many have each kind of fault."""
    rows = [["tokenizer", "engine", "masks judged", "exact", "masks with which fault"]]
    for (tokenizer, engine), group in engines.group_by(
        ["tokenizer", "engine"], maintain_order=True
    ):
        judged = group.filter(~pl.col("verdict").is_in(_UNJUDGED))
        mine = findings.filter(tokenizer=tokenizer, engine=engine).sort(-pl.col("n_states"))
        kinds = [f"{r['n_states']} {r['verdict']}/{r['kind']}" for r in mine.to_dicts()]
        refused = group.filter(pl.col("walk").is_null())["reason"].to_list()
        if n := group.filter(status=Status.GRAMMAR_ERROR).height:
            kinds.append(f"{n} {Status.GRAMMAR_ERROR}")
        rows.append(
            [
                str(tokenizer),
                group["made_by"][0] or str(engine),
                "-" if refused else f"{judged.height}",
                "-" if refused else f"{judged.filter(verdict=MaskVerdict.EXACT).height}",
                ", ".join(refused or kinds) or "none",
            ]
        )
    return rows


def without_result(tables: dict[str, pl.DataFrame]) -> list[str]:
    """A line for each thing without a result in these tables, with the first line of the reason."""
    lines: dict[str, None] = {}
    for name, table in tables.items():
        for row in table.filter(pl.col("status") != Status.OK).iter_rows(named=True):
            builder = f" under {row['builder']}" if "builder" in row else ""
            grammar = f" along {row['grammar']}" if row.get("grammar") else ""
            reason, _, _ = (row["reason"] or "").partition("\n")
            who = f"{name} of {row['tokenizer']}{builder}{grammar}"
            lines[f"{who}: {row['status']}: {reason}"] = None
    return list(lines)


def _in_words(row: dict[str, Any]) -> str:
    if row["status"] != Status.OK:
        return f"{row['status']}: {row['reason']}"
    if row["n_wrong"]:
        return f"NOT SAFE: {row['n_wrong']} tokens have wrong bytes"
    if row["n_mark_wrong"]:
        return f"NOT SAFE: {row['n_mark_wrong']} tokens are wrongly marked special or text"
    if row["end_is_wrong"]:
        return f"NOT SAFE: the runtime does not stop on the end id {row['claimed_end']}"
    return _SAFE[0, row["tokenize"]] + (f" ({row['reason']})" if row["reason"] else "")


def _figure(value: int | None) -> str:
    return "-" if value is None else f"{value}"
