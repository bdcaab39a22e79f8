"""Ten differing runs from small tables, and everything that console and report say of each.

`python -m support.standing_runs` in the folder `tests` prints the statements, as they are kept in
`results/standings.txt`.
"""

import html
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.results.report import headline
from pipeline.results.report.run_view import open_run
from pipeline.results.standing import words
from pipeline.results.summary import console
from pipeline.results.tables import run_folder
from support.report_runs import Row, cell, cut_short, made, row, walked

WHO = {"tokenizer": "t", "builder": "b"}


def finished(results: Path, rows: dict[str, list[Row]], **manifest: Any) -> Path:
    """A finished run with everything in its manifest that the console reads."""
    spent: dict[str, Any] = {"replay_cpu_ns": {"engine": 0, "all": 0}, "timings": []}
    known: dict[str, Any] = {"refused": [], "lost": 0, "missing": [], "volatile": spent}
    return made(results / "run", rows, **(known | manifest))


def table_row(**values: Any) -> Row:
    """A token table without a fault."""
    known = {"vocab_type": "SPM", "status": "ok", "reason": "", "n_tokens": 3, "tokenize": "exact"}
    known |= dict.fromkeys(("n_wrong", "n_mark_wrong", "n_lost_leading_space"), 0)
    return row("tokenizers", **(WHO | known | {"end_is_wrong": False} | values))


def state(step: int, **values: Any) -> Row:
    """An exact mask."""
    known: Row = {"grammar": "walks/words", "walk": "0000-uniform", "verdict": "exact", "ids": []}
    return row("states", step=step, **(WHO | known | {"n_allowed": 1, "reason": ""} | values))


def walk(**values: Any) -> Row:
    """A walk that went well."""
    known = {"grammar": "walks/words", "walk": "0000-uniform", "verdict": "exact", "status": "ok"}
    known |= {"n_steps": 2, "n_non_canonical": 0, "ended": "stop_id", "reason": ""}
    return row("walks", **(WHO | known | values))


def text(**values: Any) -> Row:
    """A text that is tokenized exactly."""
    known = {"probe": b"a b", "ids": [0], "got": b"a b", "verdict": "exact", "class": "none"}
    return row("exactness", **(WHO | known | {"spellable": True} | values))


def given(**values: Any) -> Row:
    """A given string that is accepted as it must be."""
    known = {"grammar": "words", "string": b"a", "split": "greedy", "wanted": True}
    known |= {"accepted": True, "verdict": "ok", "cause": "none"}
    return row("strings", **(WHO | known | values))


def audited(**values: Any) -> dict[str, list[Row]]:
    """The tables of an audit without a fault."""
    return {
        "tokenizers": [table_row(**values)],
        "exactness": [text()],
        "states": [state(0), state(1)],
        "walks": [walk()],
        "strings": [given()],
    }


def all_good(results: Path) -> None:
    finished(results, {**audited(), "cells": [cell(case=str(n)) for n in range(3)]})


def all_bad(results: Path) -> None:
    wrong = {"token": 1, "attribute": "NORMAL", "true": b" a", "claimed": b"a", "damage": "other"}
    rows = audited(n_wrong=1)
    rows["tokens"] = [row("tokens", **WHO, **wrong, marked_special=False)]
    rows["states"] += [state(2, verdict="unsound", ids=[1, 7, 8, 9], n_unsound=4)]
    rows["exactness"] += [
        text(probe=b"x", got=b" x", verdict="inexact", **{"class": "prefix_added"})
    ]
    rows["strings"] += [given(string=b"b", verdict="valid_refused", cause="builder")]
    rows["cells"] = [
        cell(case="1", verdict="silent_corruption", cause="bytes", reason="step 0: token 1 ' a'"),
        cell(case="2", verdict="unenforced", cause="tokenize", reason="step 3"),
    ]
    finished(results, rows)


def limited(results: Path) -> None:
    rows = audited()
    special = {"token": 2, "attribute": "CONTROL", "true": b"<s>", "verdict": "ok"}
    rows["specials"] = [row("specials", **WHO, **special)]
    rows["states"] += [
        state(0, grammar="specials/id_2", verdict="stop_too_early", ids=[2], walk="0001-uniform")
    ]
    rows["exactness"] += [
        text(probe=b"<s>", ids=[2], got=b"<s>", verdict="inexact", **{"class": "special_returned"})
    ]
    finished(results, rows)


def audit_only(results: Path) -> None:
    finished(results, audited(), stages=["audit"])


def replay_only(results: Path) -> None:
    rows = [walked(), walked(instance="j", verdict="invalid_accepted", cause="engine")]
    finished(results, {"replay": rows}, stages=["replay"])


def server(results: Path) -> None:
    def one(case: str, **values: Any) -> Row:
        return cell(target="server", builder="llama-server", tokenizer="t", case=case, **values)

    cells = [one("1"), one("2", verdict="truncated", reason="the token limit was reached")]
    finished(results, {"cells": cells}, stages=["generate"])


def sampled(results: Path) -> None:
    cells = [cell(case="1", repeat=n) for n in range(3)]
    cells.append(cell(case="1", repeat=3, verdict="unenforced", cause="tokenize", reason="step 2"))
    settings = {"sampling": {"temperature": 0.8, "seed": 0}}
    finished(results, {**audited(), "cells": cells}, settings=settings)


def interrupted(results: Path) -> None:
    cut_short(results / "run", {**audited(), "cells": [cell(case="1")]})


def damaged(results: Path) -> None:
    run = finished(results, {**audited(), "cells": [cell(case="1"), cell(case="2")]})
    path = run / "cells.parquet"
    path.write_bytes(path.read_bytes()[:-40])


def unreadable_input(results: Path) -> None:
    reason = "line 2: the grammar is missing"
    none: dict[str, Any] = dict.fromkeys(("instance", "split", "valid"))
    rows = [walked()]
    rows += [walked(schema=f"s{n}", verdict="unreadable", reason=reason, **none) for n in range(3)]
    finished(results, {"replay": rows}, stages=["replay"])


def builders_refused(results: Path) -> None:
    refused = {"status": "builder_refused", "reason": "WPM is not supported", "n_wrong": None}
    finished(results, {"tokenizers": [table_row(**refused)]}, stages=["audit"])


RUNS: tuple[Callable[[Path], None], ...] = (
    *(all_good, all_bad, limited, audit_only, replay_only, server, sampled, interrupted, damaged),
    *(unreadable_input, builders_refused),
)


def statements(make: Callable[[Path], None]) -> str:
    """Everything that console and report say of a run about its builders, as text."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder)
        make(results)
        run = results / "run"
        lines = [f"## {make.__name__.replace('_', ' ')}", ""]
        manifest = run_folder.read_manifest(run)
        if manifest and make is not damaged:
            said = console.console(run, manifest).replace(str(results), "results")
            lines += ["Console:", *(f"    {line}".rstrip() for line in said.split("\n"))]
        with open_run("run", results) as view:
            lines += ["Report:", f"    {headline.headline(view, None)}"]
            lines += [f"    {text}" for text in headline.details(view, None)]
            lines += [f"    {line}" for line in words.lines(view.standings)]
            steps = headline.next_steps(view, None)
            lines += ["Advice:", *(f"    {one.text} {one.command}".rstrip() for one in steps)]
            lines += ["Notes:", *(f"    {note}" for note in view.notes or ["none"])]
    return html.unescape(re.sub(r"\(os error.*?\)", "", "\n".join(lines))) + "\n"


def golden() -> str:
    """The statements of all runs."""
    return "\n".join(statements(make) for make in RUNS)


if __name__ == "__main__":
    print(golden(), end="")
