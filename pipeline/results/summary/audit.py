"""Console text about token tables, judged masks and released engines."""

from __future__ import annotations

import polars as pl

from ...model.verdicts import Agreement, InstanceVerdict, MaskVerdict, Status, Tokenization

TOKEN_TABLES = "Token tables against true bytes"
MASKS = "Masks against the byte oracle"
ENGINE_MASKS = "Engines' own masks"

_UNJUDGED = (
    *(MaskVerdict.NO_ORACLE.value, MaskVerdict.OVER_BUDGET.value),
    MaskVerdict.AFTER_DIVERGENCE.value,
)
_RIGHT = (MaskVerdict.EXACT.value, MaskVerdict.INCOMPLETE_FORCED.value)


def token_table_rows(
    tokenizers: pl.DataFrame, masks: pl.DataFrame, exactness: pl.DataFrame, strings: pl.DataFrame
) -> list[list[str]]:
    """Wrong tokens and bad tokens of the first masks, as in sections 4.3 and 4.4 of the founding
    document; tokenized texts and given strings that are not right.

    Rows of text; the first row is the header.
    """
    bad = {
        (row["tokenizer"], row["builder"], row["probe"]): row["n_bad"]
        for row in masks.iter_rows(named=True)
    }
    head = ["tokenizer", "type", "builder", "wrong tokens", "lost space", "bad no_space"]
    rows = [[*head, "bad hello_world", "tokenize", "texts tokenized wrongly", "wrong strings"]]
    rightly = [Tokenization.EXACT.value, Tokenization.NON_CANONICAL.value]
    for row in tokenizers.iter_rows(named=True):
        key = (row["tokenizer"], row["builder"])
        whose = {"tokenizer": row["tokenizer"], "builder": row["builder"]}
        texts, given = exactness.filter(**whose), strings.filter(**whose)
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
                _part(texts.filter(~pl.col("verdict").is_in(rightly)), texts),
                _part(given.filter(pl.col("verdict") != InstanceVerdict.OK), given),
            ]
        )
    return rows


def mask_rows(states: pl.DataFrame, walks: pl.DataFrame) -> list[list[str]]:
    """Walks, judged masks and faults of each tokenizer and builder; the first row is the header."""
    rows = [["tokenizer", "builder", "walks", "steps a walk", "non-canonical", "masks judged"]]
    rows[0] += ["not judged", "exact", "forced only", "checker differs", "faults"]
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


def _part(some: pl.DataFrame, every: pl.DataFrame) -> str:
    return f"{some.height}/{every.height}" if every.height else "-"


def _figure(value: int | None) -> str:
    return "-" if value is None else f"{value}"
