"""Builders are held to what they are: their tokenization is judged as the engine calls it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline.audit import round_trip
from pipeline.model.verdicts import Tokenization
from support.vocabularies import Opened

Open = Callable[[str], Opened]


@pytest.mark.parametrize("name", ["gpt2", "llama_bpe"])
def test_text_that_is_not_utf8_never_reaches_the_callback(open_vocabulary: Open, name: str) -> None:
    """141 texts were called inexact because the bare callback was judged with bytes that the engine
    never passes to it."""
    opened = open_vocabulary(name)
    tokenize = opened.engine.tokenizer(opened.table("fixed")).tokenize
    probes = [*(bytes([byte]) for byte in range(128, 256)), b"\xf0\x9f", b"a\xe2\x96 b"]
    found = round_trip.measure(opened.vocabulary, tokenize, None, lambda _: True, probes)
    assert {one.probe for one in found if one.verdict is not Tokenization.EXACT} == set()


def test_exact_leaves_out_what_the_vocabulary_cannot_spell(open_vocabulary: Open) -> None:
    """A byte without a token raised KeyError, and the audit of falcon had no table for `exact`."""
    opened = open_vocabulary("falcon")
    tokenize = opened.table("exact").tokenize
    assert tokenize is not None
    written = b"".join(opened.vocabulary.rendered[token] for token in tokenize(b"a\xffb \x03c"))
    assert written == b"ab c"
