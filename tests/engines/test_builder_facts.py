"""Builders are held to what they are: their tokenization is judged as the engine calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pipeline.audit import round_trip
from pipeline.engines import builders
from pipeline.engines.builders import bridge
from pipeline.engines.llguidance import Llguidance
from pipeline.engines.table import Builder, Material, TokenTable
from pipeline.model.verdicts import ByteChange, Tokenization
from pipeline.runs.worker import tables
from support import damaged_ggufs as faults
from support.command import QUICK, pipeline
from support.vocabularies import Opened, vocabulary_file

Open = Callable[[str], Opened]


def _survives(_: bytes) -> bool:
    return True


@pytest.mark.parametrize("name", ["gpt2", "llama_bpe"])
def test_text_that_is_not_utf8_never_reaches_the_callback(open_vocabulary: Open, name: str) -> None:
    """141 texts were called inexact because the bare callback was judged with bytes that the engine
    never passes to it."""
    opened = open_vocabulary(name)
    tokenize = opened.engine.tokenizer(opened.table("fixed")).tokenize
    probes = [*(bytes([byte]) for byte in range(128, 256)), b"\xf0\x9f", b"a\xe2\x96 b"]
    found = round_trip.measure(opened.vocabulary, tokenize, None, _survives, probes)
    assert {one.probe for one in found if one.verdict is not Tokenization.EXACT} == set()


def test_exact_leaves_out_what_the_vocabulary_cannot_spell(open_vocabulary: Open) -> None:
    """A byte without a token raised KeyError, and the audit of falcon had no table for `exact`."""
    opened = open_vocabulary("falcon")
    tokenize = opened.table("exact").tokenize
    assert tokenize is not None
    written = b"".join(opened.vocabulary.rendered[token] for token in tokenize(b"a\xffb \x03c"))
    assert written == b"ab c"


def test_a_tokenization_that_raises_is_kept_with_its_words(open_vocabulary: Open) -> None:
    """The exception was swallowed between Python and C, and the engine was blamed."""
    opened = open_vocabulary("gpt2")

    def tokenize(data: bytes) -> list[int]:
        if "é".encode() in data:
            raise ValueError("no accents here")
        return bridge.raw_tokenize(opened.model.vocab)(data)

    table = replace(opened.table("fixed"), tokenize=tokenize, tokenize_mode="raising")
    own = opened.engine.tokenizer(table).tokenize
    accented = "caf\u00e9".encode()
    [found] = round_trip.measure(opened.vocabulary, own, None, _survives, [accented])
    assert (found.verdict, found.what) == (Tokenization.THROWN, ByteChange.RAISED)
    assert found.reason.startswith("ValueError: no accents here (test_builder_facts.py, line ")
    [plain] = round_trip.measure(opened.vocabulary, own, None, _survives, [b"cafe"])
    assert plain.verdict is Tokenization.EXACT
    matcher = opened.engine.compile(table, "lark", 'start: "caf\u00e9 noir"')
    matcher.forced()
    assert matcher.raised is not None
    assert matcher.raised.startswith("ValueError: no accents here")
    matcher.close()


def test_an_id_out_of_range_does_not_reach_the_engine(open_vocabulary: Open) -> None:
    opened = open_vocabulary("gpt2")

    def tokenize(_: bytes) -> list[int]:
        return [1, 99_999]

    table = replace(opened.table("fixed"), tokenize=tokenize, tokenize_mode="far")
    own = opened.engine.tokenizer(table).tokenize
    [found] = round_trip.measure(opened.vocabulary, own, None, _survives, [b"ab"])
    assert found.what is ByteChange.RAISED
    assert found.reason == f"id 99999, of {opened.vocabulary.n_tokens} ids"


def test_a_tokenization_that_changes_from_call_to_call_is_inexact(open_vocabulary: Open) -> None:
    opened = open_vocabulary("gpt2")
    turns = iter(range(1_000))
    spelt = [opened.vocabulary.rendered.index(piece) for piece in (b"ab", b"a", b"b")]

    def tokenize(_: bytes) -> list[int]:
        return spelt[:1] if next(turns) % 2 else spelt[1:]

    table = replace(opened.table("fixed"), tokenize=tokenize, tokenize_mode="turning")
    own = opened.engine.tokenizer(table).tokenize
    [found] = round_trip.measure(opened.vocabulary, own, None, _survives, [b"ab"])
    assert (found.verdict, found.what) == (Tokenization.INEXACT, ByteChange.NOT_REPEATABLE)


@dataclass
class _Spoilt:
    """A builder whose table is spoilt."""

    name: str
    spoil: Callable[[TokenTable], TokenTable]
    version: int = 1

    def build(self, material: Material) -> TokenTable:
        return self.spoil(builders.get("fixed").build(material))


def _short(table: TokenTable) -> TokenTable:
    return replace(table, claimed=table.claimed[:-1], special=table.special[:-1])


def _one_mark_more(table: TokenTable) -> TokenTable:
    return replace(table, special=[*table.special, False])


def _text(table: TokenTable) -> TokenTable:
    claimed: list[object] = [*table.claimed[:-1], "text"]
    return replace(table, claimed=claimed)


def _far_end(table: TokenTable) -> TokenTable:
    return replace(table, eos=50257)


def _divided(table: TokenTable) -> TokenTable:
    return replace(table, eos=len(table.claimed) // 0)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_short, "the table has bytes for 50256 of 50257 ids"),
        (_one_mark_more, "the table has marks for 50258 of 50257 ids"),
        (_text, "the table has str instead of bytes for id 50256"),
        (_far_end, "the table's end id is 50257, of 50257 ids"),
        (
            _divided,
            "the builder raised ZeroDivisionError: integer division or modulo by zero "
            "(test_builder_facts.py, line ",
        ),
    ],
)
def test_a_builder_that_cannot_be_used_is_refused_with_its_fault(
    open_vocabulary: Open,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[TokenTable], TokenTable],
    why: str,
) -> None:
    """A table one id short was a crash, and a Python error the death of the native process."""
    opened = open_vocabulary("gpt2")
    get, spoilt = builders.get, _Spoilt("spoilt", spoil)

    def found(name: str) -> Builder:
        return spoilt if name == "spoilt" else get(name)

    monkeypatch.setattr(builders, "get", found)
    made = tables.build(["spoilt", "fixed"], opened.material, Llguidance())
    assert str(made.refused["spoilt"]).startswith(why)
    assert [*made.made] == ["fixed"]


def test_fixed_says_that_its_probe_throws(tmp_path: Path) -> None:
    """Without byte tokens `llama_tokenize` throws std::out_of_range on the newline of a probe."""
    file = faults.tiny_spm(tmp_path / "tiny.gguf", byte_tokens=False)
    done = pipeline(
        tmp_path, "audit", "tokenizer=path", f"tokenizer.path={file}", "builder=fixed", *QUICK
    )
    assert done.code == 0, done.err
    assert "llama_tokenize throws on the probe '1\\n2' of the fix" in done.out
    assert "a bridge that does not catch it dies" in done.out


def test_the_ordinary_token_on_which_the_runtime_stops_is_named(tmp_path: Path) -> None:
    """Without an eos id llama.cpp assumes 11, an ordinary token here; the table was called safe."""
    key = "tokenizer.ggml.eos_token_id"
    file = faults.rewrite(vocabulary_file("gpt2"), tmp_path / "no_eos.gguf", {key: None})
    done = pipeline(
        tmp_path, "audit", "tokenizer=path", f"tokenizer.path={file}", "builder=fixed", *QUICK
    )
    assert done.code == 0, done.err
    assert "fixed on no_eos: UNSAFE" in done.out
    assert "The runtime also stops on the ordinary token 11 ','" in done.out
