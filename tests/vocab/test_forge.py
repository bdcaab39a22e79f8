"""The forge: deterministic files that llama.cpp runs; damaged files never hang the reader."""

import hashlib
import json
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.model.errors import LoadRefused
from pipeline.vocab.files.forge import forge_model, tiny, vocabulary_of
from pipeline.vocab.files.gguf import scan
from pipeline.vocab.files.resolve import resolve
from pipeline.vocab.files.sentencepiece import sentencepiece_gguf
from pipeline.vocab.files.source import Source, cache_dir
from support.command import ROOT

CONF = ROOT / "conf" / "tokenizer"
NAMES = sorted(path.stem for path in CONF.glob("*.yaml") if path.stem not in ("own", "path"))

PINNED = "44bb9c5bfc3f63b0aff0216475ba771569f3303a6a334c583f5195717a36f848"

# Loads a model and decodes one token, in a separate process because llama.cpp may abort.
DECODE_ONE = """
import ctypes, json, sys, llama_cpp as L
import numpy as np
quiet = L.llama_log_callback(lambda level, text, data: None)
L.llama_log_set(quiet, ctypes.c_void_p())
L.llama_backend_init()
model = L.llama_model_load_from_file(sys.argv[1].encode(), L.llama_model_default_params())
assert model, "llama.cpp refused the file"
params = L.llama_context_default_params()
params.n_ctx, params.n_threads, params.n_threads_batch = 256, 1, 1
context = L.llama_init_from_model(model, params)
vocab = L.llama_model_get_vocab(model)
n = L.llama_vocab_n_tokens(vocab)
token, seen = 5, []
for _ in range(int(sys.argv[2])):
    batch = L.llama_batch_get_one((ctypes.c_int32 * 1)(token), 1)
    assert L.llama_decode(context, batch) == 0
    logits = np.ctypeslib.as_array(L.llama_get_logits_ith(context, -1), shape=(n,))
    token = int(logits.argmax())
    seen.append(token)
attributes = [L.llama_vocab_get_attr(vocab, i) for i in range(5)]
print(json.dumps({"n": n, "type": L.llama_vocab_type(vocab), "std": float(logits.std()),
    "seen": seen, "attributes": attributes, "bos": L.llama_vocab_bos(vocab),
    "eos": L.llama_vocab_eos(vocab), "add_bos": L.llama_vocab_get_add_bos(vocab)}))
"""


def source_of(name: str) -> Source:
    """The `Source` that a file of `conf/tokenizer` describes."""
    content: dict[str, Any] = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    content["members"] = tuple(content["members"])
    return Source(**content)


@cache
def vocabulary(name: str) -> Path:
    """The vocab-only GGUF of one tokenizer of `conf/tokenizer`."""
    found = resolve(source_of(name))
    return found.path if found.format == "gguf" else vocabulary_of(found.path, cache_dir())


def decode(model: Path, steps: int = 1) -> dict[str, Any]:
    command = [sys.executable, "-c", DECODE_ONE, str(model), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        tiny(vocabulary("mistral_v1"), tmp_path / name, seed)
    a, b, c = (sha256(tmp_path / name) for name in "abc")
    assert a == b != c
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_bytes_are_the_same_everywhere(tmp_path: Path) -> None:
    """The hash is pinned, to notice a machine, numpy or Python that makes other bytes.

    If the forge itself has changed, increase `_FORGE_VERSION` and update the hash.
    """
    tiny(vocabulary("mistral_v1"), tmp_path / "tiny.gguf", 0)
    assert sha256(tmp_path / "tiny.gguf") == PINNED


@pytest.mark.parametrize("name", ["mistral_v1", "bert_bge", "gemma4"])
def test_tokenizer_entries_are_copied_raw(name: str, tmp_path: Path) -> None:
    tiny(vocabulary(name), tmp_path / "tiny.gguf", 0)
    before, after = scan(vocabulary(name)), scan(tmp_path / "tiny.gguf")
    assert after.tokenizer == before.tokenizer and before.n_tokens == after.n_tokens > 0
    assert after.text("general.architecture") == "llama"
    assert (tmp_path / "tiny.gguf").stat().st_size < 80e6


def test_forged_is_cached_by_content(tmp_path: Path) -> None:
    first = forge_model(vocabulary("mistral_v1"), 0, tmp_path)
    time = first.stat().st_mtime_ns
    assert forge_model(vocabulary("mistral_v1"), 0, tmp_path) == first
    assert first.stat().st_mtime_ns == time
    assert forge_model(first, 0, tmp_path) == first  # the file has the same vocabulary
    assert forge_model(vocabulary("mistral_v1"), 1, tmp_path) != first
    assert forge_model(vocabulary("mistral_v3"), 0, tmp_path) != first


# --- damaged files ------------------------------------------------------------------------------


def test_truncated_anywhere_is_refused(tmp_path: Path) -> None:
    whole = vocabulary("bert_bge").read_bytes()
    path = tmp_path / "cut.gguf"
    for size in (0, 3, 4, 23, 24, 31, 50, 200, 5000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(LoadRefused, match=r"cut\.gguf"):
            tiny(path, tmp_path / "out.gguf", 0)
    assert not (tmp_path / "out.gguf").exists()


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    ("count", "body", "said"),
    [
        (2**63, b"", "ends in the middle"),
        (1, struct.pack("<Q", 2**63), "a key of"),
        (1, entry(b"a", 8, struct.pack("<Q", 2**63)), "ends in the middle"),
        (1, entry(b"a", 9, struct.pack("<IQ", 8, 2**63)), "ends in the middle"),
        (1, entry(b"a", 9, struct.pack("<IQQ", 8, 2, 2**64 - 1)), "ends in the middle"),
        (1, entry(b"a", 9, struct.pack("<IQ", 4, 2**63)), "ends in the middle"),
        (1, entry(b"a", 9, struct.pack("<IQ", 9, 1)), "array of unknown type 9"),
        (1, entry(b"a", 99, b""), "unknown type 99"),
        (2, entry(b"a", 7, b"\1") * 2, "twice"),
        (1, entry(b"\xff", 7, b"\1"), "not a usable GGUF"),
        (0, b"", "has no tokenizer"),
        (1, entry(b"tokenizer.ggml.tokens", 7, b"\1"), "has no tokenizer"),
    ],
)
def test_garbage_is_refused(count: int, body: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, count) + body)
    with pytest.raises(LoadRefused, match=said):
        forge_model(path, 0, tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"\n\xff", b"GGUF", b"\n\x05abc", b"\x0b", b"\n\x02\x10\1"]
)
def test_no_sentencepiece_model(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.model").write_bytes(content)
    with pytest.raises(LoadRefused, match="not a SentencePiece model"):
        sentencepiece_gguf(tmp_path / "t.model", tmp_path / "out.gguf")


# --- SentencePiece ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mistral_v1", "mistral_v2", "mistral_v3"])
def test_sentencepiece_as_its_own_library_reads_it(name: str) -> None:
    processor_type = pytest.importorskip("sentencepiece").SentencePieceProcessor
    model = resolve(source_of(name)).path
    processor = processor_type(model_file=str(model))
    count = processor.vocab_size()
    found = scan(vocabulary(name))

    def array(key: str) -> bytes:
        raw = found.raw[key]
        assert struct.unpack_from("<Q", raw, 8 + len(key) + 8)[0] == count
        return raw[8 + len(key) + 16 :]

    texts = [processor.id_to_piece(i).encode() for i in range(count)]
    stored = b"".join(struct.pack("<Q", len(text)) + text for text in texts)
    assert array("tokenizer.ggml.tokens") == stored
    scores = struct.pack(f"<{count}f", *map(processor.get_score, range(count)))
    assert array("tokenizer.ggml.scores") == scores
    types = struct.unpack(f"<{count}i", array("tokenizer.ggml.token_type"))
    for kind, test in ((2, "is_unknown"), (3, "is_control"), (5, "is_unused"), (6, "is_byte")):
        assert [i for i in range(count) if types[i] == kind] == [
            i for i in range(count) if getattr(processor, test)(i)
        ]
    assert found.raw["tokenizer.ggml.add_space_prefix"][-1] == 1


def test_mistral_v3_instruction_marks_are_control_tokens(tmp_path: Path) -> None:
    tiny(vocabulary("mistral_v3"), tmp_path / "tiny.gguf", 0)
    found = decode(tmp_path / "tiny.gguf")
    control = 8  # LLAMA_TOKEN_ATTR_CONTROL
    assert found["n"] == 32768 and found["attributes"][1:5] == [control] * 4
    assert (found["bos"], found["eos"], found["add_bos"]) == (1, 2, True)


# --- llama.cpp ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("mistral_v1", 1), ("gpt2", 2), ("bert_bge", 3)])
def test_loads_and_decodes(name: str, kind: int, tmp_path: Path) -> None:
    tiny(vocabulary(name), tmp_path / "tiny.gguf", 0)
    found = decode(tmp_path / "tiny.gguf")
    assert found["type"] == kind and found["n"] == scan(vocabulary(name)).n_tokens


def test_greedy_text_wanders(tmp_path: Path) -> None:
    tiny(vocabulary("mistral_v1"), tmp_path / "tiny.gguf", 0)
    found = decode(tmp_path / "tiny.gguf", steps=64)
    assert len(set(found["seen"])) > 50 and found["std"] > 2
    assert decode(tmp_path / "tiny.gguf", steps=64)["seen"] == found["seen"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_vocabulary_loads_and_decodes(name: str, tmp_path: Path) -> None:
    tiny(vocabulary(name), tmp_path / "tiny.gguf", 0)
    assert decode(tmp_path / "tiny.gguf")["n"] == scan(vocabulary(name)).n_tokens
