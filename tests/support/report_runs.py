"""Runs for reports: artificial, large, hostile, interrupted, or with a server target."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.__main__ import main
from pipeline.results.compare.side import KEY
from pipeline.results.standing import stored
from pipeline.results.tables import parquet, schemas

Row = dict[str, Any]

VERSIONS = {"llama-cpp-python": "0.3.36", "llguidance": "1.9.1", "byte-exact": "0.1.0"}

HOSTILE = {
    "script": b"</script><script>document.body.dataset.hit=1</script>",
    "image": b"<img src=x onerror=document.body.dataset.hit=1>",
    "entity": b"&lt;img src=x onerror=document.body.dataset.hit=1&gt; &amp; <svg onload=alert(1)>",
    "comment": b"<!--<script>",
    "template": b"{{ 7 * 7 }} {% raw %} ${7*7}",
    "quotes": b"'\"`\\ \\u003cb\\u003e",
    "turned": "a\u202eb\u2066c\u2069\u200f שלום".encode(),
    "null": b"a\x00b",
    "terminal": b"\x1b[31mred\x1b]0;title\x07\x9b2J",
    "not_utf8": b"\xff\xfe\xc3\x28 \xf0\x9f\x92",
    "lines": "a\u2028b\u2029c\r\nd".encode(),
    "long": b"x" * 20_000,
    "joined": ("e" + "\u0301" * 400).encode(),
    "empty": b"",
}


def row(table: str, **values: Any) -> Row:
    """A row with missing columns as None; bytes in the form that a worker sends."""
    said = {k: v.decode("latin-1") if isinstance(v, bytes) else v for k, v in values.items()}
    return dict.fromkeys(schemas.SCHEMAS[table]) | said


def cell(**values: Any) -> Row:
    """A cell of an artificial run; ok by default."""
    names = {"target": "inprocess", "model": "m", "tokenizer": "t", "builder": "b", "suite": "s"}
    names |= {name: values[name] for name in KEY if name in values}
    known = {"cell_key": "/".join(names[name] for name in KEY), "verdict": "ok", "cause": "none"}
    return row("cells", **(names | known | {"reason": "", "output": b"{}"} | values))


def step(of: Row, number: int, **values: Any) -> Row:
    """A step of a cell; its bytes are right by default."""
    shared = ("model", "tokenizer", "builder", "suite", "case", "cell_key")
    known: Row = {"token": number, "attribute": "NORMAL", "n_allowed": 3, "origin": "chosen"}
    true = values.get("true", b"x")
    known |= {"true": true, "claimed": true, "rendered": true}
    return row("steps", step=number, **({name: of[name] for name in shared} | known | values))


def walked(**values: Any) -> Row:
    """A walk of a replay; ok by default."""
    names = {"tokenizer": "t", "builder": "b", "collection": "s", "schema": "a", "instance": "i"}
    known = {"split": "canonical", "valid": True, "verdict": "ok", "cause": "none", "reason": ""}
    return row("replay", **(names | known | values))


def replay(folder: Path) -> Path:
    """A run with a replay only: a fault of a builder, one of the engine, a schema without walks."""
    lost = {"verdict": "valid_refused", "reason": "refused", "culprit_step": 0}
    mine = [
        walked(builder="fixed"),
        walked(builder="fixed", instance="j", verdict="invalid_accepted", cause="engine"),
        walked(
            builder="fixed",
            schema="b",
            instance=None,
            split=None,
            valid=None,
            verdict="grammar_error",
            cause="engine",
            reason="no such keyword",
        ),
        walked(builder="unfixed"),
        *(
            walked(
                builder="unfixed",
                split=split,
                cause="builder",
                culprit=7,
                true=b" x",
                claimed=b"x",
                **lost,
            )
            for split in ("greedy", "random")
        ),
    ]
    times = [
        row("replay_times", tokenizer="t", builder=b, schema="a", first_mask_us=9)
        for b in ("fixed", "unfixed")
    ]
    return made(folder, {"replay": mine, "replay_times": times})


def hostile(folder: Path, verdict: str = "unenforced") -> Path:
    """A run whose texts try to break a page: names, bytes, reasons, reproducers."""
    cells: list[Row] = []
    steps: list[Row] = []
    tokens: list[Row] = []
    reproducers: list[Row] = []
    replay: list[Row] = []
    for number, (name, text) in enumerate(HOSTILE.items()):
        said = text.decode("utf-8", "replace")
        one = cell(
            case=f"{name} {said[:60]}",
            suite="</script>" if number % 2 else "s",
            tokenizer="<i>t</i>\u202e",
            builder="<script>alert(1)</script>",
            verdict=verdict,
            cause="bytes",
            output=text,
            n_legal_bytes=2,
            reason=said,
            engine_error=said,
            lost_at_step=1,
            culprit_step=0,
        )
        cells.append(one)
        steps += [step(one, n, true=text, claimed=text[1:], rendered=b"") for n in range(3)]
        who = {"tokenizer": one["tokenizer"], "builder": one["builder"]}
        tokens.append(
            row("tokens", **who, token=number, true=text, claimed=text[1:], damage="other")
        )
        reproducers.append(
            row(
                "reproducers",
                **who,
                name=name,
                verdict="unsound",
                kind=said[:40],
                suite_file=said,
                report=said,
            )
        )
        replay.append(
            walked(
                **who,
                schema=said,
                instance=said,
                verdict="valid_refused",
                cause="builder",
                reason=said,
                culprit=number,
                true=text,
                claimed=text[1:],
            )
        )
    found = {"cells": cells, "steps": steps, "tokens": tokens, "reproducers": reproducers}
    found |= {"replay": replay} | _hostile_field()
    return made(folder, found, refused=[HOSTILE["script"].decode(), "\x1b[31m"])


def _hostile_field() -> dict[str, list[Row]]:
    builders: list[Row] = []
    findings: list[Row] = []
    for name, text in HOSTILE.items():
        said = text.decode("utf-8", "replace")
        proof: Row = {"tokenizer": said, "verdict": said, "grammar": said, "tokens": [1], "ids": []}
        proof |= {"true": text, "claimed": text[1:], "file": said, "command": said}
        told = {"status": said, "reason": said, "known": said, "n_wrong": 3}
        builders.append(row("field", builder=name, version=said, **proof, **told))
        told = {"made_by": said, "kind": said, "suite_file": said, "report": said}
        findings.append(row("engine_findings", engine=name, n_states=1, **proof, **told))
    return {"field": builders, "engine_findings": findings}


def field(results: Path) -> None:
    """A run as `scripts/field_report.py` writes it: only the tables of the field, no cells."""
    proof: Row = {"tokenizer": "llama_spm", "verdict": "incomplete", "grammar": "start: /(é|z)/"}
    proof |= {"tokens": [], "ids": [198], "true": b"\xc3", "claimed": "\ufffd".encode()}
    proof |= {"file": "reproducers/llama_spm-lmfe-0.11.3-incomplete-other.yaml"}
    proof |= {"command": "python -m pipeline run grammar=path builder=lmfe"}
    texts = {"suite_file": "# the command\nsuite: reproducer\n", "report": "Token table `lmfe`"}
    wrong = {"n_normal": 31_740, "n_wrong": 128, "status": "ok"}
    known = "noamgat/lm-format-enforcer#92, by its use"
    refused = {"tokenizer": "bert_bge", "status": "builder_refused", "reason": "no 'eos_token'"}
    engine = proof | {"file": "reproducers/engine.yaml", "true": b"<unk>", "claimed": b""}
    found = {
        "field": [
            row("field", builder="lmfe", version="0.11.3", known=known, **proof, **wrong),
            row("field", builder="outlines", version="1.3.3", **refused),
            row("field", builder="fixed", tokenizer="llama_spm", **(wrong | {"n_wrong": 0})),
        ],
        "reproducers": [
            row("reproducers", builder="lmfe", name="incomplete-other", kind="other", **proof)
            | {"made_by": "lm-format-enforcer 0.11.3"}
            | texts
        ],
        "engines": [row("engines", engine="lmfe", made_by="lm-format-enforcer 0.11.3")],
        "engine_findings": [
            row("engine_findings", engine="lmfe", kind="special", n_states=4, n_ids=63, **engine)
            | {"verdict": "unsound", "made_by": "lm-format-enforcer 0.11.3"}
            | texts
        ],
    }
    made(results / "a", found)


def made(folder: Path, rows: Mapping[str, Iterable[Row]], **manifest: Any) -> Path:
    """Write a finished run with these tables and its standings; the others are empty."""
    folder.mkdir(parents=True)
    counts: dict[str, int] = {}
    for table in schemas.SCHEMAS:
        data = parquet.frame(table, rows.get(table, ()))
        parquet.write(data, folder / f"{table}.parquet")
        counts[table] = data.height
    record = {
        "schema_version": schemas.SCHEMA_VERSION,
        "status": "complete",
        "rows": counts,
        "versions": VERSIONS,
        "volatile": {"finished": "2026-11-30T12:00:00+00:00"},
    }
    counts["standings"] = stored.write(folder, record | manifest)
    (folder / "manifest.json").write_text(json.dumps(record | manifest))
    return folder


def cut_short(folder: Path, rows: Mapping[str, Iterable[Row]]) -> Path:
    """A killed run: one unit done, the last line incomplete, no tables, no manifest."""
    (folder / "parts").mkdir(parents=True)
    lines = [json.dumps({"type": "rows", "table": t, "rows": [*r]}) for t, r in rows.items()]
    lines.append(json.dumps({"type": "done", "unit": ["cell", "builder", "suite", "case"]}))
    text = "\n".join(lines) + '\n{"type": "rows", "table": "cells", "ro'
    (folder / "parts" / "m--t.jsonl").write_text(text)
    return folder


def large(folder: Path, cells: int = 10_000, steps: int = 12) -> Path:
    """A run with this number of cells and two builders; one breaks every third cell."""
    found: list[Row] = []
    taken: list[Row] = []
    for number in range(cells):
        builder = ("unfixed", "fixed")[number % 2]
        bad = builder == "unfixed" and number % 3 == 0
        place = number // 2
        one = cell(
            model="tiny",
            tokenizer=f"vocabulary_{place % 20}",
            builder=builder,
            suite=f"suite_{place // 20 % 5}",
            case=f"case_{place:05}",
            verdict="silent_corruption" if bad else "ok",
            cause="bytes" if bad else "none",
            culprit_step=3 if bad else None,
            n_legal_bytes=3 if bad else steps,
            output=b" the quick brown fox"[:steps],
            reason="step 3: token 3 ' x' (the table says 'x')" if bad else "",
        )
        found.append(one)
        taken += [
            step(one, n, true=b" x", claimed=b"x" if bad and n == 3 else b" x")
            for n in range(steps)
        ]
    tokens = [
        row(
            "tokens",
            tokenizer=f"vocabulary_{v}",
            builder="unfixed",
            token=n,
            attribute="NORMAL",
            true=b" word",
            claimed=b"word",
            damage="leading_space_lost",
        )
        for v in range(20)
        for n in range(500)
    ]
    return made(folder, {"cells": found, "steps": taken, "tokens": tokens})


def reported(results: Path, *arguments: str) -> Path:
    """Build a report with the real command; returns its folder."""
    out = results.parent / f"{results.name}-site"
    assert main(["report", f"results_dir={results}", f"out={out}", *arguments]) == 0
    return out


def nothing(results: Path) -> None:
    """A results folder without a run."""
    results.mkdir()


def server(results: Path) -> None:
    """A run with a server target: only cells."""
    verdicts = enumerate(("ok", "stopped"))
    found = [cell(target="server", case=f"c{i}", verdict=verdict) for i, verdict in verdicts]
    made(results / "a", {"cells": found})


def truncated(results: Path) -> None:
    """A run that was killed after its first cell."""
    cut_short(results / "a", {"cells": [cell(case="c")]})
