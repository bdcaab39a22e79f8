"""Two sides paired cell by cell: what regressed, what was fixed, and whether that fails a gate.

Cells are paired by their names, without the part that is compared. A fix never offsets a
regression. Sides that are not comparable are refused, with the difference named. Reads tables only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ...model.errors import CompareError
from ...model.verdicts import Change, RowChange
from . import comparability, repeats, table_changes
from .comparability import Difference
from .kept_changes import KnownFailure, known_failures
from .pairing import STILL, WORSE, classify, pair_cells, with_tokens
from .side import KEY, PARTS, Side

FAIL_ON = ("regression", "any_change", "never")


@dataclass(frozen=True)
class Comparison:
    """Two sides, paired."""

    before: Side
    after: Side
    versions: tuple[tuple[str, str, str], ...]
    """(name, before, after) of each version that changed."""
    allowed: tuple[Difference, ...]
    """Differences between the sides that `allow` permits."""
    allow: tuple[str, ...]
    cells: pl.DataFrame
    """One row per pair of cells, worst first."""
    tables: pl.DataFrame
    """What changed in the tables other than cells, by id; see `table_changes`."""
    hints: tuple[str, ...]
    rates: tuple[repeats.Rate, ...]
    known: tuple[KnownFailure, ...] = ()
    """The known failures of a baseline, and whether each still fails."""

    def count(self, *changes: Change) -> int:
        """The number of cells with one of these changes."""
        return self.cells.filter(pl.col("change").is_in([c.value for c in changes])).height

    @property
    def n_worse(self) -> int:
        """Cells that count as worse."""
        return self.count(
            *(c for c in WORSE if c is not Change.REMOVED or "cases" not in self.allow)
        )

    @property
    def n_tables_worse(self) -> int:
        """Findings in tables that count as worse."""
        return self.tables.filter(pl.col("change").is_in(self.worse_in_tables)).height

    @property
    def worse_in_tables(self) -> list[str]:
        """The changes of a table's row that count as worse."""
        removed = [] if "cases" in self.allow else [RowChange.REMOVED.value]
        return [RowChange.WORSE.value, *removed]

    @property
    def n_changed(self) -> int:
        """Cells and findings with any change, including outputs that changed under the same
        verdict."""
        moved = ~pl.col("change").is_in([c.value for c in STILL]) | pl.col("output_changed")
        return self.cells.filter(moved).height + self.tables.height

    @property
    def is_worse(self) -> bool:
        """Whether anything is worse: a cell, a standing or another row of a table."""
        return self.n_worse + self.n_tables_worse > 0

    def exit_code(self, fail_on: str) -> int:
        """0, or 1 if the gate fails."""
        if fail_on == "any_change":
            return int(self.n_changed > 0)
        return int(fail_on == "regression" and self.is_worse)


def compare(before: Side, after: Side, allow: Sequence[str] = ()) -> Comparison:
    """Pair two sides. Raises CompareError if both are the same or if a difference is not allowed.

    `allow` has kinds of differences from `comparability.ALLOW`.
    """
    if _same(before, after):
        raise CompareError(
            f"Both sides are {before.label}: there is nothing to compare. Set before.run and "
            "after.run to two runs, or before.builder and after.builder to two builders of a run."
        )
    key = [name for name in KEY if name not in _compared(before, after)]
    pairs = pair_cells(before.cells, after.cells, key)
    differences = comparability.differences(before, after, pairs)
    if unlike := [d for d in differences if d.kind not in allow]:
        words = ",".join(dict.fromkeys(d.kind for d in unlike))
        raise CompareError(
            f"{before.label} and {after.label} cannot be compared, because they differ:\n"
            + "\n".join(f"  {d.kind}: {d.text}" for d in unlike)
            + "\nMake both runs with the same inputs and settings, or allow the difference: "
            + f"allow=[{words}]."
        )
    cells = with_tokens(classify(pairs), before, after)
    changed, notes = table_changes.changes(before, after, _compared(before, after))
    return Comparison(
        before=before,
        after=after,
        versions=tuple(_versions(before.versions, after.versions)),
        allowed=tuple(differences),
        allow=tuple(allow),
        cells=cells,
        tables=changed,
        hints=(*_renamed(cells, before, after), *_unexplained(cells), *notes),
        rates=repeats.rates(cells),
        known=tuple(known_failures(before, after)),
    )


def _compared(before: Side, after: Side) -> set[str]:
    """The parts that are compared. These are the parts that the user named. If a builder is named
    and each side has only one target, the target is compared too: then an in-process builder can be
    paired with a server's build."""
    named = set(before.part)
    targets = [set(side.cells["target"].to_list()) for side in (before, after)]
    if "builder" in named and all(len(some) == 1 for some in targets):
        named.add("target")
    return named


def _same(before: Side, after: Side) -> bool:
    if before.folder is None or after.folder is None:
        return False
    return before.folder.resolve() == after.folder.resolve() and before.part == after.part


def _versions(
    before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Changed versions; the two engines under test come first. A version that only one side records
    did not change: a baseline omits versions that differ between machines.
    """
    first = ("llama-cpp-python", "llguidance", "engine")
    for name in sorted(before.keys() & after.keys(), key=lambda name: (name not in first, name)):
        if before[name] != after[name]:
            yield name, before[name], after[name]


def _renamed(cells: pl.DataFrame, before: Side, after: Side) -> Iterator[str]:
    """Hints at a builder, target, model, tokenizer or suite that seems to be renamed."""
    for part in ("builder", "target", "model", "tokenizer", "suite"):
        if part in before.part:
            continue
        rest = [name for name in KEY if name != part]
        old, new = (
            cells.filter(
                (pl.col("change") == change) & ~pl.col(part).is_in(side.cells[part].implode())
            )
            for change, side in ((Change.REMOVED, after), (Change.ADDED, before))
        )
        lost, found = (
            {
                str(name): group.select(rest).sort(rest)
                for (name,), group in cells.group_by(part, maintain_order=True)
            }
            for cells in (old, new)
        )
        for gone, come in itertools.product(lost, found):
            if lost[gone].equals(found[come]):
                yield _renaming(part, gone, come, lost[gone].height)


def _renaming(part: str, gone: str, come: str, n: int) -> str:
    said = (
        f"{part} {gone} is only in the first side and {part} {come} only in the second, with the "
        f"same {n} cells: if it was renamed, "
    )
    if part in PARTS:
        return said + f"compare them with before.{part}={gone} after.{part}={come}"
    return said + "give it the old name, or repeat the earlier run"


def _unexplained(cells: pl.DataFrame) -> Iterator[str]:
    """Cells whose outcome changed while their `cell_hash` did not."""
    moved = pl.col("output_changed") | ~pl.col("change").is_in([c.value for c in STILL])
    alike = pl.col("cell_hash_before") == pl.col("cell_hash_after")
    if n := cells.filter(moved & alike).height:
        yield (
            f"{n} cells have another outcome although their recorded inputs are the same (equal "
            "cell_hash): the machine or byte-exact itself caused the difference"
        )
