"""Builders from released packages: their known faults."""

from __future__ import annotations

import importlib.metadata
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from pipeline.engines import builders
from pipeline.engines.libraries.package import Foreign
from pipeline.engines.settings import BuilderSettings
from pipeline.engines.table import TokenTable
from pipeline.model.errors import BuilderRefused
from pipeline.vocab import tokenizer_json
from support import laws
from support.laws import Subject
from support.vocabularies import Opened, vocabulary_file

Open = Callable[[str], Opened]
Build = Callable[[str, str], TokenTable]

WRONG: list[tuple[str, str, int | str]] = [
    ("llguidance_llamacpp", "llama_spm", 0),
    ("llguidance_llamacpp", "llama_bpe", 0),
    ("llguidance_llamacpp", "bert_bge", "ValueError: eos_token must be an int"),
    ("llguidance_hf", "llama_spm", 0),
    ("llguidance_hf", "llama_bpe", 0),
    ("llguidance_hf", "bert_bge", "ValueError: eos_token must be an int"),
    ("lmfe", "llama_spm", 128),
    ("lmfe", "llama_bpe", 1583),
    ("lmfe", "bert_bge", 30517),
    ("outlines", "llama_spm", 224),
    ("outlines", "bert_bge", "AttributeError: .* no attribute 'eos_token'"),
    ("outlines_core", "llama_spm", 0),
    ("outlines_core", "llama_bpe", 0),
    ("outlines_core", "bert_bge", 0),
    ("xgrammar", "llama_spm", 0),
    ("xgrammar_byte_fallback", "llama_bpe", 77773),
    ("xgrammar_byte_level", "llama_spm", 17559),
    ("xgrammar_auto", "llama_bpe", 0),
]
"""(builder, vocabulary, number of rendered tokens with wrong bytes, or a pattern of its error)."""

HIDDEN_AS_TEXT = "control_tokens_are_special"
BYTES = "claims_the_true_bytes"

BROKEN: dict[str, tuple[set[str], dict[str, int]]] = {
    "llguidance_llamacpp": ({HIDDEN_AS_TEXT}, {}),
    "llguidance_hf": (set(), {}),
    "lmfe": ({HIDDEN_AS_TEXT, BYTES}, {"other": 128, "emptied": 1}),
    "outlines": ({HIDDEN_AS_TEXT, BYTES}, {"emptied": 224}),
    "outlines_core": (set(), {}),
    "xgrammar": ({HIDDEN_AS_TEXT}, {}),
}
"""Builder → (the laws that it breaks on llama_spm, its wrong tokens by kind)."""


def installed(name: str) -> Foreign:
    """The builder; skips the test if its package is not installed."""
    builder = builders.get(name)
    assert isinstance(builder, Foreign)
    try:
        builder.made_by()
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"needs: pip install 'byte-exact[{builder.extra}]'")
    return builder


@pytest.fixture(scope="module")
def build(open_vocabulary: Open) -> Build:
    """The table of a builder on a vocabulary, made once."""

    @cache
    def built(name: str, vocabulary: str) -> TokenTable:
        return installed(name).build(open_vocabulary(vocabulary).material)

    return built


@pytest.mark.parametrize(("name", "vocabulary", "wanted"), WRONG)
def test_wrong_tokens(
    open_vocabulary: Open, build: Build, name: str, vocabulary: str, wanted: int | str
) -> None:
    if isinstance(wanted, str):
        with pytest.raises(BuilderRefused, match=f"{installed(name).package} .*{wanted}"):
            build(name, vocabulary)
        return
    table, truth = build(name, vocabulary), open_vocabulary(vocabulary).vocabulary
    rows = zip(table.claimed, truth.true_bytes, truth.hidden, strict=True)
    assert sum(claim != true and not hidden for claim, true, hidden in rows) == wanted
    package, version = table.made_by.split()
    assert version == importlib.metadata.version(package)


@pytest.mark.parametrize("name", BROKEN)
def test_laws(open_vocabulary: Open, build: Build, name: str) -> None:
    """The builder breaks exactly the named laws and has exactly these wrong tokens."""
    opened, (broken, damage) = open_vocabulary("llama_spm"), BROKEN[name]
    subject = Subject(installed(name), opened.material, opened.engine)
    subject.__dict__["table"] = build(name, "llama_spm")  # without this it would be built again
    assert laws.broken(subject) == broken
    pairs = zip(opened.vocabulary.true_bytes, subject.table.claimed, strict=True)
    assert Counter(kind for kind in (laws.damage(*pair) for pair in pairs) if kind) == damage


def test_tokens_of_one_text_lose_all_but_the_last(open_vocabulary: Open, build: Build) -> None:
    """U-05: `vocabulary[piece] = i` in outlines; outlines-core itself keeps every id."""
    true = open_vocabulary("llama_spm").vocabulary.true_bytes
    twins = [token for token, piece in enumerate(true) if piece == b"A"]
    assert len(twins) == 2
    kept = [token for token in twins if build("outlines", "llama_spm").claimed[token] == b"A"]
    assert kept == twins[-1:]
    core = build("outlines_core", "llama_spm").claimed
    assert [core[token] for token in twins] == [b"A", b"A"]


def test_half_characters_become_one_replacement_character(build: Build) -> None:
    """U-03, U-04: lm-format-enforcer enters U+FFFD for bytes that are not UTF-8 alone."""
    claimed = build("lmfe", "llama_spm").claimed
    assert {claimed[3 + byte] for byte in range(0x80, 0x100)} == {"\ufffd".encode()}


def test_a_library_tokenizes_across_the_process(open_vocabulary: Open, build: Build) -> None:
    table = build("llguidance_llamacpp", "llama_bpe")
    assert table.tokenize is not None
    true = open_vocabulary("llama_bpe").vocabulary.true_bytes
    for text in (b"", b"hello world", b"\xff\x00", "é中😀\n".encode()):
        assert b"".join(true[token] for token in table.tokenize(text)) == text


# --- tokenizer.json -------------------------------------------------------------------------------


@pytest.mark.parametrize("vocabulary", ["llama_spm", "llama_bpe"])
def test_a_derived_tokenizer_json_tokenizes_as_llama_cpp_does(
    open_vocabulary: Open, build: Build, vocabulary: str
) -> None:
    """Also for SentencePiece's merges by score; the caller adds the leading space."""
    opened = open_vocabulary(vocabulary)
    tokenize = build("llguidance_hf", vocabulary).tokenize
    assert tokenize is not None
    for text in ("Hello", "The quick brown fox jumps", "a b", "tokenization", "été", "x = [1]"):
        ids = opened.model.vocab.tokenize(text.encode(), add_special=False, parse_special=False)
        spelt = b"".join(opened.vocabulary.true_bytes[token] for token in ids)
        assert tokenize(spelt) == ids, text


def test_the_models_own_tokenizer_json_is_read(open_vocabulary: Open, tmp_path: Path) -> None:
    """A derived file with the text of one token changed: the table has the changed text."""
    material = open_vocabulary("llama_spm").material
    vocabulary = material.vocabulary
    text = tokenizer_json.derive(
        vocabulary_file("llama_spm"), vocabulary.texts, vocabulary.attrs.tolist()
    )
    document = json.loads(text)
    spelling = vocabulary.texts[5000].decode()
    document["model"]["vocab"]["no such piece"] = document["model"]["vocab"].pop(spelling)
    document["model"]["merges"] = []
    own = tmp_path / "tokenizer.json"
    own.write_text(json.dumps(document), "utf-8")
    outside = BuilderSettings(tokenizer_json=str(own))
    table = builders.get("llguidance_hf").build(replace(material, outside=outside))
    wrong = [i for i, true in enumerate(vocabulary.true_bytes) if table.claimed[i] != true]
    assert (wrong, table.claimed[5000]) == ([5000], b"no such piece")


def test_what_tokenizer_json_cannot_say_is_refused() -> None:
    with pytest.raises(BuilderRefused, match="kind 't5'"):
        tokenizer_json.derive(vocabulary_file("nomic_bert_moe"), [b"a"], [4])
    with pytest.raises(BuilderRefused, match="two tokens have the same text"):
        tokenizer_json.derive(vocabulary_file("llama_spm"), [b"a", b"a"], [4, 4])
