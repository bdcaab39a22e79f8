"""Shared by the tests of the field cases.

Field cases are publicly reported faults, U-01 to U-25: each is reduced to a small example with its
verdict. Each number has one or a few tests. The docstring describes the fault and names the public
report. If the engine or the runtime does not behave as reported, the test says how it differs ("In
reality").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipeline.audit import round_trip, special_tokens, token_table
from pipeline.audit.round_trip import ProbeResult
from pipeline.engines.builders import bridge
from pipeline.engines.llguidance import Llguidance
from pipeline.grammars.checkers import Literal
from pipeline.vocab.vocabulary import Vocabulary
from support.command import QUICK, pipeline
from support.toy import (
    Bench,
    table_of,
)
from support.vocabularies import Opened

Open = Callable[[str], Opened]

REPLACEMENT = "\ufffd".encode()


@pytest.fixture(scope="module")
def engine() -> Iterator[Llguidance]:
    with closing(Llguidance()) as made:
        yield made


def wrong(vocabulary: Vocabulary, claimed: Sequence[bytes]) -> dict[int, str]:
    """The rows of the table `tokens` (TABLE_BYTES): id → kind of damage."""
    rows = token_table.wrong_tokens(vocabulary, table_of(vocabulary, claimed))
    return {int(str(row["token"])): str(row["damage"]) for row in rows}


def probed(
    opened: Opened, texts: Sequence[bytes], tokenize: Callable[[bytes], list[int]] | None = None
) -> dict[bytes, ProbeResult]:
    """The rows of the table `exactness`, by probe; uses `llama_tokenize` by default."""
    own = tokenize or bridge.raw_tokenize(opened.model.vocab)
    found = round_trip.measure(opened.vocabulary, own, None, lambda _: True, [*texts])
    return {one.probe: one for one in found}


def literal_check(text: str) -> Literal:
    """The output must be this text."""
    return Literal(text.encode())


def special_rows(bench: Bench) -> dict[int, dict[str, object]]:
    """The rows of `specials`, by id."""
    rows = special_tokens.rows(bench.vocabulary, bench.table, bench.engine, bench.judge)
    return {int(str(row["token"])): row for row in rows}


def through_text(claims: Sequence[bytes]) -> list[bytes]:
    """The bytes after decoding them to text and encoding them again."""
    return [claim.decode("utf-8", "replace").encode() for claim in claims]


def audited(folder: Path, *files: Path, code: int = 1) -> dict[str, dict[str, Any]]:
    """Run one real sweep over these files; returns the rows of `tokenizers` by file."""
    done = pipeline(
        folder,
        "audit",
        "-m",
        "tokenizer=path",
        f"tokenizer.path={','.join(map(str, files))}",
        "builder=[fixed]",
        *QUICK,
    )
    assert done.code == code, done.err
    return {row["tokenizer"]: row for row in done.table("tokenizers").iter_rows(named=True)}
