"""The faults that people met in public, U-01 to U-25: each made small, each with its verdict.

One test, or a few, for each number of the field cases; the docstring tells the fault's story and
names the public report. Where the engine or the runtime does not do what the report says, the
test says how it differs ("In reality").
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf_faults as faults
import jsonschema
import llguidance
import numpy as np
import pytest
from conftest import QUICK, Opened, pipeline, vocabulary_file
from toy import (
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

from pipeline import audit, exactness, gguf_file, specials
from pipeline.builders import TokenTable, bridge
from pipeline.constraint import Llguidance
from pipeline.exactness import Class, Exactness, Probed
from pipeline.masks import MaskVerdict
from pipeline.oracle import ByteGrammar
from pipeline.validate import Json, Literal
from pipeline.verdict import Cause, Verdict
from pipeline.vocabulary import META_SPACE, Attr, VocabType, Vocabulary

Open = Callable[[str], Opened]

REPLACEMENT = "\ufffd".encode()


@pytest.fixture(scope="module")
def engine() -> Iterator[Llguidance]:
    with closing(Llguidance()) as made:
        yield made


def wrong(vocabulary: Vocabulary, claimed: Sequence[bytes]) -> dict[int, str]:
    """The rows of `tokens`: damage by id (TABLE_BYTES)."""
    rows = audit.wrong_tokens(vocabulary, table_of(vocabulary, claimed))
    return {int(str(row["token"])): str(row["damage"]) for row in rows}


def probed(
    opened: Opened, texts: Sequence[bytes], tokenize: Callable[[bytes], list[int]] | None = None
) -> dict[bytes, Probed]:
    """The rows of `exactness`, by probe; `llama_tokenize` unless told otherwise."""
    own = tokenize or bridge.raw_tokenize(opened.model.vocab)
    found = exactness.measure(opened.vocabulary, own, None, lambda _: True, [*texts])
    return {one.probe: one for one in found}


def literal_check(text: str) -> Literal:
    """The output must be this text."""
    return Literal(text.encode())


def special_rows(bench: Bench) -> dict[int, dict[str, object]]:
    """The rows of `specials`, by id."""
    rows = specials.rows(bench.vocabulary, bench.table, bench.engine, bench.judge)
    return {int(str(row["token"])): row for row in rows}


def through_text(claims: Sequence[bytes]) -> list[bytes]:
    """What is left of bytes that went through a string."""
    return [claim.decode("utf-8", "replace").encode() for claim in claims]


# --- A. token table bytes -------------------------------------------------------------------------


def spelt_in_sentencepiece() -> Vocabulary:
    """256 byte tokens, `▁the`, `cat`, `▁` and `</s>`, as U-01 has them."""
    texts = [b"<0x%02X>" % byte for byte in range(256)]
    texts += ["▁the".encode(), b"cat", META_SPACE, b"</s>"]
    attrs = dict.fromkeys(range(256), Attr.BYTE) | {259: Attr.CONTROL}
    return made_of([*BYTES, b" the", b"cat", b" ", b"</s>"], attrs, ends=[259], texts=texts)


def test_u01_raw_sentencepiece_spelling_is_no_bytes(engine: Llguidance) -> None:
    """LiteRT-LM #3510: the table holds the six letters `<0x20>` and U+2581 in place of a space.

    Nothing in it is a space then, and text that needs one never comes. All 256 byte tokens and
    both tokens with U+2581 are wrong before anything is decoded.

    In reality the first mask depends on the tokenization: where it gives what it can (`cat`
    alone), the mask allows just that and consuming it is refused; greedily, the mask fails.
    """
    vocabulary = spelt_in_sentencepiece()
    assert wrong(vocabulary, vocabulary.texts) == dict.fromkeys([*range(257), 258], "other")
    greedy = Bench(vocabulary, table_of(vocabulary, vocabulary.texts), engine)
    assert greedy.state("start: /the cat/").verdict is MaskVerdict.EMPTY
    assert greedy.generate("start: /the cat/", drop=False).verdict is Verdict.STOPPED
    told = table_of(vocabulary, vocabulary.texts, tokenize=lambda _: [257])
    cat = Bench(vocabulary, told, engine)
    assert cat.allowed("start: /the cat/") == [257]
    assert cat.generate("start: /the cat/").verdict is Verdict.UNENFORCED
    mended = Bench(vocabulary, table_of(vocabulary), engine)
    assert mended.state("start: /the cat/").verdict is MaskVerdict.EXACT
    assert mended.generate("start: /the cat/").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("name", "n_wrong"),
    [
        ("llama_spm", 16410),
        ("phi3", 16410),
        ("baichuan", 14717),
        ("bert_bge", 5),
        pytest.param("nomic_bert_moe", 154629, marks=pytest.mark.slow),
    ],
)
def test_u02_detokenizing_one_id_loses_its_space(
    open_vocabulary: Open, name: str, n_wrong: int
) -> None:
    """llama.cpp's `common/llguidance.cpp`; tokenizers #1141, transformers #28776, litgpt PR 2326.

    Each id is decoded as if it were the first of a text, so ` techs` is entered as `techs`.
    """
    vocabulary = open_vocabulary(name).vocabulary
    assert len(wrong(vocabulary, open_vocabulary(name).table("unfixed").claimed)) == n_wrong


def test_u02_lost_spaces_corrupt_the_text_or_lose_the_constraint(open_vocabulary: Open) -> None:
    """Free letters come out with spaces in them, unnoticed; a literal is refused at its start.

    In reality `hello world` is first *unsound*: the one token allowed is ` hello`. That it is
    then refused shows one step later, as the bridge meets it.
    """
    bench = bench_of(open_vocabulary("llama_spm"), "unfixed")
    letters, literal = "start: /[a-z]{3,6}!/", 'start: "hello world"'
    spoilt = [bench.generate(letters, seed) for seed in range(12)]
    assert {one.verdict for one in spoilt} == {Verdict.SILENT_CORRUPTION}
    assert all(b" " in one.output for one in spoilt)
    lost = [bench.generate(literal, seed) for seed in range(12)]
    assert {one.verdict for one in lost} == {Verdict.UNENFORCED}
    assert bench.state(literal).verdict is MaskVerdict.UNSOUND
    mended = bench_of(open_vocabulary("llama_spm"), "fixed")
    for grammar in (letters, literal):
        assert mended.state(grammar).verdict is MaskVerdict.EXACT
        assert {mended.generate(grammar, seed).verdict for seed in range(12)} == {Verdict.OK}


def after_a_zero(opened: Opened) -> TokenTable:
    """lm-format-enforcer's way: decode `0` and the token, cut the `0` off, all of it as text."""
    vocab = opened.model.vocab
    zero = opened.vocabulary.rendered.index(b"0")
    head = vocab.detokenize([zero], special=False)
    texts = [
        vocab.detokenize([zero, token], special=False).removeprefix(head)
        for token in range(opened.vocabulary.n_tokens)
    ]
    return replace(opened.table("fixed"), claimed=through_text(texts))


def test_u03_bytes_of_a_token_depend_on_its_neighbours(open_vocabulary: Open) -> None:
    """llama-cpp-python PR 1375, #929, #1531; lm-format-enforcer #92: `{"` has two decodings.

    Alone, a token that begins with a space loses it; after BOS and after `0` it keeps it. The
    builder of lm-format-enforcer therefore decodes after `0`, which keeps every space, and then
    turns every token that is no UTF-8 into U+FFFD: 128 byte tokens of Llama's vocabulary.
    """
    opened = open_vocabulary("llama_spm")
    vocabulary, vocab = opened.vocabulary, opened.model.vocab
    spaced = vocabulary.true_bytes.index(b' {"')
    zero = vocabulary.true_bytes.index(b"0", 300)
    seen = {
        "alone": vocab.detokenize([spaced], special=True),
        "after BOS": vocab.detokenize([vocabulary.bos, spaced], special=True)[len(b"<s>") :],
        "after 0": vocab.detokenize([zero, spaced], special=True)[1:],
    }
    assert seen == {"alone": b'{"', "after BOS": b' {"', "after 0": b' {"'}
    table = after_a_zero(opened)
    found = [
        row
        for row in audit.wrong_tokens(vocabulary, table)
        if row["attribute"] in ("NORMAL", "BYTE")
    ]
    assert len(found) == 128
    assert {row["claimed"] for row in found} == {REPLACEMENT}


def test_u04_a_real_replacement_character_is_no_failed_half(
    engine: Llguidance, tmp_path: Path
) -> None:
    """outlines #820 and PR 892: a token of a space and half a character stops the build.

    `20 E2 96` is a true half, `20 EF BF BD` a real U+FFFD. Through text the half becomes the
    other, and only the half is wrong. As bytes both stay, in a table that `audit` can show.
    """
    half, real = b" \xe2\x96", b" " + REPLACEMENT
    spelling = {byte: char for char, byte in exactly_gpt2().items()}
    texts = ["".join(spelling[byte] for byte in data) for data in [*BYTES, half, real]]
    tokens = [*((text, faults.NORMAL) for text in [*texts, "ab"]), ("<|end|>", faults.CONTROL)]
    bare = faults.tiny_vocabulary(
        tmp_path / "bare.gguf", tokens, model="gpt2", merges=["a b"], pre="gpt-2"
    )
    changes = {faults.EOS: gguf_file.u32(faults.EOS, len(tokens) - 1)}
    file = faults.rewrite(bare, tmp_path / "half.gguf", changes)
    with opened_file(file) as opened:
        vocabulary, table = opened.vocabulary, opened.table("fixed")
        assert vocabulary.disagreements == ()
        assert table.claimed[256:258] == [half, real]
        text_only = wrong(vocabulary, through_text(table.claimed))
        assert text_only[256] == "other"
        assert 257 not in text_only
        for choice in ("skirt", "dress"):
            case = case_of("start: /(skirt|dress)/", tokens=choice.encode())
            judged = bench_of(opened, "fixed").generate(case)
            assert (judged.verdict, judged.output) == (Verdict.OK, choice.encode())


def exactly_gpt2() -> dict[str, int]:
    """The byte-level alphabet as huggingface's `bytes_to_unicode` writes it."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    shifted = {chr(256 + i): byte for i, byte in enumerate(others)}
    return {chr(byte): byte for byte in plain} | shifted


@pytest.mark.parametrize(
    ("name", "n_halves"),
    [
        ("llama_spm", 128),
        ("llama_bpe", 1352),
        pytest.param("qwen2", 1448, marks=pytest.mark.slow),
        pytest.param("command_r", 3084, marks=pytest.mark.slow),
    ],
)
def test_u04_tokens_that_are_no_utf_8(open_vocabulary: Open, name: str, n_halves: int) -> None:
    """Each of them is a wrong row under a builder that goes through text."""
    vocabulary = open_vocabulary(name).vocabulary
    assert len(wrong(vocabulary, through_text(vocabulary.true_bytes))) == n_halves


def last_of_each_text(claims: Sequence[bytes]) -> list[bytes]:
    """outlines' `vocabulary[piece] = i`: all ids of a text but the last have nothing."""
    last = {claim: token for token, claim in enumerate(claims)}
    return [claim if last[claim] == token else b"" for token, claim in enumerate(claims)]


def test_u05_several_ids_of_the_same_bytes_are_all_allowed(engine: Llguidance) -> None:
    """outlines #1830: a dict by text keeps one id of each; thousands become unreachable."""
    vocabulary = made_of([*BYTES, b"yes", b"yes", b"no", b"</s>"], {259: Attr.CONTROL}, ends=[259])
    case = "start: /(yes|no)/"
    whole = Bench(vocabulary, table_of(vocabulary), engine)
    assert whole.state(case).verdict is MaskVerdict.EXACT
    assert whole.allowed(case) == [ord("n"), ord("y"), 256, 257, 258]
    claims = last_of_each_text(vocabulary.true_bytes)
    assert wrong(vocabulary, claims) == {256: "emptied"}
    found = Bench(vocabulary, table_of(vocabulary, claims), engine).state(case)
    assert (found.verdict, found.ids, found.n_incomplete) == (MaskVerdict.INCOMPLETE, (256,), 1)


@pytest.mark.parametrize(
    ("name", "n_shared"),
    [
        ("llama_spm", 192),
        ("phi3", 192),
        pytest.param("gemma4", 220, marks=pytest.mark.slow),
        ("baichuan", 194),
        ("deepseek_llm", 22),
    ],
)
def test_u05_ids_that_share_their_bytes_in_real_vocabularies(
    open_vocabulary: Open, name: str, n_shared: int
) -> None:
    """Llama's `A` is id 29909, and also the byte token 68; a mask has to allow both."""
    vocabulary = open_vocabulary(name).vocabulary
    times = Counter(piece for piece in vocabulary.true_bytes if piece)
    assert sum(n for n in times.values() if n > 1) == n_shared
    if name == "llama_spm":
        bench = bench_of(open_vocabulary(name), "fixed")
        assert {68, 29909} <= {*bench.allowed("start: /(A|B)/")}


def toy_tekken() -> Vocabulary:
    """1000 specials, then the ranks `E2 80`, `E2 81`, `80 A6` and `"`: ids are ranks + 1000."""
    named = [b"<SPECIAL_%d>" % i for i in range(1000)]
    attrs = dict.fromkeys(range(1000), Attr.CONTROL)
    return made_of([*named, b"\xe2\x80", b"\xe2\x81", b"\x80\xa6", b'"', b"\xa6"], attrs, ends=[2])


def test_u06_byte_ranks_collapse_through_text(engine: Llguidance) -> None:
    """sglang PR 35215, keras-hub PR 2692: Tekken's ranks, keyed by text, run into each other.

    Three of them become U+FFFD, and a fourth two of it. A text that needs them has no token
    then: the mask fails, and a runtime that goes on without it has dropped the constraint.
    Without the offset of the specials, every id is another's.
    """
    vocabulary = toy_tekken()
    literal = 'start: "\\"…\\""'
    check = case_of(literal, literal_check('"…"'))
    ranks = vocabulary.true_bytes[1000:]
    text_only = through_text(vocabulary.true_bytes)
    assert wrong(vocabulary, text_only) == dict.fromkeys([1000, 1001, 1002, 1004], "other")
    assert text_only[1000] == text_only[1001] == text_only[1004] == REPLACEMENT
    assert len(wrong(vocabulary, [*ranks, *vocabulary.true_bytes[:1000]])) == vocabulary.n_tokens
    mended = Bench(vocabulary, table_of(vocabulary), engine)
    assert mended.generate(check).verdict is Verdict.OK
    assert mended.generate(check).output == '"…"'.encode()
    collapsed = Bench(vocabulary, table_of(vocabulary, text_only), engine)
    assert collapsed.state(check, [1003]).verdict is MaskVerdict.EMPTY
    assert collapsed.generate(check).verdict is Verdict.UNENFORCED
    assert collapsed.generate(check, drop=False).verdict is Verdict.STOPPED


def test_u07_rwkv_high_bytes_stay_apart(engine: Llguidance, tmp_path: Path) -> None:
    r"""vllm PR 46269, llama.cpp PR 8980: 128 byte tokens of RWKV share the text U+FFFD.

    The GGUF spells a token as Python writes bytes; an escape is undone once. `test_vocabulary`
    has the whole alphabet of a forged file; here it is masked.

    In reality the lost bytes are an *empty* mask, which the engine reports as its own failure:
    a runtime either stops or goes on unconstrained, and `dead_end` (no failure) is not met.
    """
    rows = [(b"\x80", r"\x80"), (b"\n", r"\n"), (b"'", r"\'"), (b" a", " a")]
    texts = [spelt for _, spelt in rows]
    texts += [repr(byte)[2:-1] for byte in BYTES if byte not in {b"\x80", b"\n", b"'"}]
    file = faults.tiny_vocabulary(
        tmp_path / "rwkv.gguf", [(text, faults.NORMAL) for text in texts], model="rwkv"
    )
    with opened_file(file) as opened:
        vocabulary = opened.vocabulary
        assert vocabulary.type is VocabType.RWKV
        assert vocabulary.true_bytes[:4] == [true for true, _ in rows]
        assert opened.table("fixed").claimed == vocabulary.true_bytes
        bench = bench_of(opened, "fixed")
        assert bench.state("start: /é/").verdict is MaskVerdict.EXACT
        claims = through_text(vocabulary.true_bytes)
        assert len(wrong(vocabulary, claims)) == 128
        text_only = Bench(vocabulary, table_of(vocabulary, claims), engine)
        assert text_only.state("start: /é/").verdict is MaskVerdict.EMPTY
        assert text_only.generate("start: /é/", drop=False).verdict is Verdict.STOPPED


WORDPIECE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁[1]", "[1]", "▁a", "b"]
"""As a GGUF spells `[PAD] [UNK] [CLS] [SEP] [1] ##[1] a ##b`: a word's start has the U+2581."""


def wordpiece(out: Path, tokens: Sequence[str], *, unknown: bool = True) -> Path:
    kinds = [faults.UNUSED, faults.UNKNOWN, faults.CONTROL, faults.CONTROL]
    kinds += [faults.NORMAL] * (len(tokens) - 4)
    bare = faults.tiny_vocabulary(out, [*zip(tokens, kinds, strict=True)], model="bert")
    key = "tokenizer.ggml.unknown_token_id"
    return faults.rewrite(bare, out, {key: gguf_file.u32(key, 1)} if unknown else {})


def test_u08_wordpiece_start_and_continuation_stay_different(tmp_path: Path) -> None:
    """llama.cpp PR 18500: with `##` cut off and nothing put in its place, two tokens are one."""
    with opened_file(wordpiece(tmp_path / "phantom.gguf", WORDPIECE)) as opened:
        assert opened.vocabulary.true_bytes[4:] == [b" [1]", b"[1]", b" a", b"b"]
        bench = bench_of(opened, "fixed")
        case = case_of('start: " a" "[1]"', literal_check(" a[1]"))
        assert bench.state(case).verdict is MaskVerdict.EXACT
        assert bench.state(case, [6]).verdict is MaskVerdict.EXACT
        assert bench.allowed(case, [6]) == [5]


def test_u08_duplicate_text_aborts_its_worker_and_no_other(tmp_path: Path) -> None:
    """Converted without the phantom space, `[1]` stands twice, and llama.cpp aborts on it."""
    bad = wordpiece(tmp_path / "stripped.gguf", [text.lstrip("▁") for text in WORDPIECE])
    good = wordpiece(tmp_path / "phantom.gguf", WORDPIECE)
    found = audited(tmp_path, bad, good)
    assert found["stripped"]["status"] == "crashed"
    assert "token_to_id" in str(found["stripped"]["reason"])
    assert found["phantom"]["status"] == "ok"


def test_u08_the_duplicate_text_is_named(tmp_path: Path) -> None:
    """The report at load that the case asks for: which text stands twice."""
    bad = wordpiece(tmp_path / "stripped.gguf", [text.lstrip("▁") for text in WORDPIECE])
    assert "[1]" in str(audited(tmp_path, bad)["stripped"]["reason"])


def test_u08_a_vocabulary_without_an_unknown_token_is_built(tmp_path: Path) -> None:
    """WordPiece without an unknown token gives the id -1 for what it cannot spell.

    Found on the way: a probe that comes back with an id of no token is inexact, and no crash.
    """
    with opened_file(wordpiece(tmp_path / "none.gguf", WORDPIECE, unknown=False)) as opened:
        assert opened.table("fixed").tokenize_mode == "greedy"


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


# --- B. tokenization and forced tokens ------------------------------------------------------------


def no_space_prefix(out: Path) -> Path:
    """Llama's vocabulary with `add_space_prefix` false."""
    key = "tokenizer.ggml.add_space_prefix"
    entry = gguf_file.key_value(key, gguf_file.BOOL, b"\0")
    return faults.rewrite(vocabulary_file("llama_spm"), out, {key: entry})


GREETINGS = (b"Hello world!", b"hello world", b"The", b"a b", b"1\n2", b"\t\tx", "é 中 😀".encode())


@pytest.mark.parametrize("name", ["llama_spm", "phi3", "baichuan", "bert_bge"])
def test_u09_tokenizer_adds_a_space_in_front(open_vocabulary: Open, name: str) -> None:
    """llguidance #180; llama.cpp #8584, #7938: `Hello world!` comes back as ` Hello world!`."""
    found = probed(open_vocabulary(name), GREETINGS)
    assert {one.verdict for one in found.values()} == {Exactness.INEXACT}
    assert found[b"hello world"].got == b" hello world"
    assert found[b"hello world"].what is Class.PREFIX_ADDED


def test_u09_without_the_prefix_all_but_the_meta_symbol_is_exact(tmp_path: Path) -> None:
    """With `add_space_prefix` false the same vocabulary gives everything back but U+2581."""
    with opened_file(no_space_prefix(tmp_path / "plain.gguf")) as opened:
        assert not opened.vocabulary.add_space_prefix
        texts = [text for text in exactness.probes(opened.vocabulary, 0) if is_plain(text)]
        found = probed(opened, texts)
        bad = {text for text, one in found.items() if one.verdict is Exactness.INEXACT}
        assert bad
        assert bad == {text for text in texts if META_SPACE in text}
        assert opened.table("fixed").tokenize_mode == "llama_tokenize"


def is_plain(text: bytes) -> bool:
    """Whether it is UTF-8, and spells no special token."""
    return b"<" not in text and through_text([text]) == [text]


def test_u09_a_special_token_first_gives_the_space_to_the_text_after_it(
    open_vocabulary: Open,
) -> None:
    """`<s>text</s>` comes back as `<s> text</s>`, and its specials as ids."""
    found = probed(open_vocabulary("llama_spm"), [b"<s>text</s>"])[b"<s>text</s>"]
    assert (found.ids[0], found.ids[-1], found.got) == (1, 2, b"<s> text</s>")
    assert (found.verdict, found.what) == (Exactness.INEXACT, Class.SPECIAL)


def test_u09_the_forced_space_is_refused(engine: Llguidance) -> None:
    """Five tokens: the mask is ` hello` alone, and then nothing fits.

    In reality the mask is *unsound* first (` hello` is not in the grammar), and the refusal
    that the report saw comes with it; a runtime loses the constraint at the next step.
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
    """llama.cpp #28862, sentencepiece #329: characters become UNK or others, newlines vanish.

    Every class is reported, not the first alone. `fixed` is greedy here.

    In reality the enum of the report is out of reach of this vocabulary altogether: it has no
    byte tokens and spells neither character. With one member more, only that one can be written.
    """
    opened = open_vocabulary("nomic_bert_moe")
    wanted = {
        "🦙": Class.UNKNOWN,
        "︰": Class.NORMALISED,
        "ŉ": Class.NORMALISED,
        "a\n\n\nb": Class.SPACE_REMOVED,
    }
    found = probed(opened, [text.encode() for text in wanted])
    assert {one.verdict for one in found.values()} == {Exactness.INEXACT}
    assert {text: found[text.encode()].what for text in wanted} == wanted
    assert opened.table("fixed").tokenize_mode == "greedy"
    bench = bench_of(opened, "fixed")
    for more, verdict in (([], Verdict.IMPOSSIBLE), (["a b"], Verdict.OK)):
        schema = {"enum": ["🦙.cpp", "︰", *more]}
        case = schema_case(json.dumps(schema, ensure_ascii=False), Json(schema))
        assert bench.state(case).verdict is MaskVerdict.EXACT
        assert bench.generate(case, drop=False).verdict is verdict


def test_u10_wordpiece_lower_cases(open_vocabulary: Open) -> None:
    """bert-bge: `Hello` comes back in small letters, as a class of its own."""
    found = probed(open_vocabulary("bert_bge"), [b"Hello World"])[b"Hello World"]
    assert (found.got, found.what) == (b" hello world", Class.NORMALISED)


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

    SentencePiece spells a space by U+2581, so its tokenizer cannot tell one from the other. The
    forced token is a space, and refused. Greedily the three bytes are found. Gemma 4 passes the
    probes of the fix, and so is forced wrongly under `fixed` as well.
    """
    opened = open_vocabulary(name)
    text = "a▁b"
    found = probed(opened, [text.encode()])[text.encode()]
    assert (found.verdict, found.what) == (Exactness.INEXACT, Class.META_SYMBOL)
    bench = bench_of(opened, builder)
    case = case_of(f"start: /{text}/")
    outcomes = {bench.generate(case, seed).verdict for seed in range(3)}
    assert outcomes == {Verdict.UNENFORCED if bad else Verdict.OK}


@pytest.mark.slow
def test_u12_runs_of_white_space_are_exact_whatever_the_split(open_vocabulary: Open) -> None:
    """llama.cpp #8338, PR 21343; imp PR 661; llama-cpp-python #2362: runs split otherwise.

    Whether the bytes are right and whether the ids are the reference's are two columns: another
    split is `non_canonical`, an empty piece would be an error.
    """
    opened = open_vocabulary("gemma4")
    texts = [b"\t\t\t\t\t\tx", b"a  b and    c", b"\n\n\n\n", b" " * 31, b" " * 6]
    found = probed(opened, texts)
    assert {one.verdict for one in found.values()} == {Exactness.EXACT}
    assert len(found[b"\n\n\n\n"].ids) == len(found[b" " * 6].ids) == 1
    assert all(opened.vocabulary.true_bytes[id_] for one in found.values() for id_ in one.ids)
    raw = bridge.raw_tokenize(opened.model.vocab)

    def by_threes(data: bytes) -> list[int]:
        return [token for i in range(0, len(data), 3) for token in raw(data[i : i + 3])]

    other = exactness.measure(opened.vocabulary, by_threes, raw, lambda _: True, [b"\t" * 6])
    assert [one.verdict for one in other] == [Exactness.NON_CANONICAL]
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

    The bytes stay exact, and so no table or mask is wrong; but texts are split otherwise. The
    ids of the rows of `exactness` are the fingerprint by which two runs can be told apart. An
    unknown name is refused (`test_u22_the_other_rows_of_faulty_metadata`).

    In reality the vocabulary's hash tells some apart (`seen`), because llama.cpp decides by the
    name, too, whether spaces are cleaned up; where that is the same, so is the hash.
    """
    key = "tokenizer.ggml.pre"
    texts = [text.encode() for text in SPLIT_BY_PRE]
    whole = open_vocabulary("qwen2")
    right = probed(whole, texts)
    entry = pre and gguf_file.text(key, pre)
    file = faults.rewrite(vocabulary_file("qwen2"), tmp_path / "other.gguf", {key: entry or None})
    with opened_file(file) as opened:
        found = probed(opened, texts)
        assert {one.verdict for one in found.values()} == {Exactness.EXACT}
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
    """sglang #2025, #2045; mlc-llm PR 2551; xgrammar PR 776: forcing changes what comes after.

    Forced tokens must end where no longer token, legal under the grammar, could have spanned the
    end. Walked with forcing and without, every text is valid; and no last forced token is the
    beginning of another legal one.
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
    """(last forced token, longer legal tokens that begin with it) of each forced run of a walk."""
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
                    longer = np.flatnonzero(legal).tolist()
                    longer = [t for t in longer if rendered[t].startswith(rendered[last])]
                    out.append((last, [t for t in longer if rendered[t] != rendered[last]]))
                token = int(rng.choice(ids.tolist()))
                if token in bench.vocabulary.end_ids or not matcher.consume(token):
                    break
                text += rendered[token]
    return out


# --- C. special tokens and stop tokens ------------------------------------------------------------


def thinking() -> Vocabulary:
    """Bytes, `<think>`, `</think>` and an end."""
    pieces = [*BYTES, b"<think>", b"</think>", b"</s>"]
    return made_of(pieces, dict.fromkeys((256, 257, 258), Attr.CONTROL), ends=[258])


def test_u15_literal_is_characters_and_a_bare_name_is_the_token(engine: Llguidance) -> None:
    """outlines #1771 and PR 1965: a literal `"<think>"` is forced as bytes, tokenized as the id."""
    vocabulary = thinking()
    bench = Bench(vocabulary, table_of(vocabulary), engine)
    literal = case_of('start: "<think>" /[a-z]+/', literal_check("<think>"))
    assert bench.state(literal).verdict is MaskVerdict.EXACT
    assert bench.allowed(literal) == [ord("<")]
    bare = case_of("start: <think> /[a-z]+/ </think>", literal_check(""))
    assert bench.allowed(bare) == [256]
    assert bench.state(bare).verdict is MaskVerdict.NO_ORACLE
    with closing(bench.compile(case_of("start: <nothere>", literal_check("")))) as matcher:
        assert matcher.error is not None
        assert "nothere" in matcher.error


def test_u15_a_bare_name_has_no_oracle_and_the_reason_says_why() -> None:
    """Over bytes there is no `<think>`; that is no fault of the grammar, which does compile."""
    grammar = ByteGrammar("%llguidance {}\nstart: <think> /[a-z]+/ </think>")
    assert grammar.no_oracle is not None
    assert "by id or name" in grammar.no_oracle


def test_u15_a_tokenizer_that_parses_specials_forces_the_id(
    engine: Llguidance, open_vocabulary: Open
) -> None:
    """The literal `<s>a</s>` is refused under `llama_tokenize`, and written in bytes without it.

    In reality the mask is already *unsound*: it allows what renders nothing.
    """
    opened = open_vocabulary("llama_spm")
    literal = 'start: "<s>a</s>"'
    bench = bench_of(opened, "bytes_fixed")
    assert bench.allowed(literal) == [1]
    assert bench.state(literal).verdict is MaskVerdict.UNSOUND
    judged = bench.generate(literal)
    assert (judged.verdict, judged.cause) == (Verdict.UNENFORCED, Cause.SPECIAL)
    assert bench_of(opened, "fixed").generate(literal).verdict is Verdict.OK


def marked_up(out: Path) -> Path:
    """SentencePiece with `\\n` and `<b>` user-defined, and a control token `<|x|>`."""
    tokens = [("<unk>", faults.UNKNOWN), ("<s>", faults.CONTROL), ("</s>", faults.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", faults.BYTE) for byte in range(256)]
    tokens += [("\n", faults.USER_DEFINED), ("<b>", faults.USER_DEFINED)]
    tokens += [("<|x|>", faults.CONTROL), ("<|channel|>", faults.USER_DEFINED)]
    tokens += [("▁", faults.NORMAL), ('"', faults.NORMAL)]
    return faults.tiny_vocabulary(out, tokens, add_space_prefix=False)


NEWLINE, BOLD, CONTROL, CHANNEL = 259, 260, 261, 262


def test_u16_added_tokens_that_are_not_special_stay_text(tmp_path: Path) -> None:
    """llguidance #147, #361, PR 202: `\\n` and `<b>` are added tokens, and taken for special ones.

    `attr_special` overrides the file's USER_DEFINED; `fixed` honours what the runtime renders.
    """
    with opened_file(marked_up(tmp_path / "added.gguf")) as opened:
        for builder, lost in (("fixed", False), ("attr_special", True)):
            bench = bench_of(opened, builder)
            rows = special_rows(bench)
            for token in (NEWLINE, BOLD):
                row = rows[token]
                assert (row["attribute"], row["marked_special"]) == ("USER_DEFINED", lost)
                assert row["verdict"] == ("text_lost" if lost else "ok")
            for case, before, token in (
                ("start: /a\\nb/", b"a", NEWLINE),
                ("start: /(<b>|x)a/", b"", BOLD),
            ):
                taken = [3 + byte for byte in before]
                found = table_without_tokenization(bench).state(case, taken)
                if lost:
                    assert (found.verdict, found.ids) == (MaskVerdict.INCOMPLETE, (token,))
                else:
                    assert found.verdict is MaskVerdict.EXACT


def table_without_tokenization(bench: Bench) -> Bench:
    """The same claims, greedily: so that nothing is forced."""
    table = replace(bench.table, tokenize=None, tokenize_mode="greedy")
    return Bench(bench.vocabulary, table, bench.engine)


def test_u17_every_token_that_is_not_plain_is_asked_inside_a_json_string(tmp_path: Path) -> None:
    """llama.cpp PR 15837, #17607; guidance PR 1137; omlx #1087: markers inside JSON strings.

    In reality a marker typed USER_DEFINED, as gpt-oss has them, *is* text to llama.cpp, which
    renders it; the table therefore says that it may stand in a string, and that this is right.
    Its column `in_json_string` is the answer that the report asks for; `attr_special`, made for
    it, keeps the marker out, and loses text by it.
    """
    with opened_file(marked_up(tmp_path / "marked.gguf")) as opened:
        fixed, strict = (special_rows(bench_of(opened, b)) for b in ("fixed", "attr_special"))
        assert fixed[CHANNEL]["in_json_string"] is True
        assert strict[CHANNEL]["in_json_string"] is False
        assert strict[CHANNEL]["verdict"] == "text_lost"
        for rows in (fixed, strict):
            hidden = [row for row in rows.values() if row["attribute"] in ("CONTROL", "UNKNOWN")]
            assert len(hidden) == 4
            assert not any(row["in_json_string"] for row in hidden)
            assert [row["token"] for row in hidden if row["in_free_text"]] == [2], "the end alone"


def test_u17_a_forgotten_marker_lets_a_control_token_in(engine: Llguidance) -> None:
    """`<|im_end|>` unmarked may stand in a JSON string and in an enum; marked, in neither."""
    pieces = [*BYTES, b"<|im_end|>", b"<|x|>", b"</s>"]
    attrs = dict.fromkeys((256, 257, 258), Attr.CONTROL)
    vocabulary = made_of(pieces, attrs, ends=[258, 256])
    forgot = Bench(vocabulary, table_of(vocabulary, special=[258]), engine)
    rows = special_rows(forgot)
    assert rows[256]["verdict"] == "end_allowed_in_string"
    assert rows[257]["verdict"] == "allowed_but_hidden"
    enum = "start: /(<\\|x\\|>|no)/"
    assert 257 in forgot.allowed(enum)
    assert forgot.state(enum).verdict is MaskVerdict.UNSOUND
    marked = Bench(vocabulary, table_of(vocabulary), engine)
    assert {row["verdict"] for row in special_rows(marked).values()} == {"ok"}
    assert marked.state(enum).verdict is MaskVerdict.EXACT


def two_ends(second: Attr) -> Vocabulary:
    """Bytes, `</s>`, which the builder knows, and `<|im_end|>`, on which the runtime stops too."""
    pieces = [*BYTES, b"</s>", b"<|im_end|>"]
    return made_of(pieces, {256: Attr.CONTROL, 257: second}, ends=[256, 257], eos=256)


def test_u18_a_second_stop_id_cuts_the_text(engine: Llguidance) -> None:
    """vllm #52146, PR 52153; coreai-models PR 117: the runtime stops on an id unknown as a stop.

    `test_every_stop_id_is_kept_not_only_the_builders` holds the real sets of several vocabularies
    against the one id that a builder names.
    """
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    begun = [*b'{"a":"x']
    case = schema_case(json.dumps(schema), Json(schema), begun)
    vocabulary = two_ends(Attr.CONTROL)
    unmarked = Bench(vocabulary, table_of(vocabulary, special=[256]), engine)
    found = unmarked.state(case, begun)
    assert (found.verdict, found.ids) == (MaskVerdict.STOP_TOO_EARLY, (257,))
    cut = unmarked.generate(replace(case, tokens=(*begun, 257)))
    assert (cut.verdict, cut.cause, cut.output) == (
        Verdict.EARLY_STOP,
        Cause.SPECIAL,
        b'{"a":"x',
    )
    marked = Bench(vocabulary, table_of(vocabulary), engine)
    assert 257 not in marked.allowed(case, begun)
    assert marked.state(case, begun).verdict is MaskVerdict.EXACT


def test_u18_a_builder_without_the_end_never_stops(engine: Llguidance) -> None:
    """The other side: no id that ends the text is allowed where it is complete."""
    vocabulary = two_ends(Attr.CONTROL)
    endless = Bench(vocabulary, replace(table_of(vocabulary), eos=-1), engine)
    assert endless.state('start: "a"', [ord("a")]).verdict is MaskVerdict.STOP_MISSING
    assert endless.generate('start: "a"').verdict is Verdict.NO_STOP


def test_u19_the_end_alone_or_in_a_list(engine: Llguidance) -> None:
    """llguidance #239: `[a, EOS]` at once worked, one by one did not.

    In reality it is so still, for a text that nothing can follow: after `a` the matcher has
    stopped by itself, and the end given alone is an error, though the mask allows it and the list
    is taken. Counted by `try_consume_tokens`, both are one token. Where the text could go on
    (`a+`) every split is the same. The pipeline takes a refused end for no loss: the cell is ok.
    """
    tokenizer = llguidance.LLTokenizer("byte")
    a, end = ord("a"), tokenizer.eos_token

    def fails(grammar: str, *split: list[int]) -> bool:
        matcher = llguidance.LLMatcher(
            tokenizer, f"%llguidance {{}}\nstart: {grammar}", log_level=0
        )
        for ids in split:
            matcher.consume_tokens(ids)
        assert matcher.is_stopped()
        return matcher.is_error()

    assert not fails('"a"', [a, end])
    assert fails('"a"', [a], [end])
    assert not fails("/a+/", [a, end])
    assert not fails("/a+/", [a], [end])
    for ids in ([a, end], [a]):
        matcher = llguidance.LLMatcher(tokenizer, '%llguidance {}\nstart: "a"', log_level=0)
        assert matcher.try_consume_tokens(ids) == 1
    vocabulary = made_of([*BYTES, b"</s>"], {256: Attr.CONTROL}, ends=[256])
    bench = Bench(vocabulary, table_of(vocabulary), engine)
    for grammar in ('start: "a"', "start: /a+/"):
        assert 256 in bench.allowed(grammar, [a])
        assert bench.state(grammar, [a]).verdict is MaskVerdict.EXACT
        assert bench.generate(replace(case_of(grammar), tokens=(a, 256))).verdict is Verdict.OK


def test_u20_a_reserved_token_costs_its_own_request_alone(engine: Llguidance) -> None:
    """llama.cpp #11591, #13341, #13690, #18173, #12597: an id outside the grammar ends the server.

    An earlier sampler leaves `[reserved]` alone; it is taken, and the grammar has no state.

    In reality this cannot be made here: an allowed token is taken even where every logit of the
    mask is gone. Handed to the engine all the same, the id is refused with words and no crash.
    """
    pieces = [b"{", b"[reserved]", b"<unused32>", b"</s>"]
    attrs = {1: Attr.CONTROL, 2: Attr.UNUSED, 3: Attr.CONTROL}
    vocabulary = made_of(pieces, attrs, ends=[3])
    bench = Bench(vocabulary, table_of(vocabulary, special=[1, 2, 3]), engine)
    literal = 'start: "{"'
    assert bench.state(literal).verdict is MaskVerdict.EXACT
    assert bench.generate(literal, never=(0, 2, 3)).verdict is Verdict.OK
    for token in (1, 2):
        with closing(bench.compile(case_of(literal))) as matcher:
            assert not matcher.consume(token)
            assert matcher.error
    assert [special_rows(bench)[token]["attribute"] for token in (1, 2)] == ["CONTROL", "UNUSED"]
    assert bench.generate(literal).verdict is Verdict.OK, "the process lives"


def test_u20_no_candidate_left_is_an_outcome(engine: Llguidance) -> None:
    """A vocabulary that cannot write `{` is `impossible`; a table that lost it, stopped."""
    vocabulary = made_of(
        [b"{", b"[reserved]", b"</s>"], {1: Attr.CONTROL, 2: Attr.CONTROL}, ends=[2]
    )
    lost = Bench(vocabulary, table_of(vocabulary, [b"", b"[reserved]", b"</s>"]), engine)
    literal = 'start: "{"'
    found = lost.state(literal)
    assert (found.verdict, found.ids) == (MaskVerdict.EMPTY, (0,))
    assert lost.generate(literal, drop=False).verdict is Verdict.STOPPED
    bare = made_of([b"}", *vocabulary.true_bytes[1:]], {1: Attr.CONTROL, 2: Attr.CONTROL}, ends=[2])
    nothing = Bench(bare, table_of(bare), engine)
    assert nothing.generate(literal).verdict is Verdict.IMPOSSIBLE


# --- D. masks -------------------------------------------------------------------------------------


def test_u21_only_the_canonical_split_is_incomplete_by_design(engine: Llguidance) -> None:
    """guidance #1352: of `test` only the longest token is allowed. Forced, and no violation."""
    pieces = [b"t", b"te", b"tes", b"test", b"t", b"e", b"s", b"</s>"]
    vocabulary = made_of(pieces, {7: Attr.CONTROL}, ends=[7])
    tokenize = longest_first(pieces[:-1])
    forced = Bench(vocabulary, table_of(vocabulary, tokenize=tokenize), engine)
    found = forced.state("start: /test/")
    assert (found.verdict, found.ids) == (MaskVerdict.INCOMPLETE_FORCED, (3,))
    assert (found.n_incomplete, found.n_incomplete_forced) == (0, 4)
    greedy = Bench(vocabulary, table_of(vocabulary), engine)
    assert greedy.state("start: /test/").verdict is MaskVerdict.EXACT
    assert greedy.allowed("start: /test/") == [0, 1, 2, 3, 4]


def test_u21_two_equal_ids_of_a_forced_text(engine: Llguidance) -> None:
    """Fixed `yes`: one of two equal ids is allowed; with a choice, all that begin it are."""
    pieces = [*BYTES, b"yes", b"yes", b"no", b"</s>"]
    vocabulary = made_of(pieces, {259: Attr.CONTROL}, ends=[259])
    table = table_of(vocabulary, tokenize=longest_first(pieces[:-1]))
    bench = Bench(vocabulary, table, engine)
    assert bench.allowed("start: /yes/") == [256]
    assert bench.state("start: /yes/").verdict is MaskVerdict.INCOMPLETE_FORCED
    assert len(bench.allowed("start: /(yes|no)/")) == 5
    assert bench.state("start: /(yes|no)/").verdict is MaskVerdict.EXACT


# U-22, as far as other tests have it: merges removed, scores too short, cut in half and wrong
# magic are refused (test_supervise.test_refused_file_is_a_message_and_no_death); duplicate token
# text (test_crash_becomes_a_row_and_the_sweep_goes_on); token types removed, an end id that is
# none, an empty token text (test_silent_damage_loads_and_shows_in_the_rows, and
# test_vocabulary.test_silent_damage_is_in_the_true_bytes).


def test_u22_the_other_rows_of_faulty_metadata(tmp_path: Path) -> None:
    """ollama #10930, #7038; unsloth #1947, #1062; 1bit-MONSTER #1606; llama.cpp #3732 and others.

    One sweep over the faults: each has its own row and the sound file its own.

    In reality removed scores leave no trace but the vocabulary's hash: every token reads the
    same, and only the tokenization, which goes by the scores, is another.
    """
    spm, bpe = vocabulary_file("llama_spm"), vocabulary_file("gpt2")
    pre, types = "tokenizer.ggml.pre", faults.TYPES
    cut = tmp_path / "cut.gguf"
    whole = faults.rewrite(spm, tmp_path / "whole.gguf", {})
    cut.write_bytes(whole.read_bytes()[:-1])
    made = [
        faults.rewrite(bpe, tmp_path / "pre.gguf", {pre: gguf_file.text(pre, "no-such-pre")}),
        faults.rewrite(spm, tmp_path / "types.gguf", {types: short_types(types)}),
        cut,
        faults.rewrite(spm, tmp_path / "scores.gguf", {faults.SCORES: None}),
        whole,
    ]
    found = audited(tmp_path, *made, code=2)
    status = {name: row["status"] for name, row in found.items()}
    assert status == {
        "pre": "load_refused",
        "types": "load_refused",
        "cut": "load_refused",
        "scores": "ok",
        "whole": "ok",
    }
    assert found["scores"]["vocab_hash"] != found["whole"]["vocab_hash"]
    assert found["scores"]["n_wrong"] == 0


def short_types(key: str) -> bytes:
    """Ten types for all tokens."""
    values = np.ones(10, np.int32).tobytes()
    head = gguf_file.I32.to_bytes(4, "little") + (10).to_bytes(8, "little")
    return gguf_file.key_value(key, gguf_file.ARRAY, head + values)


def test_u22_wrong_model_key_crashes_at_the_first_tokenization(tmp_path: Path) -> None:
    """A byte-level vocabulary under SentencePiece's name loads, and aborts when it must tokenize.

    In reality an audit under `fixed` survives it: what may die is tried in a child. Generation
    has a prompt to tokenize, and its worker dies of it; the run goes on.
    """
    model = "tokenizer.ggml.model"
    changes = {model: gguf_file.text(model, "llama")}
    bad = faults.rewrite(vocabulary_file("gpt2"), tmp_path / "model.gguf", changes)
    done = pipeline(
        tmp_path,
        "run",
        "tokenizer=path",
        f"tokenizer.path={bad}",
        "builder=[fixed]",
        "grammar=[forced_literal]",
        "grammar.limit=1",
        "stages=[generate]",
    )
    assert done.code == 1, done.err
    assert done.table("cells")["verdict"].to_list() == ["crashed"]


@pytest.mark.parametrize("n_vocab", [320, 259])
def test_u23_padding_ids_are_never_allowed(engine: Llguidance, n_vocab: int) -> None:
    """mlc-llm PR 2651, xgrammar PR 11, transformers-CFG PR 126: ids beyond the last token.

    A mask has ceil(n_vocab / 32) words; no padding id is in it. A builder that gives padding a
    name as text lets it in, and that is unsound.
    """
    pieces = [*BYTES, b"<unk>", b"</s>"]
    padded = [*pieces, *[b""] * (n_vocab - len(pieces))]
    attrs = {256: Attr.UNKNOWN, 257: Attr.CONTROL} | dict.fromkeys(range(258, n_vocab), Attr.UNUSED)
    vocabulary = made_of(padded, attrs, ends=[257])
    bench = Bench(vocabulary, table_of(vocabulary), engine)
    anything = "start: /(.|\\n)*/"
    with closing(bench.compile(case_of(anything))) as matcher:
        mask = matcher.mask()
        assert mask is not None
        assert len(mask) == -(-n_vocab // 32)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        assert not bits[258:].any()
    assert bench.state(anything).verdict is MaskVerdict.EXACT
    assert not [row for row in special_rows(bench).values() if row["verdict"] != "ok"]
    named = [piece or b"[PAD%d]" % token for token, piece in enumerate(padded)]
    spelt = Bench(vocabulary, table_of(vocabulary, named), engine)
    found = spelt.state(anything)
    assert (found.verdict, found.n_unsound) == (MaskVerdict.UNSOUND, n_vocab - 258)
    assert found.ids[0] == 258


def test_u23_a_table_shorter_than_the_vocabulary(engine: Llguidance) -> None:
    """A wrapper that ignores `n_vocab` gives a mask of 36 bytes where 40 are needed.

    The words of a mask are counted before it is used, by the table's own length; that the table
    has an entry for each id is a law (`laws.one_entry_per_id`).
    """
    vocabulary = made_of([*BYTES, b"<unk>", b"</s>", *[b""] * 62], {257: Attr.CONTROL}, ends=[257])
    short = TokenTable(vocabulary.true_bytes[:258], [False] * 258, 257, None, "greedy")
    with closing(engine.compile(short, "lark", "%llguidance {}\nstart: /(.|\\n)*/")) as matcher:
        mask = matcher.mask()
    assert mask is not None
    assert mask.nbytes == 36
    assert -(-vocabulary.n_tokens // 32) * 4 == 40
    with pytest.raises(ValueError, match="shorter"):
        [*audit.wrong_tokens(vocabulary, short)]


def test_u23_phi3_has_empty_pieces_that_no_mask_allows(open_vocabulary: Open) -> None:
    """53 ids of Phi-3 that are no control tokens have nothing in them.

    In reality they are the padding and more, typed UNKNOWN, which llama.cpp does not render; each
    has a text, goes in as a special token, and so is in no mask of free text.
    """
    opened = open_vocabulary("phi3")
    vocabulary = opened.vocabulary
    empty = [
        token
        for token, piece in enumerate(vocabulary.rendered)
        if not piece and not vocabulary.attrs[token] & Attr.CONTROL
    ]
    assert len(empty) == 53
    assert all(vocabulary.attrs[token] & Attr.UNKNOWN for token in empty)
    assert b"[PAD32063]" in [vocabulary.texts[token] for token in empty]
    assert not {*empty} & {*bench_of(opened, "fixed").allowed("start: /(.|\\n)*/")}


HALVES = [b"\xf0\x9f", b"\x98\x80", b"\x98", b"\x80", b"a", b"x", b'"', b"</s>"]


@pytest.mark.parametrize(
    ("grammar", "taken", "allowed"),
    [
        ("start: /😀/", [], [b"\xf0\x9f"]),
        ("start: /😀/", [0], [b"\x98\x80", b"\x98"]),
        ("start: /😀/", [0, 2], [b"\x80"]),
        ("start: /[😀-🙏]/", [0], [b"\x98\x80", b"\x98"]),
        ("start: /./", [0], [b"\x98\x80", b"\x98", b"\x80"]),
        ("start: /(😀|x)/", [], [b"\xf0\x9f", b"x"]),
        ("start: /(😀|x)/", [0], [b"\x98\x80", b"\x98"]),
    ],
)
def test_u24_after_half_a_character_only_its_other_half(
    engine: Llguidance, grammar: str, taken: list[int], allowed: list[bytes]
) -> None:
    """llama.cpp #2501, PR 2553; outlines #725; TensorSharp PR 129: after a half, anything goes.

    `test_oracle` has the same of the byte oracle; here the engine's mask at each half is exact.
    """
    vocabulary = made_of(HALVES, {7: Attr.CONTROL}, ends=[7])
    bench = Bench(vocabulary, table_of(vocabulary), engine)
    case = case_of(grammar)
    assert [HALVES[token] for token in bench.allowed(case, taken)] == allowed
    assert bench.state(case, taken).verdict is MaskVerdict.EXACT


# --- E. schema to grammar -------------------------------------------------------------------------

ESCAPES: list[tuple[str, dict[str, Any], list[tuple[str, bool, bool]]]] = [
    (
        "const_slash",
        {"const": "http://e.com/p"},
        [('"http://e.com/p"', True, True), ('"http:\\/\\/e.com\\/p"', False, True)],
    ),
    (
        "digits",
        {"type": "string", "pattern": "^\\d+$"},
        [('"12"', True, True), ('"1x"', False, False)],
    ),
    (
        "escaped_slash",
        {"type": "string", "pattern": "^https:\\/\\/x$"},
        [
            ('"https://x"', True, True),
            ('"https:\\/\\/x"', False, True),
            ('"https:x"', False, False),
        ],
    ),
    (
        "quote_backslash_newline",
        {"enum": ['a"b', "a\\b", "a\nb"]},
        [
            ('"a\\"b"', True, True),
            ('"a\\\\b"', True, True),
            ('"a\\nb"', True, True),
            ('"a\\u000ab"', True, True),
            ('"a b"', False, False),
        ],
    ),
    (
        "ascii_escapes",
        json.loads('{"enum": ["\\u516c\\u53f8"]}'),
        [('"公司"', True, True), ('"\\u516c\\u53f8"', False, True), ('"??"', False, False)],
    ),
    (
        "scalars",
        {"enum": [True, None, 42, 1.0]},
        [
            ("true", True, True),
            ("null", True, True),
            ("42", True, True),
            ("1", True, True),
            ("1.0", False, True),
            ("True", False, False),
            ('"true"', False, False),
        ],
    ),
    (
        "spaces_and_emoji",
        {"enum": ["São Paulo", "a b", "😀 ok"]},
        [
            ('"São Paulo"', True, True),
            ('"a b"', True, True),
            ('"😀 ok"', True, True),
            ('"S\\u00e3o Paulo"', False, True),
            ('"ab"', False, False),
        ],
    ),
    (
        "carriage_return",
        {"type": "string", "pattern": "a\r\nb"},
        [
            ('"a\\r\\nb"', True, True),
            ('"xa\\r\\nby"', True, True),
            ('"a\r\nb"', False, False),
            ('"ab"', False, False),
        ],
    ),
]


@pytest.mark.parametrize(
    ("schema", "text", "grammar_accepts", "validator_accepts"),
    [
        pytest.param(schema, *row, id=f"{name}-{i}")
        for name, schema, rows in ESCAPES
        for i, row in enumerate(rows)
    ],
)
def test_u25_escapes_in_enum_const_and_pattern(
    schema: dict[str, Any], text: str, grammar_accepts: bool, validator_accepts: bool
) -> None:
    """xgrammar PR 626; llama.cpp #27580, #27397, #27597; lm-format-enforcer #183; imp #1563 …

    Two columns: what the grammar accepts, and what a validator makes of the parsed value.
    Accepted and invalid would be a corruption; refused and valid is over-constrained, a note.

    In reality llguidance takes one escaped form besides the plain one: a control character as
    `\\u000a` or as `\\n`. Letters have one spelling.
    """
    written = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    kind, source = schema_case(written, Json(schema)).grammar.engine_text()
    assert kind == "lark"
    grammar = ByteGrammar(source)
    assert grammar.error is None
    accepted = grammar.match(text.encode()).complete
    try:
        valid = jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
    except json.JSONDecodeError:
        valid = False
    assert (accepted, valid) == (grammar_accepts, validator_accepts)
    assert not (accepted and not valid)


def test_u25_what_is_not_expressible_is_refused_with_a_reason() -> None:
    """Look-ahead, `not`, an unknown `format`, a broken `$ref`: compile errors, not silence."""
    for schema in (
        {"type": "string", "pattern": "(?=a)a"},
        {"not": {"type": "string"}},
        {"type": "string", "format": "no-such-format"},
        {"$ref": "#/$defs/nowhere"},
    ):
        source = schema_case(json.dumps(schema), Json({})).grammar.engine_text()[1]
        assert ByteGrammar(source).error, schema
