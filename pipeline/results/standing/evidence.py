"""The rows of a run about one builder, and what a fault is.

A *subject* is what gets a standing: a builder on a vocabulary, under a target and axes. Tables
about token tables and masks belong to the target `inprocess`, also in an audit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

from ...model.names import IN_PROCESS
from ..tables import schemas

Tables = Mapping[str, pl.DataFrame]

SPOKEN = ("tokenizers", "exactness", "specials", "masks", "states", "walks", "strings", "replay")
"""The tables about a token table, its tokenization and its masks."""


@dataclass(frozen=True, order=True)
class Subject:
    """What gets a standing."""

    tokenizer: str
    builder: str
    target: str = IN_PROCESS
    axes: str = ""
    """Axes that do not stand at their default, as `name=value` joined by commas."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault of a subject."""

    text: str
    """What, how often, and the first example."""
    table: str
    """The table that has the rows."""
    needs: str = ""
    """The circumstance that the grammar itself must bring; empty if the fault needs none."""


@dataclass
class Evidence:
    """The rows of every table about one subject."""

    subject: Subject
    rows: dict[str, pl.DataFrame] = field(default_factory=dict[str, pl.DataFrame])

    def table(self, name: str) -> pl.DataFrame:
        """The rows of a table; empty if the run does not have any."""
        if name not in self.rows:
            self.rows[name] = pl.DataFrame(schema=schemas.SCHEMAS[name])
        return self.rows[name]


def subjects(tables: Tables, axes: str) -> Iterator[Evidence]:
    """The evidence of each subject, sorted. `axes` are those of repeated cells."""
    found: dict[Subject, Evidence] = {}

    def of(subject: Subject) -> Evidence:
        return found.setdefault(subject, Evidence(subject))

    for name in (*SPOKEN, "tokens"):
        table = tables.get(name)
        if table is None or table.is_empty():
            continue
        for (tokenizer, builder), rows in table.group_by("tokenizer", "builder"):
            of(Subject(str(tokenizer), str(builder))).rows[name] = rows
    cells = tables.get("cells")
    if cells is not None and not cells.is_empty():
        repeated = pl.col("repeat").is_not_null()
        keys = ["tokenizer", "builder", "target"]
        for (tokenizer, builder, target, sampled), rows in cells.group_by(*keys, repeated):
            subject = Subject(str(tokenizer), str(builder), str(target), axes if sampled else "")
            of(subject).rows["cells"] = rows
    yield from (found[subject] for subject in sorted(found))
