"""Every cell of a run with its steps, encoded for the cell pages, and the file of each cell.

A cell's data is encoded once, as JSON text. When a file is full, the next one is started.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import polars as pl

from ...model.verdicts import MaskVerdict
from ...system.rerun import Recipe
from ...system.text import visible
from .run_view import REPEAT, RunView
from .site import to_json

_Row = dict[str, Any]

_ROOM = 3_000_000
"""Characters of cell data in one file."""

_OUTPUT = 8_000
"""Characters of an output that are shown."""

_ABOUT = ("target", "model", "tokenizer", "builder", "suite")
"""Columns that are equal for all cells of one file."""

_FACTS = (
    *(
        "ended",
        "n_tokens",
        "n_forced",
        "n_non_canonical",
        "n_engine_errors",
        "http_status",
        "server",
    ),
    *("tokenize", "prefix_scheme", "prompt_ids", "seed", "device", "engine", "llama_cpp"),
    *("cell_key", "cell_hash", "model_sha256", "vocab_hash", "table_hash", "grammar_hash"),
    "case_hash",
)


class Name(NamedTuple):
    """Names that identify a cell, without its builder."""

    target: str
    model: str
    tokenizer: str
    suite: str
    case: str
    repeat: int | None


@dataclass
class File:
    """One page of cells."""

    path: str
    about: _Row
    cells: list[str] = field(default_factory=list[str])
    names: list[Name] = field(default_factory=list[Name])
    size: int = 0
    part: int = 1


@dataclass
class Transcripts:
    """All cells, in files."""

    files: list[File]
    where: dict[tuple[Name, str], tuple[int, str]]
    """(cell, builder) → (index of its file, verdict)."""
    has_steps: bool

    def href(self, name: Name, builder: str, root: str = "") -> str:
        """The link to a cell; `root` is the relative path from the linking page to the site."""
        return f"{root}{self.files[self.where[name, builder][0]].path}#{_fragment(name)}"


def name_of(row: Mapping[str, Any]) -> Name:
    """The name of a row of `cells`."""
    return Name(*(row[part] for part in Name._fields))


def _fragment(name: Name) -> str:
    """The URL fragment of a cell within its file; the scripts compute the same."""
    case = label(name)
    return re.sub(
        r"[^\w.-]", lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), case, flags=re.A
    )


def label(name: Name) -> str:
    """The name of a cell within its file."""
    case = visible(name.case, 200)
    return case if name.repeat is None else f"{case} ({name.repeat})"


def transcripts(run: RunView, recipe: Recipe) -> Transcripts:
    """Encode every cell of a run and give it its file."""
    cells = run.cells.sort(*_ABOUT, "case", REPEAT, maintain_order=True)
    steps = _Steps(run)
    made = Transcripts([], {}, run.table("steps").height > 0)
    used: set[str] = set()
    for row in cells.iter_rows(named=True):
        about = {part: row[part] for part in _ABOUT}
        if not made.files or made.files[-1].about != about:
            made.files.append(File(_path(about, 1, used), about))
        data = to_json(_cell(row, steps, recipe))
        file = made.files[-1]
        if file.cells and file.size + len(data) > _ROOM:
            part = file.part + 1
            file = File(_path(about, part, used), about, part=part)
            made.files.append(file)
        file.cells.append(data)
        file.names.append(name_of(row))
        file.size += len(data)
        made.where[name_of(row), row["builder"]] = len(made.files) - 1, row["verdict"]
    return made


def _path(about: _Row, part: int, used: set[str]) -> str:
    """A unique, readable file name that every file system accepts."""
    words = [about["tokenizer"], about["suite"], about["builder"]]
    readable = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", word)[:40].strip("._") for word in words)
    digest = hashlib.sha256(to_json([*about.values()]).encode()).hexdigest()[:8]
    path = f"cells/{readable}-{digest}{f'-{part}' if part > 1 else ''}.html"
    assert path not in used
    used.add(path)
    return path


class _Steps:
    """The steps of each cell with the verdicts of the oracle, in the order of the cells."""

    def __init__(self, run: RunView) -> None:
        steps = run.table("steps")
        names = ["tokenizer", "builder", "grammar", "walk", "step"]
        states = run.table("states").filter(pl.col("walk").str.starts_with("generate/"))
        states = states.unique(names, keep="first").select(
            *names,
            *(pl.col(column).alias(f"oracle_{column}") for column in ("verdict", "ids", "reason")),
        )
        repeat = pl.concat_str(pl.lit("#"), REPEAT)  # as in `Request.identity`
        steps = steps.with_columns(
            grammar=pl.concat_str("suite", "case", separator="/"),
            walk=pl.concat_str(pl.lit("generate/"), "model", repeat.fill_null("")),
        ).join(states, on=names, how="left", maintain_order="left")
        columns = ["cell_key", REPEAT, "step", "token", "attribute", "true", "claimed", "rendered"]
        columns += ["n_allowed", "origin", "oracle_verdict", "oracle_ids", "oracle_reason"]
        self._of: dict[tuple[str, int | None], list[list[Any]]] = {}
        order = ["cell_key", REPEAT, "step"]
        rows = steps.select(columns).sort(order, maintain_order=True).iter_rows()
        for key, group in itertools.groupby(rows, key=lambda row: row[:2]):
            self._of[key] = [_step(row) for row in group]

    def of(self, row: _Row) -> list[list[Any]]:
        """The steps of this repeat of a cell."""
        return self._of.get((row["cell_key"], row[REPEAT]), [])


def _step(row: tuple[Any, ...]) -> list[Any]:
    """[step, token, attribute, true, claimed, rendered, allowed, origin, oracle, ids, reason].

    Claimed and rendered bytes are 0 if they equal the true ones, and None if they are not known (a
    server's). Missing values at the end are left out.
    """
    *_, step, token, attribute, true, claimed, rendered, allowed, origin, oracle, ids, reason = row
    shown = visible(true, 200)
    made: list[Any] = [
        step,
        token,
        attribute,
        shown,
        *(
            0 if told == true else None if told is None else visible(told, 200)
            for told in (claimed, rendered)
        ),
        allowed,
        origin,
    ]
    if oracle is not None:
        made.append(oracle)
        if oracle != MaskVerdict.EXACT:
            made += [(ids or [])[:8], visible(reason, 200)]
    return made


def _cell(row: _Row, steps: _Steps, recipe: Recipe) -> _Row:
    output, legal = row["output"], row["n_legal_bytes"]
    cut = len(output) if output is not None and legal is None else legal
    return {
        "name": label(name_of(row)),
        "verdict": row["verdict"],
        "cause": row["cause"],
        "valid": row["text_valid"],
        "lost": row["lost_at_step"],
        "culprit": row["culprit_step"],
        "reason": visible(row["reason"], 2_000),
        "error": visible(row["engine_error"], 2_000),
        "output": None
        if output is None
        else [visible(output[:cut], _OUTPUT), visible(output[cut:], _OUTPUT)],
        "legal": legal,
        "size": None if output is None else len(output),
        "command": visible(recipe.command(row), 1_000),
        "facts": [[name, _fact(row[name])] for name in _FACTS if row.get(name) is not None],
        "steps": steps.of(row),
    }


def _fact(value: Any) -> str:
    text = " ".join(map(str, cast(list[Any], value))) if isinstance(value, list) else str(value)
    return visible(text, 400)
