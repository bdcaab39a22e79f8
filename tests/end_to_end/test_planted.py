"""No planted builder is safe under a plain audit, and company changes no rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from pipeline.engines import builders
from pipeline.engines.table import Builder
from pipeline.model.verdicts import Standing
from pipeline.results.standing import standings
from pipeline.results.tables import parquet
from support.audits import Auditor
from support.planted_builders import PLANTED, SPECIALS

VOCABULARIES = ("mistral_v1", "qwen2")


@pytest.fixture(scope="module", params=VOCABULARIES)
def auditor(request: pytest.FixtureRequest) -> Iterator[Auditor]:
    with ExitStack() as stack:
        yield Auditor.open(request.param, stack)


def judged(auditor: Auditor, of: Sequence[Builder]) -> dict[str, tuple[str, str]]:
    """builder → its standing, and the reasons."""
    tables = {name: parquet.frame(name, rows) for name, rows in auditor.audit(of).items()}
    found = standings.of(tables, {"status": "complete"}).to_dicts()
    return {row["builder"]: (row["standing"], " ".join(row["reasons"])) for row in found}


@pytest.mark.slow
def test_no_planted_builder_is_safe(auditor: Auditor) -> None:
    found = judged(auditor, PLANTED)
    safe = [name for name, (standing, _) in found.items() if standing == Standing.SAFE]
    assert safe == []
    refused = {name for name, (word, _) in found.items() if word == Standing.UNPROVED}
    assert refused == {"raises", "one_id_short", "one_id_long", "claims_text"}
    assert {word for word, _ in found.values()} == {Standing.UNSAFE, Standing.UNPROVED}


@pytest.mark.slow
def test_the_right_builders_stand_as_their_faults_need(auditor: Auditor) -> None:
    found = judged(auditor, [builders.get("exact"), builders.get("fixed"), SPECIALS])
    assert found["exact"][0] == Standing.SAFE, found["exact"][1]
    spm = auditor.name == "mistral_v1"
    assert found["fixed"][0] == (Standing.SAFE if spm else Standing.LIMITED), found["fixed"][1]
    assert found[SPECIALS.name][0] == (Standing.UNSAFE if spm else Standing.LIMITED)
