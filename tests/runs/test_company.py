"""The rows of a builder do not depend on the builders beside it, nor on their order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.engines import builders
from pipeline.engines.table import Material, TokenTable
from pipeline.model.names import Row
from support.audits import Auditor


@dataclass
class _Twin:
    """A builder whose entries, end and mode are those of `exact`, with another tokenization."""

    name: str
    drops: bytes
    version: int = 1

    def build(self, material: Material) -> TokenTable:
        table = builders.get("exact").build(material)
        right = table.tokenize
        assert right is not None

        def tokenize(data: bytes) -> list[int]:
            return right(data.replace(self.drops, b""))

        return replace(table, tokenize=tokenize)


COMPANY = (
    builders.get("exact"),
    builders.get("unfixed"),
    _Twin("drops_e", b"e"),
    _Twin("drops_spaces", b" "),
)


@pytest.fixture(scope="module")
def auditor() -> Iterator[Auditor]:
    with ExitStack() as stack:
        yield Auditor.open("gpt2", stack, walks=2, strings=False)


@pytest.fixture(scope="module")
def alone(auditor: Auditor) -> dict[str, dict[str, list[Row]]]:
    """builder → its rows by table, when it is audited alone."""
    return {one.name: by_builder(auditor.audit([one]))[one.name] for one in COMPANY}


def by_builder(rows: dict[str, list[Row]]) -> dict[str, dict[str, list[Row]]]:
    found: dict[str, dict[str, list[Row]]] = {}
    for table, some in rows.items():
        for row in some:
            found.setdefault(str(row["builder"]), {}).setdefault(table, []).append(row)
    return found


@pytest.mark.slow
@given(st.data())
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_order_and_company_gives_the_same_rows(
    auditor: Auditor, alone: dict[str, dict[str, list[Row]]], data: st.DataObject
) -> None:
    """Two builders with equal entries and another tokenization shared the native tokenizer of the
    first one."""
    some = data.draw(st.lists(st.sampled_from(COMPANY), min_size=2, unique_by=lambda b: b.name))
    together = by_builder(auditor.audit(some))
    assert together == {one.name: alone[one.name] for one in some}


@pytest.mark.slow
def test_the_twins_differ(alone: dict[str, dict[str, list[Row]]]) -> None:
    hashes = {name: rows["tokenizers"][0]["table_hash"] for name, rows in alone.items()}
    assert hashes["exact"] == hashes["drops_e"] == hashes["drops_spaces"]
    wrong = {
        name: {str(row["probe"]) for row in rows["exactness"] if row["verdict"] == "inexact"}
        for name, rows in alone.items()
    }
    assert wrong["exact"] < wrong["drops_e"]
    assert wrong["drops_e"] != wrong["drops_spaces"]
