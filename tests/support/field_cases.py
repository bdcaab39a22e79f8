"""What the tests of the field cases share.

These are the faults that people met in public, U-01 to U-25: each made small, each with its
verdict. One test, or a few, for each number; its docstring tells the fault's story and names the
public report. Where the engine or the runtime does not do what the report says, the test says how
it differs ("In reality").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipeline.audit import round_trip, special_tokens, token_table
from pipeline.audit.round_trip import Probed
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
    """The rows of `tokens`: damage by id (TABLE_BYTES)."""
    rows = token_table.wrong_tokens(vocabulary, table_of(vocabulary, claimed))
    return {int(str(row["token"])): str(row["damage"]) for row in rows}


def probed(
    opened: Opened, texts: Sequence[bytes], tokenize: Callable[[bytes], list[int]] | None = None
) -> dict[bytes, Probed]:
    """The rows of `exactness`, by probe; `llama_tokenize` unless told otherwise."""
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
    """What is left of bytes that went through a string."""
    return [claim.decode("utf-8", "replace").encode() for claim in claims]


def audited(folder: Path, *files: Path, code: int = 1) -> dict[str, dict[str, Any]]:
    """The rows of `tokenizers` of one real sweep over these files, by file."""
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
