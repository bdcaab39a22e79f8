"""The SentencePiece encoder: llama.cpp's ids under every scheme, and lossless encoding.

`scripts/check_spm.py` makes the same comparison with 100,000 strings per vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.engines import builders
from pipeline.vocab.prefix_schemes import SpmPrefixScheme
from pipeline.vocab.sentencepiece import merge
from pipeline.vocab.sentencepiece.encoder import SpmEncoder
from pipeline.vocab.token_types import Attr, VocabType
from support.damaged_ggufs import tiny_spm, without_token_type
from support.spm_strings import Compared, native_scheme, strings
from support.toy import made_of, opened_file
from support.vocabularies import Opened, vocabulary_file

Open = Callable[[str], Opened]
VOCABULARIES = ["llama_spm", "mistral_v1", "mistral_v3", "phi3", "baichuan"]

SIX = {
    "[INST]Write": ([3, 12786], [29473, 3, 6006], [3, 6006], [3, 6006], [3, 12786], [3, 6006]),
    "a[INST]b": (
        *([1032, 3, 1055], [1032, 3, 29494], [1032, 3, 29494]),
        *([1032, 3, 29494], [1032, 3, 1055], [29476, 3, 29494]),
    ),
    "[INST] Write": (
        *([3, 29473, 12786], [29473, 3, 12786], [3, 12786]),
        *([3, 12786], [3, 12786], [3, 12786]),
    ),
    " a[INST] b": (
        *([29473, 1032, 3, 29473, 1055], [29473, 1032, 3, 1055], [29473, 1032, 3, 1055]),
        *([1032, 3, 1055], [1032, 3, 1055], [1032, 3, 1055]),
    ),
    "[INST]": ([3], [29473, 3], [3], [3], [3], [3]),
}
"""Ids of real implementations of Mistral's v3 vocabulary, in the order of the schemes."""

ANY_TEXT = st.text().map(str.encode)
MARKED = st.text("a <s>[INST]\u2581é").map(str.encode)


@pytest.fixture(scope="module")
def compared(open_vocabulary: Open) -> Callable[[str], Compared]:
    @cache
    def made(name: str) -> Compared:
        return Compared(open_vocabulary(name).vocabulary)

    return made


@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_of_random_strings_are_llamas_and_every_byte_comes_back(
    open_vocabulary: Open, compared: Callable[[str], Compared], name: str
) -> None:
    vocab, one = open_vocabulary(name).model.vocab, compared(name)
    for i, data in enumerate(strings(one.vocabulary, 3000, seed=11)):
        parse = bool(i // 9 % 2)
        want = vocab.tokenize(data, add_special=False, parse_special=parse)
        assert one.encoders[parse].encode(data) == want, (parse, data)
        assert one.lost(data) is None, data


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    data=st.one_of(
        st.binary(), st.text().map(str.encode), st.text("a <s>[INST]\u2581é").map(str.encode)
    )
)
def test_any_bytes_come_back(compared: Callable[[str], Compared], data: bytes) -> None:
    for name in ("mistral_v1", "phi3"):
        assert compared(name).lost(data) is None


@settings(max_examples=80, deadline=None, derandomize=True)
@given(data=st.one_of(st.binary(), MARKED))
def test_any_bytes_have_llamas_ids(
    open_vocabulary: Open, compared: Callable[[str], Compared], data: bytes
) -> None:
    want = open_vocabulary("mistral_v3").model.vocab.tokenize(
        data, add_special=False, parse_special=True
    )
    assert compared("mistral_v3").encoders[True].encode(data) == want


@pytest.mark.parametrize("text", SIX)
def test_six_schemes_and_six_measured_behaviours(open_vocabulary: Open, text: str) -> None:
    made = SpmEncoder(open_vocabulary("mistral_v3").vocabulary, SpmPrefixScheme.NONE)
    got = tuple(made.with_scheme(scheme).encode(text.encode()) for scheme in SpmPrefixScheme)
    assert got == SIX[text]


@pytest.mark.parametrize("text", ["<s>x", "</s>Write", "<unk>Write"])
def test_no_space_is_left_before_the_vocabularys_own_specials(
    open_vocabulary: Open, text: str
) -> None:
    """transformers' slow tokenizer with `legacy=false` and splintr give the same ids."""
    once = SpmEncoder(open_vocabulary("mistral_v2").vocabulary, SpmPrefixScheme.ONCE)
    assert once.encode(text.encode()) in ([1, 29512], [2, 6006], [0, 6006])


def test_empty_text_is_empty_under_every_scheme(open_vocabulary: Open) -> None:
    made = SpmEncoder(open_vocabulary("mistral_v3").vocabulary, SpmPrefixScheme.NONE)
    assert [made.with_scheme(scheme).encode(b"") for scheme in SpmPrefixScheme] == [[]] * 6


@pytest.mark.parametrize(
    "data", [b"a" * 10**6, b" " * 10**6, b"ab" * 50_000, b"\xff" * 100_000, b"[INST]" * 20_000]
)
def test_long_dull_texts(
    open_vocabulary: Open, compared: Callable[[str], Compared], data: bytes
) -> None:
    """A million equal characters: merging pair by pair would take quadratic time."""
    one = compared("mistral_v3")
    assert one.lost(data) is None
    part = data[:30_000]  # llama.cpp's time grows with the square of the number of specials
    want = open_vocabulary("mistral_v3").model.vocab.tokenize(
        part, add_special=False, parse_special=True
    )
    assert one.encoders[True].encode(part) == want


def test_merging_in_pieces_is_merging_at_once(open_vocabulary: Open) -> None:
    """On texts whose letters can nearly all be merged: independence is hardest to prove there."""
    vocabulary = open_vocabulary("llama_spm").vocabulary
    texts = (text.decode().replace("\u2581", " ") for text in vocabulary.texts)
    scores = dict(zip(texts, vocabulary.scores.tolist(), strict=True))
    rng = random.Random(3)
    for alphabet in ("a", " ", "es", "ine", "ation", " t", "-=", "0"):
        for _ in range(6):
            text = "".join(rng.choices(alphabet, k=rng.randint(merge.SHORT + 1, 900)))
            whole = merge._over_list(text, scores)[0]  # pyright: ignore[reportPrivateUsage]
            assert merge.merge(text, scores) == whole, text
            by_heap = merge._over_heap(text, scores)[0]  # pyright: ignore[reportPrivateUsage]
            assert by_heap == whole, text


@pytest.mark.parametrize("alphabet", ["abcdefghij", "the and of", "(){};=, \n", "日本語中文 a"])
def test_cutting_changes_nothing(open_vocabulary: Open, alphabet: str) -> None:
    """Encoding the parts of a text gives the ids of the whole text."""
    encoder = SpmEncoder.lossless(open_vocabulary("baichuan").vocabulary)
    cuts_of, merged = encoder._cuts.cuts, encoder._merged  # pyright: ignore[reportPrivateUsage]
    rng = random.Random(alphabet)
    n_cuts = 0
    for _ in range(40):
        text = "".join(rng.choices(alphabet, k=80))
        cuts = cuts_of(text)
        n_cuts += len(cuts) - 2
        parts = [text[a:b] for a, b in pairwise(cuts)]
        ids = [token for part in parts for token in merged(part)]
        assert ids == [*merged(text)], text
    assert n_cuts > 40, "the texts are cut"


def test_control_token_spelt_out_is_text_to_the_lossless_encoder(open_vocabulary: Open) -> None:
    """The bridge calls `llama_tokenize` with `parse_special`, which gives the control token."""
    opened = open_vocabulary("mistral_v1")
    raw = opened.model.vocab.tokenize(b"<s>a</s>", add_special=False, parse_special=True)
    assert {1, 2} <= set(raw)
    ids = SpmEncoder.lossless(opened.vocabulary).encode(b"<s>a</s>")
    assert not {1, 2} & set(ids)
    assert b"".join(opened.vocabulary.rendered[token] for token in ids) == b"<s>a</s>"


def test_meta_symbol_and_broken_utf8_become_byte_tokens(open_vocabulary: Open) -> None:
    vocabulary = open_vocabulary("llama_spm").vocabulary
    ids = SpmEncoder.lossless(vocabulary).encode("a\u2581b".encode() + b"\xf0\x9f")
    kinds = [bool(int(vocabulary.attrs[token]) & Attr.BYTE) for token in ids]
    assert kinds == [False, True, True, True, False, True, True]


def test_white_space_after_phi3s_specials_is_kept(open_vocabulary: Open) -> None:
    """llama.cpp and our mode *llama's ids* remove it; the lossless mode keeps it."""
    opened = open_vocabulary("phi3")
    data = b"<|user|> \n\nx"
    native = SpmEncoder(opened.vocabulary, native_scheme(opened.vocabulary))
    ids = native.encode(data)
    assert ids == opened.model.vocab.tokenize(data, add_special=False, parse_special=True)
    assert b"".join(opened.vocabulary.true_bytes[token] for token in ids) == b"<|user|> x"


def test_vocabulary_without_byte_tokens(tmp_path: Path) -> None:
    """An unknown character crashes llama.cpp; our encoder raises, and `exact` stays greedy."""
    file = tiny_spm(tmp_path / "no_bytes.gguf", byte_tokens=False)
    with opened_file(file) as opened:
        native = SpmEncoder(opened.vocabulary, SpmPrefixScheme.NONE)
        want = opened.model.vocab.tokenize(b"he a", add_special=False, parse_special=True)
        assert native.encode(b"he a") == want
        with pytest.raises(LookupError, match="no token for a byte"):
            native.encode(b"1\n2")
        with pytest.raises(ValueError, match="no token for 1"):
            SpmEncoder.lossless(opened.vocabulary)
        table = builders.get("exact").build(opened.material)
        assert table.tokenize is None
        assert "no token for" in table.note


def test_file_without_token_types_is_not_taken_for_exact(tmp_path: Path) -> None:
    """Its byte tokens are plain text: llama.cpp renders a newline as `<0x0A>` (U-22)."""
    file = without_token_type(vocabulary_file("llama_spm"), tmp_path / "no_types.gguf")
    with opened_file(file) as opened, pytest.raises(ValueError, match="no token for 2"):
        SpmEncoder.lossless(opened.vocabulary)


@pytest.mark.parametrize("kind", [VocabType.BPE, VocabType.UGM, VocabType.WPM])
def test_other_vocabularies_are_refused(kind: VocabType) -> None:
    with pytest.raises(ValueError, match=f"type {kind}"):
        SpmEncoder(made_of([b"a"], ends=[0], kind=kind), SpmPrefixScheme.ONCE)
