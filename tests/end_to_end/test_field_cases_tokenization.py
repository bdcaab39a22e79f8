"""Field cases B: tokenization and forced tokens."""

from __future__ import annotations

import json
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from pipeline.audit import round_trip
from pipeline.engines.builders import bridge
from pipeline.engines.llguidance import Llguidance
from pipeline.grammars.checkers import Json
from pipeline.model.verdicts import ByteChange, Cause, MaskVerdict, Tokenization, Verdict
from pipeline.vocab.files import gguf
from pipeline.vocab.token_types import META_SPACE, Attr
from support import damaged_ggufs as faults
from support import field_cases
from support.field_cases import Open, probed, through_text
from support.toy import (
    BYTES,
    Bench,
    bench_of,
    case_of,
    longest_first,
    made_of,
    opened_file,
    schema_case,
    table_of,
)
from support.vocabularies import vocabulary_file

engine = field_cases.engine


def no_space_prefix(out: Path) -> Path:
    """Llama's vocabulary with `add_space_prefix` false."""
    key = "tokenizer.ggml.add_space_prefix"
    entry = gguf.key_value(key, gguf.BOOL, b"\0")
    return faults.rewrite(vocabulary_file("llama_spm"), out, {key: entry})


GREETINGS = (b"Hello world!", b"hello world", b"The", b"a b", b"1\n2", b"\t\tx", "é 中 😀".encode())


@pytest.mark.parametrize("name", ["llama_spm", "phi3", "baichuan", "bert_bge"])
def test_u09_tokenizer_adds_a_space_in_front(open_vocabulary: Open, name: str) -> None:
    """llguidance #180; llama.cpp #8584, #7938: `Hello world!` comes back as ` Hello world!`."""
    found = probed(open_vocabulary(name), GREETINGS)
    assert {one.verdict for one in found.values()} == {Tokenization.INEXACT}
    assert found[b"hello world"].got == b" hello world"
    assert found[b"hello world"].what is ByteChange.PREFIX_ADDED


def test_u09_without_the_prefix_all_but_the_meta_symbol_is_exact(tmp_path: Path) -> None:
    """With `add_space_prefix` false, the same vocabulary preserves every text without U+2581."""
    with opened_file(no_space_prefix(tmp_path / "plain.gguf")) as opened:
        assert not opened.vocabulary.add_space_prefix
        texts = [text for text in round_trip.probes(opened.vocabulary, 0) if is_plain(text)]
        found = probed(opened, texts)
        bad = {text for text, one in found.items() if one.verdict is Tokenization.INEXACT}
        assert bad
        assert bad == {text for text in texts if META_SPACE in text}
        assert opened.table("fixed").tokenize_mode == "llama_tokenize"


def is_plain(text: bytes) -> bool:
    """Whether a text is UTF-8 and contains no `<`, so that it spells no special token."""
    return b"<" not in text and through_text([text]) == [text]


def test_u09_a_special_token_first_gives_the_space_to_the_text_after_it(
    open_vocabulary: Open,
) -> None:
    """`<s>text</s>` comes back as `<s> text</s>`; `<s>` and `</s>` are tokenized as special ids."""
    found = probed(open_vocabulary("llama_spm"), [b"<s>text</s>"])[b"<s>text</s>"]
    assert (found.ids[0], found.ids[-1], found.got) == (1, 2, b"<s> text</s>")
    assert (found.verdict, found.what) == (Tokenization.INEXACT, ByteChange.SPECIAL)


def test_u09_the_forced_space_is_refused(engine: Llguidance) -> None:
    """A vocabulary of five tokens: the mask allows only ` hello`, which is then refused.

    In reality the mask is *unsound* first: ` hello` is not in the grammar. The refusal of the
    report follows when the token is consumed. A runtime loses the constraint at the next step.
    """
    pieces = [b" hello", b" world", b"hello", b" ", b"</s>"]
    vocabulary = made_of(pieces, {4: Attr.CONTROL}, ends=[4])
    exact = longest_first(pieces[:4])
    table = table_of(vocabulary, tokenize=lambda data: exact(b" " + data) if data else [])
    bench = Bench(vocabulary, table, engine)
    literal = 'start: "hello world"'
    assert bench.allowed(literal) == [0]
    assert bench.state(literal).verdict is MaskVerdict.UNSOUND
    with closing(bench.compile(case_of(literal))) as matcher:
        assert not matcher.consume(0)
        assert matcher.error
    judged = bench.generate(literal)
    assert (judged.verdict, judged.cause, judged.culprit) == (
        Verdict.UNENFORCED,
        Cause.TOKENIZE,
        0,
    )
    assert Bench(vocabulary, table_of(vocabulary), engine).generate(literal).verdict is Verdict.OK


@pytest.mark.slow
def test_u10_unigram_drops_and_replaces_characters(open_vocabulary: Open) -> None:
    """llama.cpp #28862, sentencepiece #329: characters become UNK or others, newlines are removed.

    Every class is reported, not only the first. `fixed` is greedy here.

    In reality this vocabulary cannot write the enum of the report at all: it has no byte tokens and
    no spelling for either character. If the enum has one more member, only that can be written.
    """
    opened = open_vocabulary("nomic_bert_moe")
    wanted = {
        "🦙": ByteChange.UNKNOWN_TOKEN,
        "︰": ByteChange.NORMALISED,
        "ŉ": ByteChange.NORMALISED,
        "a\n\n\nb": ByteChange.SPACE_REMOVED,
    }
    found = probed(opened, [text.encode() for text in wanted])
    assert {one.verdict for one in found.values()} == {Tokenization.INEXACT}
    assert {text: found[text.encode()].what for text in wanted} == wanted
    assert opened.table("fixed").tokenize_mode == "greedy"
    bench = bench_of(opened, "fixed")
    for more, verdict in (([], Verdict.IMPOSSIBLE), (["a b"], Verdict.OK)):
        schema = {"enum": ["🦙.cpp", "︰", *more]}
        case = schema_case(json.dumps(schema, ensure_ascii=False), Json(schema))
        assert bench.state(case).verdict is MaskVerdict.EXACT
        assert bench.generate(case, drop=False).verdict is verdict


def test_u10_wordpiece_lower_cases(open_vocabulary: Open) -> None:
    """bert-bge: `Hello` comes back in lower case, and the class is `normalised`."""
    found = probed(open_vocabulary("bert_bge"), [b"Hello World"])[b"Hello World"]
    assert (found.got, found.what) == (b" hello world", ByteChange.NORMALISED)


@pytest.mark.parametrize(
    ("name", "builder", "bad"),
    [
        ("llama_spm", "unfixed", True),
        ("llama_spm", "bytes_fixed", True),
        ("llama_spm", "fixed", False),
        pytest.param("gemma4", "unfixed", True, marks=pytest.mark.slow),
        pytest.param("gemma4", "fixed", True, marks=pytest.mark.slow),
    ],
)
def test_u11_the_meta_symbol_as_real_text(
    open_vocabulary: Open, name: str, builder: str, bad: bool
) -> None:
    """LiteRT-LM #3510, a comment: a grammar with a real U+2581 gives a space.

    SentencePiece spells a space as U+2581, so its tokenizer cannot distinguish the two. The forced
    token is a space, and is refused. A greedy tokenization finds the three bytes. Gemma 4 passes
    the probes of the fix, so the wrong token is forced under `fixed` as well.
    """
    opened = open_vocabulary(name)
    text = "a▁b"
    found = probed(opened, [text.encode()])[text.encode()]
    assert (found.verdict, found.what) == (Tokenization.INEXACT, ByteChange.META_SYMBOL)
    bench = bench_of(opened, builder)
    case = case_of(f"start: /{text}/")
    outcomes = {bench.generate(case, seed).verdict for seed in range(3)}
    assert outcomes == {Verdict.UNENFORCED if bad else Verdict.OK}


@pytest.mark.slow
def test_u12_runs_of_white_space_are_exact_whatever_the_split(open_vocabulary: Open) -> None:
    """llama.cpp #8338, PR 21343; imp PR 661; llama-cpp-python #2362: runs are split differently.

    Whether the bytes are right and whether the ids are those of the reference are two questions.
    Another split is `non_canonical`; an empty piece would be an error.
    """
    opened = open_vocabulary("gemma4")
    texts = [b"\t\t\t\t\t\tx", b"a  b and    c", b"\n\n\n\n", b" " * 31, b" " * 6]
    found = probed(opened, texts)
    assert {one.verdict for one in found.values()} == {Tokenization.EXACT}
    assert len(found[b"\n\n\n\n"].ids) == len(found[b" " * 6].ids) == 1
    assert all(opened.vocabulary.true_bytes[id_] for one in found.values() for id_ in one.ids)
    raw = bridge.raw_tokenize(opened.model.vocab)

    def by_threes(data: bytes) -> list[int]:
        return [token for i in range(0, len(data), 3) for token in raw(data[i : i + 3])]

    other = round_trip.measure(opened.vocabulary, by_threes, raw, lambda _: True, [b"\t" * 6])
    assert [one.verdict for one in other] == [Tokenization.NON_CANONICAL]
    bench = bench_of(opened, "fixed")
    assert bench.state("start: /\\t{6}x/").verdict in {
        MaskVerdict.EXACT,
        MaskVerdict.INCOMPLETE_FORCED,
    }
    assert bench.generate("start: /\\t{6}x/").verdict is Verdict.OK


SPLIT_BY_PRE = (
    *("I'M HERE", "foo_bar(baz)", "hello\r\nworld", "x   =  1", "Hello world", "12345 6"),
    *("don't", "\n\n\nx", "日本語 text", " a", "e.g. A1b2"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("pre", "seen"), [(None, True), ("gpt-2", True), ("deepseek-llm", False)])
def test_u13_wrong_pre_tokenizer_shows_in_the_ids_alone(
    open_vocabulary: Open, tmp_path: Path, pre: str | None, seen: bool
) -> None:
    """ollama #4126, tinygrad #17659, BitNet PR 508: `tokenizer.ggml.pre` missing or wrong.

    The bytes stay exact, so no table or mask is wrong; but texts are split differently. The ids in
    the rows of `exactness` show the difference between two runs. An unknown name is refused
    (`test_u22_the_other_rows_of_faulty_metadata`).

    In reality the vocabulary's hash differs for some names (`seen`): the name also decides whether
    llama.cpp cleans up spaces. If that is the same, the hash is the same.
    """
    key = "tokenizer.ggml.pre"
    texts = [text.encode() for text in SPLIT_BY_PRE]
    whole = open_vocabulary("qwen2")
    right = probed(whole, texts)
    entry = pre and gguf.text(key, pre)
    file = faults.rewrite(vocabulary_file("qwen2"), tmp_path / "other.gguf", {key: entry or None})
    with opened_file(file) as opened:
        found = probed(opened, texts)
        assert {one.verdict for one in found.values()} == {Tokenization.EXACT}
        assert opened.table("fixed").claimed == whole.table("fixed").claimed
        assert any(found[text].ids != right[text].ids for text in texts)
        assert (opened.vocabulary.hash != whole.vocabulary.hash) is seen


TOWN = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "population": {"type": "integer", "minimum": 0, "maximum": 999},
    },
    "required": ["name", "population"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("flexible", [False, True])
def test_u14_forced_text_ends_where_no_token_spans_its_end(
    engine: Llguidance, flexible: bool
) -> None:
    """sglang #2025, #2045; mlc-llm PR 2551; xgrammar PR 776: forcing changes the text after it.

    Forced tokens must end at a place that no longer legal token spans. With and without forcing,
    every text is valid. No last forced token is the beginning of another legal token.
    """
    pieces = [*BYTES, b'":', b'": ', b'": "', b'":"', b'":"a', b'","', b'{"', b"name", b"pop"]
    pieces += [b"population", b'":1', b": ", b"</s>"]
    vocabulary = made_of(pieces, {len(pieces) - 1: Attr.CONTROL}, ends=[len(pieces) - 1])
    schema = TOWN | {"x-guidance": {"whitespace_flexible": flexible}}
    case = replace(schema_case(json.dumps(schema), Json(TOWN)), max_tokens=400)
    tokenize = longest_first(pieces[:-1])
    forcing = Bench(vocabulary, table_of(vocabulary, tokenize=tokenize), engine)
    free = Bench(vocabulary, table_of(vocabulary), engine)
    for seed in range(6):
        for bench in (forcing, free):
            judged = bench.generate(case, seed)
            jsonschema.validate(json.loads(judged.output), TOWN)
            assert flexible or judged.verdict is Verdict.OK
    lasts = spanned_ends(forcing, case)
    assert lasts, "nothing was forced"
    assert [spanned for _, spanned in lasts if spanned] == []


def spanned_ends(bench: Bench, case: Any) -> list[tuple[int, list[int]]]:
    """(last forced token, longer legal tokens that begin with it) of each forced run of 6 walks."""
    grammar, rendered = bench.languages(case).grammar, bench.vocabulary.rendered
    out: list[tuple[int, list[int]]] = []
    for seed in range(6):
        rng, text = random.Random(seed), b""
        with closing(bench.compile(case)) as matcher:
            while (mask := matcher.mask()) is not None:
                ids = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
                forced = [t for t in matcher.forced() if t not in bench.vocabulary.end_ids]
                if forced:
                    before = text + b"".join(rendered[token] for token in forced[:-1])
                    legal = bench.oracle.legal(grammar, before)
                    assert legal is not None
                    last = forced[-1]
                    longer: list[int] = np.flatnonzero(legal).tolist()
                    longer = [t for t in longer if rendered[t].startswith(rendered[last])]
                    out.append((last, [t for t in longer if rendered[t] != rendered[last]]))
                token = int(rng.choice(ids.tolist()))
                if token in bench.vocabulary.end_ids or not matcher.consume(token):
                    break
                text += rendered[token]
    return out
