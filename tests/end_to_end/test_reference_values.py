"""The exact figures of the founding document, on the real vocabularies.

They are from sections 4.3 (wrong tokens), 4.4 (bad tokens of the first mask) and 7.2 (the first
mask of a literal), each for every in-process builder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from pipeline.audit import token_table
from pipeline.engines.protocol import allowed_ids
from pipeline.model.verdicts import TokenizeMode
from support.vocabularies import Opened

Open = Callable[[str], Opened]

HELLO_EXACT = {107: b"h", 354: b"he", 3952: b"hel", 12199: b"hello", 14181: b"hell", 29882: b"h"}
HELLO_WPM = {2232: b"h", 5369: b"he", 16001: b"hel", 18223: b"hell"}


@pytest.mark.parametrize(
    ("name", "n_tokens", "n_wrong", "n_lost_leading_space"),
    [
        ("llama_spm", 32000, 16410, 16395),
        ("llama_bpe", 128256, 117, 117),
        ("gemma4", 262144, 88, 88),
        ("bert_bge", 30522, 5, 5),
        ("phi3", 32064, 16410, 16395),
        ("qwen2", 151936, 0, 0),
        ("qwen35", 151936, 0, 0),
    ],
)
def test_wrong_tokens_of_the_unfixed_bridge(
    open_vocabulary: Open, name: str, n_tokens: int, n_wrong: int, n_lost_leading_space: int
) -> None:
    opened = open_vocabulary(name)
    for builder, wrong_here, lost_here in (
        ("unfixed", n_wrong, n_lost_leading_space),
        ("attr_special", n_wrong, n_lost_leading_space),
        ("tokenize_fixed", n_wrong, n_lost_leading_space),
        ("bytes_fixed", 0, 0),
        ("fixed", 0, 0),
    ):
        table = opened.table(builder)
        wrong = list(token_table.wrong_tokens(opened.vocabulary, table))
        row = token_table.table_row(opened.vocabulary, table, wrong, TokenizeMode.EXACT)
        found = (row["n_tokens"], row["n_wrong"], row["n_lost_leading_space"])
        assert found == (n_tokens, wrong_here, lost_here), builder


@pytest.mark.parametrize(
    ("name", "unfixed", "fixed", "n_bad"),
    [
        ("llama_spm", 13106, 6970, 6136),
        ("llama_bpe", 15341, 15335, 6),
        ("gemma4", 24797, 24791, 6),
        ("bert_bge", 4543, 4541, 2),
        ("phi3", 13106, 6970, 6136),
        ("qwen35", 14650, 14650, 0),
    ],
)
def test_no_space_probe_lets_spaces_by_only_with_wrong_bytes(
    open_vocabulary: Open, name: str, unfixed: int, fixed: int, n_bad: int
) -> None:
    opened = open_vocabulary(name)
    for builder, expected in (
        ("unfixed", (unfixed, n_bad)),
        ("attr_special", (unfixed, n_bad)),
        ("tokenize_fixed", (unfixed, n_bad)),
        ("bytes_fixed", (fixed, 0)),
        ("fixed", (fixed, 0)),
    ):
        rows = token_table.mask_rows(
            opened.vocabulary, opened.table(builder), opened.engine, opened.judge
        )
        row = next(row for row in rows if row["probe"] == "no_space")
        assert (row["n_allowed"], row["n_bad"]) == expected, builder


@pytest.mark.parametrize(
    ("name", "tokenized", "fixed"),
    [
        ("llama_spm", {22172: b" hello"}, HELLO_EXACT),
        ("phi3", {22172: b" hello"}, HELLO_EXACT),
        ("bert_bge", {7592: b" hello"}, HELLO_WPM),
        ("llama_bpe", {15339: b"hello"}, {15339: b"hello"}),
        ("gemma4", {23391: b"hello"}, {23391: b"hello"}),
        ("qwen35", {14990: b"hello"}, {14990: b"hello"}),
    ],
)
def test_first_mask_of_hello_world(
    open_vocabulary: Open, name: str, tokenized: dict[int, bytes], fixed: dict[int, bytes]
) -> None:
    """The tokenization decides the mask. If only the bytes are fixed, it allows only ` hello`."""
    opened = open_vocabulary(name)
    assert _hello(opened, "unfixed") == tokenized
    assert _hello(opened, "bytes_fixed") == tokenized
    assert _hello(opened, "fixed") == fixed
    if name in {"llama_spm", "phi3"}:
        half = _hello(opened, "tokenize_fixed")
        assert half.items() > fixed.items()
        assert b" hello" in half.values(), "defect A still allows the space"


def test_two_single_space_tokens_of_llama_spm_become_nothing(open_vocabulary: Open) -> None:
    """Ids 35 (`<0x20>`) and 29871 (`▁`) are one space each; unfixed enters them as zero bytes."""
    opened = open_vocabulary("llama_spm")
    wrong = token_table.wrong_tokens(opened.vocabulary, opened.table("unfixed"))
    emptied = [cast(int, row["token"]) for row in wrong if row["damage"] == "emptied"]
    assert emptied == [35, 29871]
    assert [opened.vocabulary.true_bytes[token] for token in emptied] == [b" ", b" "]


def _hello(opened: Opened, builder: str) -> dict[int, bytes]:
    probe = token_table.MASK_PROBES[1]
    matcher = opened.engine.compile(opened.table(builder), "lark", probe.grammar)
    try:
        mask = matcher.mask()
        assert mask is not None
        ids = allowed_ids(mask, opened.vocabulary.n_tokens)
        return {int(i): opened.vocabulary.true_bytes[i] for i in ids}
    finally:
        matcher.close()
