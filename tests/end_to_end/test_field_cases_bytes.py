"""Field cases A: the bytes of token tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.audit import token_table
from pipeline.engines.llguidance import Llguidance
from pipeline.engines.table import TokenTable
from pipeline.model.verdicts import MaskVerdict, Verdict
from pipeline.vocab.files import gguf
from pipeline.vocab.token_types import META_SPACE, Attr, VocabType
from pipeline.vocab.vocabulary import Vocabulary
from support import damaged_ggufs as faults
from support import field_cases
from support.field_cases import REPLACEMENT, Open, audited, literal_check, through_text, wrong
from support.toy import (
    BYTES,
    Bench,
    bench_of,
    case_of,
    made_of,
    opened_file,
    table_of,
)
from support.vocabularies import Opened

engine = field_cases.engine


def spelt_in_sentencepiece() -> Vocabulary:
    """The vocabulary of U-01: 256 byte tokens, `▁the`, `cat`, `▁` and `</s>`."""
    texts = [b"<0x%02X>" % byte for byte in range(256)]
    texts += ["▁the".encode(), b"cat", META_SPACE, b"</s>"]
    attrs = dict.fromkeys(range(256), Attr.BYTE) | {259: Attr.CONTROL}
    return made_of([*BYTES, b" the", b"cat", b" ", b"</s>"], attrs, ends=[259], texts=texts)


def test_u01_raw_sentencepiece_spelling_is_no_bytes(engine: Llguidance) -> None:
    """LiteRT-LM #3510: the table holds the six letters `<0x20>` and U+2581 in place of a space.

    So no token of the table is a space, and text with a space cannot be generated. All 256 byte
    tokens and both tokens with U+2581 are wrong before anything is decoded.

    In reality the first mask depends on the tokenization. If it gives `cat` alone, the mask allows
    only `cat`, which is refused when it is consumed. With a greedy tokenization the mask fails.
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

    Each id is decoded as if it were at the start of a text, so ` techs` is entered as `techs`.
    """
    vocabulary = open_vocabulary(name).vocabulary
    assert len(wrong(vocabulary, open_vocabulary(name).table("unfixed").claimed)) == n_wrong


def test_u02_lost_spaces_corrupt_the_text_or_lose_the_constraint(open_vocabulary: Open) -> None:
    """Free letters are generated with spaces and without an error. A literal is refused at once.

    In reality the first mask of `hello world` is *unsound*: it allows only ` hello`. The bridge
    sees the refusal one step later.
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
    """The table of lm-format-enforcer: decode `0` and the token as text, then remove the `0`."""
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

    A token that begins with a space loses it if it is decoded alone, and keeps it after BOS and
    after `0`. The builder of lm-format-enforcer therefore decodes after `0`, which keeps every
    space. But every token that is not UTF-8 becomes U+FFFD: 128 byte tokens of Llama's vocabulary.
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
        for row in token_table.wrong_tokens(vocabulary, table)
        if row["attribute"] in ("NORMAL", "BYTE")
    ]
    assert len(found) == 128
    assert {row["claimed"] for row in found} == {REPLACEMENT}


def test_u04_a_real_replacement_character_is_no_failed_half(
    engine: Llguidance, tmp_path: Path
) -> None:
    """outlines #820 and PR 892: a token of a space and half a character aborts the build.

    `20 E2 96` ends in half a character; `20 EF BF BD` ends in a real U+FFFD. If tokens are decoded
    to text, the first becomes the second, and only the first is wrong. As bytes both are kept.
    """
    half, real = b" \xe2\x96", b" " + REPLACEMENT
    spelling = {byte: char for char, byte in exactly_gpt2().items()}
    texts = ["".join(spelling[byte] for byte in data) for data in [*BYTES, half, real]]
    tokens = [*((text, faults.NORMAL) for text in [*texts, "ab"]), ("<|end|>", faults.CONTROL)]
    bare = faults.tiny_vocabulary(
        tmp_path / "bare.gguf", tokens, model="gpt2", merges=["a b"], pre="gpt-2"
    )
    changes = {faults.EOS: gguf.u32(faults.EOS, len(tokens) - 1)}
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
    """Each of them is a wrong row for a builder that decodes tokens to text."""
    vocabulary = open_vocabulary(name).vocabulary
    assert len(wrong(vocabulary, through_text(vocabulary.true_bytes))) == n_halves


def last_of_each_text(claims: Sequence[bytes]) -> list[bytes]:
    """The claims of outlines' `vocabulary[piece] = i`: only the last id of a text has its bytes."""
    last = {claim: token for token, claim in enumerate(claims)}
    return [claim if last[claim] == token else b"" for token, claim in enumerate(claims)]


def test_u05_several_ids_of_the_same_bytes_are_all_allowed(engine: Llguidance) -> None:
    """outlines #1830: a dict keyed by text keeps one id of each; thousands are unreachable."""
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
    """Llama's `A` is id 29909 and also byte token 68. A mask must allow both."""
    vocabulary = open_vocabulary(name).vocabulary
    times = Counter(piece for piece in vocabulary.true_bytes if piece)
    assert sum(n for n in times.values() if n > 1) == n_shared
    if name == "llama_spm":
        bench = bench_of(open_vocabulary(name), "fixed")
        assert {68, 29909} <= {*bench.allowed("start: /(A|B)/")}


def toy_tekken() -> Vocabulary:
    """1000 specials, then ranks `E2 80`, `E2 81`, `80 A6`, `"` and `A6`: the id is rank + 1000."""
    named = [b"<SPECIAL_%d>" % i for i in range(1000)]
    attrs = dict.fromkeys(range(1000), Attr.CONTROL)
    return made_of([*named, b"\xe2\x80", b"\xe2\x81", b"\x80\xa6", b'"', b"\xa6"], attrs, ends=[2])


def test_u06_byte_ranks_collapse_through_text(engine: Llguidance) -> None:
    """sglang PR 35215, keras-hub PR 2692: several of Tekken's ranks have the same text.

    Three of them become U+FFFD, and a fourth becomes two U+FFFD. No token is then left for a text
    that needs them: the mask fails, and a runtime that continues has lost the constraint. If the
    offset of the specials is missing, every id has the bytes of another.
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

    The GGUF spells a token like a bytes literal of Python; the escapes are decoded once.
    `test_vocabulary` tests the whole alphabet of such a file; here its masks are tested.

    In reality the lost bytes give an *empty* mask, which the engine reports as a failure. A
    runtime either stops or continues without the constraint. So `dead_end`, an empty mask without
    a failure, does not occur.
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
"""`[PAD] [UNK] [CLS] [SEP] [1] ##[1] a ##b` as a GGUF spells them: U+2581 marks a word's start."""


def wordpiece(out: Path, tokens: Sequence[str], *, unknown: bool = True) -> Path:
    kinds = [faults.UNUSED, faults.UNKNOWN, faults.CONTROL, faults.CONTROL]
    kinds += [faults.NORMAL] * (len(tokens) - 4)
    bare = faults.tiny_vocabulary(out, [*zip(tokens, kinds, strict=True)], model="bert")
    key = "tokenizer.ggml.unknown_token_id"
    return faults.rewrite(bare, out, {key: gguf.u32(key, 1)} if unknown else {})


def test_u08_wordpiece_start_and_continuation_stay_different(tmp_path: Path) -> None:
    """llama.cpp PR 18500: if `##` is removed and not replaced, two tokens have the same text."""
    with opened_file(wordpiece(tmp_path / "phantom.gguf", WORDPIECE)) as opened:
        assert opened.vocabulary.true_bytes[4:] == [b" [1]", b"[1]", b" a", b"b"]
        bench = bench_of(opened, "fixed")
        case = case_of('start: " a" "[1]"', literal_check(" a[1]"))
        assert bench.state(case).verdict is MaskVerdict.EXACT
        assert bench.state(case, [6]).verdict is MaskVerdict.EXACT
        assert bench.allowed(case, [6]) == [5]


def test_u08_duplicate_text_aborts_its_worker_and_no_other(tmp_path: Path) -> None:
    """If it is converted without the phantom space, `[1]` is there twice, and llama.cpp aborts."""
    bad = wordpiece(tmp_path / "stripped.gguf", [text.lstrip("▁") for text in WORDPIECE])
    good = wordpiece(tmp_path / "phantom.gguf", WORDPIECE)
    found = audited(tmp_path, bad, good)
    assert found["stripped"]["status"] == "crashed"
    assert "token_to_id" in str(found["stripped"]["reason"])
    assert found["phantom"]["status"] == "ok"


def test_u08_the_duplicate_text_is_named(tmp_path: Path) -> None:
    """The case asks for this report at load: the reason names the duplicate text."""
    bad = wordpiece(tmp_path / "stripped.gguf", [text.lstrip("▁") for text in WORDPIECE])
    assert "[1]" in str(audited(tmp_path, bad)["stripped"]["reason"])


def test_u08_a_vocabulary_without_an_unknown_token_is_built(tmp_path: Path) -> None:
    """WordPiece without an unknown token gives the id -1 for text that it cannot spell.

    A probe whose ids include an id of no token is inexact; it does not cause a crash.
    """
    with opened_file(wordpiece(tmp_path / "none.gguf", WORDPIECE, unknown=False)) as opened:
        assert opened.table("fixed").tokenize_mode == "greedy"
