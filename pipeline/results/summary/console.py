"""The console text of a finished run: the section-8 table, the findings, the files.

It is rendered from tables alone. Bytes of models are escaped before they reach the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from ...model.names import IN_PROCESS, SENTINEL
from ...model.verdicts import BADNESS, End, RunStatus, TokenizeMode, Verdict
from ...system.text import visible
from ..standing import stored
from ..standing.words import lines as standing_lines
from ..tables import parquet
from . import replay as summary_replay
from .audit import (
    ENGINE_MASKS,
    MASKS,
    TOKEN_TABLES,
    engine_mask_rows,
    mask_rows,
    token_table_rows,
    without_result,
)
from .generation import RATES, SPEED, rates, speed
from .replay import REPLAY, share

_WORST = 6
_LONGEST = 1000
"""Longest line, in characters."""
_FIRST = ("unfixed", "fixed", "exact")
"""Builders whose columns come first, in this order."""
_TRUE_BYTES = ("fixed", "exact")
"""Builders that enter true bytes; the cost of greedy tokenization is measured between them."""
_STANDINGS = "Standings: what this run proves about each builder"
GENERATION = "Generation"
GREEDY = "What greedy tokenization loses (cells right under both)"
ENFORCEMENT = "Enforcement, apart from validity (the sentinel suite)"
NOTE = "each: founding cases right, all cases right, engine errors; greedy: nothing is forced"


def console(run: Path, manifest: dict[str, Any]) -> str:
    """The closing text of a run."""
    cells, tokenizers = parquet.read(run, "cells"), parquet.read(run, "tokenizers")
    parts: list[str] = []
    if manifest["status"] != RunStatus.COMPLETE:
        parts.append(
            "INTERRUPTED: these are not all results of the run. Finish it with `python -m pipeline "
            f"run resume={run}`. If its shards were started as separate commands, start those "
            "again instead."
        )
        if manifest["missing"]:
            parts.append("\n  ".join(["Missing:", *manifest["missing"]]))
    if standings := list(standing_lines(stored.read(run, manifest))):
        parts.append("\n  ".join([_STANDINGS, *standings]))
    read = partial(parquet.read, run)
    tables = token_table_rows(tokenizers, read("masks"), read("exactness"), read("strings"))
    parts.append(_titled(TOKEN_TABLES, tables))
    states, walks = parquet.read(run, "states"), parquet.read(run, "walks")
    parts.append(_titled(MASKS, mask_rows(states, walks)))
    replay = summary_replay.rows(parquet.read(run, "replay"), parquet.read(run, "replay_times"))
    parts.append(_titled(REPLAY, replay))
    parts.append(share(manifest) if len(replay) > 1 else "")
    engines, findings = parquet.read(run, "engines"), parquet.read(run, "engine_findings")
    parts.append(_titled(ENGINE_MASKS, engine_mask_rows(engines, findings)))
    prefix = parquet.read(run, "prefix")
    parts.append(_prefix(tokenizers, prefix, run))
    if lines := without_result({"prefix": prefix, "walks": walks}):
        parts.append("\n  ".join(["Without a result:", *lines]))
    if cells.height:
        parts += [
            _titled(f"{GENERATION} ({NOTE})", section8(cells)),
            _titled(GREEDY, greedy_loses(cells)),
            _titled(ENFORCEMENT, enforcement(cells)),
            _titled(RATES, rates(cells)),
            _worst(cells),
            _titled(SPEED, speed(manifest["volatile"]["timings"])),
        ]
    if manifest["refused"]:
        parts.append("Refused:\n" + "\n".join(f"  {line}" for line in manifest["refused"]))
    if manifest["lost"]:
        parts.append(f"{manifest['lost']} units have no result: a process crashed or hung.")
    parts.append(_unjudged(cells))
    names = [f"{name}.parquet" for name, n in manifest["rows"].items() if n]
    parts.append(f"Results: {run}\n  {', '.join([*names, 'manifest.json'])}")
    lines = "\n\n".join(part for part in parts if part).split("\n")
    return "\n".join(visible(line, _LONGEST) for line in lines)


_NO_ANSWER = {
    End.CLOSED: "the connection failed or broke off",
    End.FAILED: "the server failed (HTTP 5xx)",
    End.GARBLED: "the reply was not a valid answer",
    End.BUSY: "the server was busy",
    End.DECLINED: "the model declined",
    End.TIMEOUT: "there was no answer within the time limit",
    End.CRASHED: "the server died",
}
"""Why a server's answer could not be judged."""


def _unjudged(cells: pl.DataFrame) -> str:
    """How many answers of servers could not be judged, by kind; empty if all were."""
    served = cells.filter(pl.col("target") != IN_PROCESS)
    counts = dict(served["ended"].value_counts().iter_rows())
    told = [f"{counts[end]} × {why}" for end, why in _NO_ANSWER.items() if end in counts]
    return "\n  ".join(["Answers that could not be judged:", *told]) if told else ""


def _titled(title: str, rows: list[list[str]]) -> str:
    """A table under its title; empty if it has no rows."""
    return f"{title}\n{_grid(rows)}" if len(rows) > 1 else ""


def _prefix(tokenizers: pl.DataFrame, prefix: pl.DataFrame, run: Path) -> str:
    """Where implementations put SentencePiece's dummy prefix, with two texts that show it."""
    declared = dict(tokenizers.select("tokenizer", "prefix_scheme").drop_nulls().iter_rows())
    told = prefix.filter("discriminating")
    if told.is_empty():
        return ""
    rows = [["tokenizer", "implementation", "scheme", "two texts"]]
    for (tokenizer, who, scheme), group in told.group_by(
        ["tokenizer", "implementation", "scheme"], maintain_order=True
    ):
        ours = str(who).startswith("byte-exact/")
        if ours and scheme != declared.get(str(tokenizer)):
            continue
        ids = dict(group.select("text", "ids").iter_rows())
        shown = sorted((text for text in ids if " " not in text), key=len, reverse=True)[:2]
        two = ", ".join(f"{text} → {' '.join(map(str, ids[text]))}" for text in shown)
        rows.append([str(tokenizer), "prompts of runs" if ours else str(who), str(scheme), two])
    parts = ["Where SentencePiece's dummy prefix goes\n" + _grid(rows), *_flags(run)]
    return "\n".join([*parts, *_templates(run)])


def _flags(run: Path) -> Iterator[str]:
    """Section 9 of the founding document: the effect of the two flags of `llama_tokenize` on the
    space."""
    for (tokenizer,), group in parquet.read(run, "flags").group_by(
        ["tokenizer"], maintain_order=True
    ):
        added = f"{int(group['space_added'].sum())} of {group.height}"
        yield f"  {tokenizer}: add_special × parse_special, a space is added in {added}"


def _templates(run: Path) -> Iterator[str]:
    """Whether llama.cpp and the references give the same ids for the file's own chat template."""
    told = parquet.read(run, "templates").filter(pl.col("ids").is_not_null())
    told = told.filter(pl.col("declared") | ~pl.col("reference").str.starts_with("byte-exact/"))
    for row in told.iter_rows(named=True):
        at = row["first_difference"]
        result = "same ids"
        if at is not None:
            one, two = (row[key][at : at + 2] for key in ("llama_pieces", "pieces"))
            result = f"ids differ from position {at}: llama.cpp {one}, the reference {two}"
        what = f"{row['tokenizer']}: chat template, {row['conversation']}"
        yield f"  {what}, against {row['reference']}: {result}"


def greedy_loses(cells: pl.DataFrame) -> list[list[str]]:
    """Forced tokens under `fixed` and `exact`, counted over the cells that are right under both."""
    able = _to_be_right(cells).filter(pl.col("builder").is_in(_TRUE_BYTES))
    if able["builder"].n_unique() < 2:
        return []
    same = ["model", "tokenizer", "suite", "case"]
    right = able.group_by(same).agg((pl.col("verdict") == Verdict.OK).all().alias("right"))
    able = able.join(right.filter("right"), on=same, how="semi", maintain_order="left")
    if able.is_empty():
        return []
    rows = [["tokenizer", "builder", "cells", "tokens", "forced", "steps with a choice"]]
    rows[0].append("tokens not canonical")
    keys = ["tokenizer", "builder"]
    for (tokenizer, builder), group in able.sort(keys).group_by(keys, maintain_order=True):
        n, forced = int(group["n_tokens"].sum()), int(group["n_forced"].sum())
        odd = f"{100 * int(group['n_non_canonical'].sum()) / max(n, 1):.0f} %"
        rows.append([str(tokenizer), str(builder), f"{group.height}", f"{n}", f"{forced}"])
        rows[-1] += [f"{n - forced}", odd]
    return rows


def section8(cells: pl.DataFrame) -> list[list[str]]:
    """Model, tokenizer/type, and for each builder: founding cases, all cases, engine errors."""
    cells = _to_be_right(cells)
    builders = by_builder(cells)
    rows = [["model", "tokenizer/type", *builders]]
    for (model, tokenizer), group in cells.group_by(["model", "tokenizer"], maintain_order=True):
        kind = group["vocab_type"].drop_nulls().first() or "?"
        rows.append(
            [
                str(model),
                f"{tokenizer}/{kind}",
                *(_score(group.filter(builder=builder)) for builder in builders),
            ]
        )
    return rows


def _to_be_right(cells: pl.DataFrame) -> pl.DataFrame:
    """All but the sentinel cases, which test whether a target enforces at all."""
    return cells.filter(pl.col("suite") != SENTINEL)


def by_builder(cells: pl.DataFrame) -> list[str]:
    """The builders in the order of the tables: `unfixed`, the remedies, then others by name."""
    builders = cells["builder"].unique().to_list()
    return sorted(builders, key=lambda b: (_FIRST.index(b) if b in _FIRST else len(_FIRST), b))


def _score(cells: pl.DataFrame) -> str:
    right = cells.filter(verdict=Verdict.OK)
    founding = cells.filter(case="founding")
    errors = cells.filter(pl.col("engine_error").is_not_null()).height
    score = f"{right.height}/{cells.height}, {errors} err"
    if founding.height:
        score = f"{founding.filter(verdict=Verdict.OK).height}/{founding.height}, {score}"
    return score + (", greedy" if (cells["tokenize"] == TokenizeMode.GREEDY).any() else "")


def enforcement(cells: pl.DataFrame) -> list[list[str]]:
    """Results of the sentinel cases. Right answers to other cases do not prove enforcement, and a
    refusal proves something only if the server answers other requests."""
    answering = set(cells.filter(http_status=200).select("tokenizer", "builder").rows())
    cells = cells.filter(suite=SENTINEL)
    if not cells.height:
        return []
    cases = cells["case"].unique(maintain_order=True).to_list()
    rows = [["tokenizer", "builder", *cases]]
    for (tokenizer, builder), group in cells.group_by(["tokenizer", "builder"]):
        came = {row["case"]: row for row in group.iter_rows(named=True)}
        answers = (tokenizer, builder) in answering
        told = (_came(came.get(case), answers=answers) for case in cases)
        rows.append([str(tokenizer), str(builder), *told])
    rows[1:] = sorted(rows[1:])
    return rows


def _came(row: dict[str, Any] | None, *, answers: bool) -> str:
    if row is None:
        return "-"
    status = row["http_status"]
    if status is None:
        return f"{row['verdict']}"
    nothing = "" if answers or status < 400 else " (shows nothing: no request was answered)"
    return f"{row['verdict']}, HTTP {status}{nothing}"


def _worst(cells: pl.DataFrame) -> str:
    """Verdict counts, and the worst cells with their reasons."""
    counts = dict(cells["verdict"].value_counts().iter_rows())
    order = sorted(counts, key=lambda name: -BADNESS[Verdict(name)])
    tally = ", ".join(f"{counts[name]} {name}" for name in order)
    failed = cells.filter(pl.col("verdict") != Verdict.OK)
    failed = sorted(
        failed.iter_rows(named=True),
        key=lambda row: (-BADNESS[Verdict(row["verdict"])], row["case"] != "founding"),
    )
    lines = [f"Verdicts: {tally}"]
    for row in failed[:_WORST]:
        where = f"{row['tokenizer']} {row['builder']} {row['suite']}/{row['case']}"
        output = "" if row["output"] is None else f" output {repr(row['output'][:60])[1:]};"
        lines.append(f"  {row['verdict']} ({row['cause']}) {where}:{output} {row['reason']}")
    if len(failed) > _WORST:
        lines.append(f"  … and {len(failed) - _WORST} more; see cells.parquet")
    return "\n".join(lines)


def _grid(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
