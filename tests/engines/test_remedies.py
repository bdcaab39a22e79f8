"""The remedies that the founding document rejects, each with the input on which it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.engines import builders
from pipeline.model.errors import BuilderRefused
from pipeline.vocab.sentencepiece.encoder import SpmEncoder
from support.spm_strings import native_scheme, strings
from support.vocabularies import Opened

Open = Callable[[str], Opened]


def back(opened: Opened, builder: str, data: bytes) -> bytes:
    """The rendered bytes of a builder's tokens for some bytes."""
    table = opened.table(builder)
    assert table.tokenize is not None
    return b"".join(opened.vocabulary.rendered[token] for token in table.tokenize(data))


@pytest.mark.parametrize("data", [b"The", b"a b", b"1\n2"])
def test_special_prefix_does_not_help(open_vocabulary: Open, data: bytes) -> None:
    """After a special token the space is added again: each founding probe gets a leading space."""
    assert back(open_vocabulary("llama_spm"), "special_prefix", data) == b" " + data


def test_special_prefix_needs_a_first_token(open_vocabulary: Open) -> None:
    material = open_vocabulary("llama_spm").material
    without = replace(material, vocabulary=replace(material.vocabulary, bos=-1))
    with pytest.raises(BuilderRefused, match="no BOS token"):
        builders.get("special_prefix").build(without)


def test_prefix_strip_looks_right_on_spm(open_vocabulary: Open) -> None:
    for data in (b"The", b"a b", b"1\n2"):
        assert back(open_vocabulary("llama_spm"), "prefix_strip", data) == data


@pytest.mark.parametrize("data", [b"\n", b"\n\nx", b"\n\n\n"])
def test_prefix_strip_loses_a_newline_where_pieces_span_it(
    open_vocabulary: Open, data: bytes
) -> None:
    """Gemma has tokens of several newlines: the added newline and the text become one token."""
    assert len(back(open_vocabulary("gemma4"), "prefix_strip", data)) < len(data)


@pytest.mark.parametrize("data", [b"<s>a", b"a</s>b", "a\u2581b".encode()])
@pytest.mark.parametrize("builder", ["special_prefix", "prefix_strip", "no_special_prefix"])
def test_none_of_them_keeps_specials_and_the_meta_symbol(
    open_vocabulary: Open, builder: str, data: bytes
) -> None:
    opened = open_vocabulary("llama_spm")
    assert back(opened, builder, data) != data
    assert back(opened, "exact", data) == data


def test_no_special_prefix_mends_plain_text_only(open_vocabulary: Open) -> None:
    opened = open_vocabulary("mistral_v3")
    assert back(opened, "no_special_prefix", b"a b") == b"a b"
    table = opened.table("no_special_prefix")
    assert table.tokenize is not None
    assert table.tokenize(b"a[INST]b") == [29476, 3, 1055], "the space after a special stays"


def test_no_special_prefix_changes_nearly_every_other_caller(open_vocabulary: Open) -> None:
    """Most texts get different ids for every caller with `add_special=false`."""
    opened = open_vocabulary("mistral_v1")
    vocabulary = opened.vocabulary
    texts = [text for text in strings(vocabulary, 300, seed=2) if text]
    now = SpmEncoder(vocabulary, native_scheme(vocabulary))
    then = opened.table("no_special_prefix").tokenize
    assert then is not None
    changed = sum(now.encode(text) != then(text) for text in texts)
    assert changed > 0.85 * len(texts)


def test_on_other_types_no_special_prefix_is_llama_tokenize(open_vocabulary: Open) -> None:
    opened = open_vocabulary("llama_bpe")
    assert opened.table("no_special_prefix").hash == opened.table("bytes_fixed").hash
