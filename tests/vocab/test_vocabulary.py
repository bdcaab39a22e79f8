"""Vocabularies: both readings of the true bytes agree, and measured properties are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.engines import builders
from pipeline.engines.table import Material
from pipeline.native import llama
from pipeline.runs.worker.survival import survives
from pipeline.vocab import vocabulary
from pipeline.vocab.files import gguf
from pipeline.vocab.second_reading import second_reading
from pipeline.vocab.token_types import Attr, VocabType
from support import damaged_ggufs as faults
from support.command import QUICK, ROOT, pipeline
from support.vocabularies import Opened, vocabulary_file

Open = Callable[[str], Opened]

steady = settings(derandomize=True, deadline=None, max_examples=150)

# name, type, number of tokens, all end ids, add_space_prefix, clean_spaces
KNOWN: list[tuple[str, str, int, set[int], bool, bool]] = [
    ("aquila", "BPE", 100008, {0, 100007}, False, True),
    ("baichuan", "SPM", 64000, {2}, True, False),
    ("bert_bge", "WPM", 30522, {0}, False, True),
    ("command_r", "BPE", 256000, {0, 255001}, False, False),
    ("deepseek_coder", "BPE", 32256, {32014}, False, False),
    ("deepseek_llm", "BPE", 102400, {100001}, False, False),
    ("falcon", "BPE", 65024, {11}, False, True),
    ("gemma4", "BPE", 262144, {1, 50, 106}, False, True),
    ("gpt2", "BPE", 50257, {50256}, False, True),
    ("gpt_neox", "BPE", 50432, {0}, False, True),
    ("llama_bpe", "BPE", 128256, {128001, 128009}, False, True),
    ("llama_spm", "SPM", 32000, {2}, True, False),
    ("mistral_v1", "SPM", 32000, {2}, True, False),
    ("mistral_v2", "SPM", 32768, {2}, True, False),
    ("mistral_v3", "SPM", 32768, {2}, True, False),
    ("mpt", "BPE", 50432, {0}, False, True),
    ("nomic_bert_moe", "UGM", 250048, {2}, True, False),
    ("phi3", "SPM", 32064, {2, 32000, 32007}, True, False),
    ("qwen2", "BPE", 151936, {128247, 151643, 151645}, False, False),
    ("qwen35", "BPE", 151936, {128247, 151643, 151645}, False, False),
    ("refact", "BPE", 49216, {0, 4, 18}, False, True),
    ("starcoder", "BPE", 49152, {0, 4}, False, True),
]


def sized(rows: list[tuple[Any, ...]]) -> list[Any]:
    """One parameter per vocabulary; large vocabularies are marked slow."""
    slow = [pytest.mark.slow]
    return [pytest.param(*row, id=row[0], marks=slow if row[2] > 100_000 else []) for row in rows]


def test_every_tokenizer_of_conf_is_known_here() -> None:
    files = {path.stem for path in (ROOT / "conf" / "tokenizer").glob("*.yaml")}
    assert {row[0] for row in KNOWN} == files - {"own", "path"}


@pytest.mark.parametrize(("name", "kind", "n", "ends", "prefix", "clean"), sized(KNOWN))
def test_real_vocabularies_read_the_same_both_ways(
    name: str, kind: str, n: int, ends: set[int], prefix: bool, clean: bool
) -> None:
    """The second reading does not use `llama_token_to_piece`, but agrees with it on every id."""
    llama.start()
    model, read = vocabulary.open_vocabulary(vocabulary_file(name))
    model.close()
    assert read.disagreements == ()
    assert (read.type.value, read.n_tokens) == (kind, n)
    assert read.end_ids == ends
    assert (read.add_space_prefix, read.clean_spaces) == (prefix, clean)
    assert not read.tokenize_can_throw
    assert len(read.texts) == len(read.attrs) == len(read.scores) == n


@pytest.mark.parametrize("name", ["phi3", "gemma4", "llama_bpe"])
def test_every_stop_id_is_kept_not_only_the_builders(open_vocabulary: Open, name: str) -> None:
    """A runtime stops on each of them; an engine that knows one could miss the others (U-18)."""
    read = open_vocabulary(name).vocabulary
    assert read.end_ids == next(row[3] for row in KNOWN if row[0] == name)
    assert len(read.end_ids) > 1
    assert {token for token in (read.eos, read.eot) if token != -1} <= read.end_ids


def test_control_tokens_are_rendered_as_nothing(open_vocabulary: Open) -> None:
    read = open_vocabulary("llama_spm").vocabulary
    assert read.true_bytes[1] == b"<s>"
    assert read.rendered[:3] == [b"", b"", b""]
    assert read.rendered[3:] == read.true_bytes[3:]


# --- the second reading, by the rules of each type ------------------------------------------------


def read_one(
    kind: VocabType, text: bytes, attr: Attr = Attr.NORMAL, *, meta: bool = False
) -> bytes:
    [found] = second_reading(kind, [text], np.array([attr], np.uint32), meta_space=meta)
    return found


def gpt2_spelling(data: bytes) -> str:
    """GPT-2's `bytes_to_unicode`, written independently of our code."""
    spelling: dict[int, str] = {}
    shifted = 0
    for byte in range(256):
        shown = 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255
        spelling[byte] = chr(byte) if shown else chr(256 + shifted)
        shifted += not shown
    return "".join(spelling[byte] for byte in data)


@steady
@given(st.binary(max_size=40))
def test_byte_level_alphabet_brings_back_every_byte_string(data: bytes) -> None:
    assert read_one(VocabType.BPE, gpt2_spelling(data).encode()) == data


def test_byte_level_alphabet_has_256_spellings() -> None:
    spelled = {gpt2_spelling(bytes([byte])) for byte in range(256)}
    assert len(spelled) == 256
    assert gpt2_spelling(b"\n \x00\xad") == "ĊĠĀŃ"


@pytest.mark.parametrize("kind", [VocabType.SPM, VocabType.UGM, VocabType.BPE])
def test_each_byte_token_is_its_byte(kind: VocabType) -> None:
    for byte in range(256):
        text = b"<0x%02X>" % byte
        assert read_one(kind, text, Attr.BYTE, meta=True) == bytes([byte])
        assert read_one(kind, text, Attr.USER_DEFINED, meta=True) == text
        assert read_one(kind, text, Attr.NORMAL, meta=True) == text, "the attribute decides"


@pytest.mark.parametrize(
    ("kind", "meta"),
    [
        (VocabType.SPM, False),
        (VocabType.UGM, False),
        (VocabType.WPM, False),
        (VocabType.BPE, True),
    ],
)
@steady
@given(st.lists(st.sampled_from(["▁", " ", "a", "é", "😀", "▂", "##", "<0x20>"]), max_size=8))
def test_meta_symbol_is_a_space_in_normal_tokens_only(
    kind: VocabType, meta: bool, parts: list[str]
) -> None:
    text = "".join(parts)
    assert read_one(kind, text.encode(), meta=meta) == text.replace("▁", " ").encode()
    for attr in (Attr.CONTROL, Attr.UNKNOWN, Attr.USER_DEFINED, Attr.CONTROL | Attr.LSTRIP):
        assert read_one(kind, text.encode(), attr, meta=meta) == text.encode()
    for attr in (Attr.UNUSED, Attr.UNDEFINED):
        assert read_one(kind, text.encode(), attr, meta=meta) == b""


@steady
@given(st.binary(max_size=40))
def test_rwkv_escapes_bring_back_every_byte_string(data: bytes) -> None:
    """RWKV GGUFs write a token as Python's `repr` of its bytes, without the `b'…'` (U-07)."""
    assert read_one(VocabType.RWKV, repr(data)[2:-1].encode()) == data


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (rb"\x80", b"\x80"),
        (rb"\n", b"\n"),
        (rb"\\n", rb"\n"),
        (rb"\\x41", rb"\x41"),
        (rb"it\'s", b"it's"),
        (b" a", b" a"),
        (rb"\x80\xff", b"\x80\xff"),
    ],
)
def test_rwkv_escapes_are_undone_once(text: bytes, data: bytes) -> None:
    assert read_one(VocabType.RWKV, text) == data


# --- odd spellings, compared with llama.cpp ------------------------------------------------------


def disagreements(file: Path) -> tuple[tuple[int, bytes], ...]:
    llama.start()
    model, read = vocabulary.open_vocabulary(file)
    model.close()
    return read.disagreements


def test_rwkv_file_agrees_with_llama_cpp(tmp_path: Path) -> None:
    """The 128 high bytes stay distinct; decoded as text they would all be U+FFFD (U-07)."""
    texts = [repr(bytes([byte]))[2:-1] for byte in range(256)]
    texts += [r"\x80\xff", r"\n\t", r"it\'s", " a", r"\\n", r"\\x41"]
    file = faults.tiny_vocabulary(
        tmp_path / "rwkv.gguf", [(text, faults.NORMAL) for text in texts], model="rwkv"
    )
    llama.start()
    model, read = vocabulary.open_vocabulary(file)
    model.close()
    assert read.type is VocabType.RWKV
    assert read.disagreements == ()
    assert read.true_bytes[:256] == [bytes([byte]) for byte in range(256)]


def test_byte_level_file_with_foreign_characters_agrees_with_llama_cpp(tmp_path: Path) -> None:
    texts = ["a", "b", "ab", "Ġ", "Ċ", "Ā", "é", "中", "Ġ▁", "a中b"]
    tokens = [(text, faults.NORMAL) for text in texts]
    tokens += [("Ġuser", faults.USER_DEFINED), ("Ġend", faults.CONTROL), ("Ġout", faults.UNUSED)]
    file = faults.tiny_vocabulary(
        tmp_path / "bpe.gguf", tokens, model="gpt2", merges=["a b"], pre="gpt-2"
    )
    assert disagreements(file) == ()


def test_sentencepiece_file_with_odd_types_agrees_with_llama_cpp(tmp_path: Path) -> None:
    tokens = [("<unk>", faults.UNKNOWN), ("<s>", faults.CONTROL), ("</s>", faults.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", faults.BYTE) for byte in range(256)]
    tokens += [("▁▁a", faults.NORMAL), ("x▁y", faults.NORMAL), ("\ufeffq", faults.NORMAL)]
    tokens += [("ud▁", faults.USER_DEFINED), ("c▁", faults.CONTROL), ("out", faults.UNUSED)]
    assert disagreements(faults.tiny_vocabulary(tmp_path / "spm.gguf", tokens)) == ()


def test_plamo2_file_agrees_with_llama_cpp(tmp_path: Path) -> None:
    """PLaMo-2 copies all texts except those of byte tokens: it keeps U+2581 and unused tokens."""
    tokens = [("<unk>", faults.UNKNOWN), ("<s>", faults.CONTROL), ("</s>", faults.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", faults.BYTE) for byte in range(256)]
    tokens += [("▁a", faults.NORMAL), ("out", faults.UNUSED)]
    file = faults.tiny_vocabulary(tmp_path / "plamo2.gguf", tokens, model="plamo2")
    assert disagreements(file) == ()


def test_rwkv_file_with_malformed_escapes_agrees_with_llama_cpp(tmp_path: Path) -> None:
    r"""llama.cpp drops a final backslash and an incomplete `\x4`, and misreads `\x4A`."""
    texts = [repr(bytes([byte]))[2:-1] for byte in range(256)] + ["q\\", r"\x4A", r"\x4"]
    file = faults.tiny_vocabulary(
        tmp_path / "rwkv.gguf", [(text, faults.NORMAL) for text in texts], model="rwkv"
    )
    assert disagreements(file) == ()


# --- what is measured, and the hash ---------------------------------------------------------------


class FakeVocab:
    """A fake `llama.Vocab`."""

    def __init__(self, **changes: Any) -> None:
        self.type = 1
        self.given: dict[str, Any] = {
            "texts": [b"<unk>", b"</s>", "▁ab".encode(), b"x", b" ."],
            "pieces": [b"<unk>", b"</s>", b" ab", b"x", b" ."],
            "attributes": np.array([1, 8, 4, 4, 4], np.uint32),
            "scores": np.array([0, 0, -1, -2, -3], np.float32),
            "bos": -1,
            "eos": 1,
            "eot": -1,
            "ends": [1],
            "strips": True,
            "cleans": False,
        }
        self.given |= {key: value for key, value in changes.items() if key != "type"}
        self.type = changes.get("type", self.type)

    def pieces(self, *, special: bool) -> list[bytes]:
        assert special
        return self.given["pieces"]

    def texts(self) -> list[bytes]:
        return self.given["texts"]

    def attributes(self) -> np.ndarray:
        return self.given["attributes"]

    def scores(self) -> np.ndarray:
        return self.given["scores"]

    def end_of_generation(self) -> list[int]:
        return self.given["ends"]

    def special_id(self, name: str) -> int:
        return self.given[name]

    def detokenize(self, tokens: Sequence[int], *, special: bool) -> bytes:
        text = b"".join(self.given["pieces"][token] for token in tokens)
        text = text.replace(b" .", b".") if self.given["cleans"] else text
        return text.removeprefix(b" ") if self.given["strips"] else text


class FakeModel:
    def __init__(self, **changes: Any) -> None:
        self.vocab = FakeVocab(**changes)

    def meta(self, _: str) -> str | None:
        return None


def read_fake(**changes: Any) -> vocabulary.Vocabulary:
    return vocabulary.read(FakeModel(**changes))  # type: ignore[arg-type]


def test_space_habits_are_measured_not_read_from_the_file() -> None:
    for strips in (True, False):
        for cleans in (True, False):
            read = read_fake(strips=strips, cleans=cleans)
            assert (read.add_space_prefix, read.clean_spaces) == (strips, cleans)


def test_a_disagreement_is_kept_with_its_id_and_second_reading() -> None:
    read = read_fake(pieces=[b"<unk>", b"</s>", b"ab", b"x", b" ."])
    assert read.disagreements == ((2, b" ab"),)


def test_hash_changes_with_any_part() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"texts": [b"<unk>", b"</s>", "▁ab".encode(), b"y", b" ."]},
        {"texts": [b"<unk>", b"</s", ">▁ab".encode(), b"x", b" ."]},
        {"texts": [b"</s>", b"<unk>", "▁ab".encode(), b"x", b" ."]},
        {"pieces": [b"<unk>", b"</s>", b" ab", b"y", b" ."]},
        {"attributes": np.array([1, 8, 4, 4, 16], np.uint32)},
        {"scores": np.array([0, 0, -1, -2, -4], np.float32)},
        {"bos": 1},
        {"eos": 0},
        {"eot": 1},
        {"ends": [0, 1]},
        {"strips": False},
        {"cleans": True},
        {"type": 4},
    ]
    hashes = [read_fake(**change).hash for change in changes]
    assert len(set(hashes)) == len(changes)
    assert hashes == [read_fake(**change).hash for change in changes]


def test_hash_of_a_file_is_that_of_its_tokens(open_vocabulary: Open, tmp_path: Path) -> None:
    """The file name does not change the hash; the text of one token does."""
    source = vocabulary_file("llama_spm")
    same = faults.rewrite(source, tmp_path / "same.gguf", {})
    other = faults.with_token_text(source, tmp_path / "other.gguf", 5000, b"no-such-token")
    hashes: list[str] = []
    for file in (same, other):
        model, read = vocabulary.open_vocabulary(file)
        model.close()
        hashes.append(read.hash)
    known = open_vocabulary("llama_spm").vocabulary.hash
    assert hashes[0] == known
    assert hashes[1] != known


def test_silent_damage_is_in_the_true_bytes(tmp_path: Path) -> None:
    """llama.cpp loads both files without a warning and renders these bytes (U-22)."""
    source = vocabulary_file("llama_spm")
    llama.start()
    for make, token, true in (
        (faults.without_token_type, 13, b"<0x0A>"),
        (faults.empty_token_text, 5000, b"[EMPTY_5000]"),
    ):
        model, read = vocabulary.open_vocabulary(make(source, tmp_path / f"{token}.gguf"))
        model.close()
        assert read.true_bytes[token] == true
        assert read.disagreements == ()


# --- SentencePiece without byte tokens ------------------------------------------------------------


def test_probe_that_kills_the_process_makes_fixed_greedy(tmp_path: Path) -> None:
    """`1\\n2` has a character without a token: llama.cpp throws through C and crashes."""
    llama.start()
    bare = faults.tiny_spm(tmp_path / "bare.gguf", byte_tokens=False)
    assert survives(bare, b"The")
    assert survives(bare, b"a b")
    assert not survives(bare, b"1\n2")
    model, read = vocabulary.open_vocabulary(bare)
    with closing(model):
        assert read.type is VocabType.SPM
        assert read.tokenize_can_throw
        material = Material(read, model.vocab, lambda data: survives(bare, data))
        table = builders.get("fixed").build(material)
    assert (table.tokenize, table.tokenize_mode) == (None, "greedy")


def test_the_same_vocabulary_with_byte_tokens_keeps_its_tokenizer(tmp_path: Path) -> None:
    llama.start()
    whole = faults.tiny_spm(tmp_path / "whole.gguf", byte_tokens=True)
    assert survives(whole, b"1\n2")
    model, read = vocabulary.open_vocabulary(whole)
    with closing(model):
        assert not read.tokenize_can_throw
        table = builders.get("fixed").build(Material(read, model.vocab, lambda _: True))
    assert table.tokenize_mode == "llama_tokenize"


def test_one_missing_byte_token_is_enough_to_throw(tmp_path: Path) -> None:
    """`<0x0a>` in lower case is still the byte 0x0A, but `byte_to_token` does not find it."""
    llama.start()
    whole = faults.tiny_spm(tmp_path / "whole.gguf", byte_tokens=True)
    newline = 3 + 0x0A
    file = faults.with_token_text(whole, tmp_path / "hole.gguf", newline, b"<0x0a>")
    model, read = vocabulary.open_vocabulary(file)
    model.close()
    assert (read.true_bytes[newline], read.disagreements) == (b"\n", ())
    assert read.tokenize_can_throw
    assert not survives(file, b"1\n2")


def test_byte_level_vocabulary_under_sentencepieces_name_can_throw(tmp_path: Path) -> None:
    """The file loads, but the dummy prefix has no token: the first tokenization crashes (U-22)."""
    llama.start()
    key = "tokenizer.ggml.model"
    changes = {key: gguf.text(key, "llama")}
    file = faults.rewrite(vocabulary_file("gpt2"), tmp_path / "wrong.gguf", changes)
    model, read = vocabulary.open_vocabulary(file)
    model.close()
    assert read.type is VocabType.SPM
    assert read.tokenize_can_throw
    assert not survives(file, b"The")


@pytest.mark.parametrize(
    ("name", "lives"), [("llama_spm", True), ("llama_bpe", False), ("bert_bge", False)]
)
def test_code_point_beyond_unicode(name: str, lives: bool) -> None:
    """`f4 90 80 80` is not UTF-8. SPM encodes it as byte tokens; the other types throw through C.

    `tokenize_can_throw` does not cover this; it only looks for bytes without a token.
    """
    assert survives(vocabulary_file(name), b"\xf4\x90\x80\x80") is lives


def test_audit_of_a_vocabulary_without_byte_tokens(tmp_path: Path) -> None:
    bare = faults.tiny_spm(tmp_path / "bare.gguf", byte_tokens=False)
    file = f"tokenizer.path={bare}"
    done = pipeline(tmp_path, "audit", "tokenizer=path", file, "builder=[fixed]", *QUICK)
    assert done.code == 0, done.err
    [row] = done.table("tokenizers").iter_rows(named=True)
    assert (row["status"], row["tokenize"], row["n_wrong"]) == ("ok", "greedy", 0)


@pytest.mark.slow
def test_tokenization_that_kills_the_process_is_audited_as_inexact(tmp_path: Path) -> None:
    """`unfixed` keeps its tokenization; its probes run in separate processes, which may crash."""
    bare = faults.tiny_spm(tmp_path / "bare.gguf", byte_tokens=False)
    file = f"tokenizer.path={bare}"
    done = pipeline(tmp_path, "audit", "tokenizer=path", file, "builder=[unfixed]", *QUICK)
    assert done.code == 0, done.err
    [row] = done.table("tokenizers").iter_rows(named=True)
    assert (row["status"], row["tokenize"]) == ("ok", "inexact")
