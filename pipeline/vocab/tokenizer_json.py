"""Derive a Hugging Face `tokenizer.json` from the vocabulary of a GGUF.

With it, libraries that read a `tokenizer.json` can be tested on any GGUF. It has everything that
determines a token table: the text of every token by id, the added and the special tokens, and a
decoder from texts to bytes (byte-level, or U+2581 and `<0xNN>`). Merges come from the file.
SentencePiece files have scores instead; for them every possible merge of two pieces is written,
best score first. A GGUF does not contain the model's pre-tokenizer pattern. So a text may get other
tokens than with the model's own file, but never other bytes.

Source: the serialisation format 1.0 of the `tokenizers` package.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..model.errors import BuilderRefused
from .files import gguf

_TEXT = 4 | 16 | 32
"""`llama_token_attr` of normal, user-defined and byte tokens; all other tokens are special."""
_BUILT_IN = 4 | 32
_META = "\u2581"

_Json = dict[str, Any]


def derive(file: Path, texts: Sequence[bytes], attrs: Sequence[int]) -> str:
    """The text of a `tokenizer.json` for a GGUF; `texts` and `attrs` have one entry per id.

    Raises `BuilderRefused` if the format cannot describe the vocabulary, and `LoadRefused` if the
    file is not a GGUF.
    """
    found = gguf.scan(file)
    kind = found.text("tokenizer.ggml.model")
    spelt = [text.decode("utf-8", "replace") for text in texts]
    if kind == "bert":
        spelt = [_continuation(text, attr) for text, attr in zip(spelt, attrs, strict=True)]
    vocabulary = {text: token for token, text in enumerate(spelt)}
    if len(vocabulary) < len(spelt):
        raise BuilderRefused("two tokens have the same text, which tokenizer.json does not allow")
    match kind:
        case "llama":
            merges = _merges(vocabulary, found.floats("tokenizer.ggml.scores"))
            prefix = found.flag("tokenizer.ggml.add_space_prefix", default=True)
            model = _bpe(vocabulary, merges, byte_fallback=True) | _metaspace(prefix=prefix)
        case "gemma4":
            merges = found.strings("tokenizer.ggml.merges")
            model = _bpe(vocabulary, merges, byte_fallback=True) | _metaspace(prefix=False)
        case "gpt2":
            merges = found.strings("tokenizer.ggml.merges")
            model = _bpe(vocabulary, merges, byte_fallback=False) | _byte_level()
        case "bert":
            model = _word_piece(vocabulary)
        case _:
            raise BuilderRefused(f"tokenizer.json cannot describe a tokenizer of the kind {kind!r}")
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(token, text, special=not attr & _TEXT)
            for token, (text, attr) in enumerate(zip(spelt, attrs, strict=True))
            if not attr & _BUILT_IN
        ],
        "post_processor": None,
    }
    return json.dumps(document | model)


def _added(token: int, text: str, *, special: bool) -> _Json:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token, "content": text, "special": special, **flags}


def _bpe(vocabulary: dict[str, int], merges: Sequence[str], *, byte_fallback: bool) -> _Json:
    whole = [pair for pair in merges if pair.replace(" ", "", 1) in vocabulary]
    model = {"type": "BPE", "vocab": vocabulary, "merges": whole, "byte_fallback": byte_fallback}
    unset = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")
    return {"model": {**dict.fromkeys(unset), "fuse_unk": False, "ignore_merges": False, **model}}


def _merges(vocabulary: dict[str, int], scores: Sequence[float]) -> list[str]:
    """Every pair of pieces that forms a piece, in SentencePiece's order of preference."""
    found: list[tuple[float, int, int, str]] = []
    for piece, token in vocabulary.items():
        for cut in range(1, len(piece)):
            left, right = vocabulary.get(piece[:cut]), vocabulary.get(piece[cut:])
            if left is not None and right is not None:
                found.append((-scores[token], left, right, f"{piece[:cut]} {piece[cut:]}"))
    return [pair for *_, pair in sorted(found)]


def _metaspace(*, prefix: bool) -> _Json:
    steps: list[_Json] = [{"type": "Replace", "pattern": {"String": " "}, "content": _META}]
    undo: list[_Json] = [
        {"type": "Replace", "pattern": {"String": _META}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        steps.insert(0, {"type": "Prepend", "prepend": _META})
        undo.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": undo},
    }


def _byte_level() -> _Json:
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"normalizer": None, "pre_tokenizer": step, "decoder": step}


def _word_piece(vocabulary: dict[str, int]) -> _Json:
    model = {"type": "WordPiece", "vocab": vocabulary, "unk_token": "[UNK]"}
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": model | {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
    }


def _continuation(text: str, attr: int) -> str:
    """The token in BERT's spelling, which marks continuations; llama.cpp marks word starts."""
    if not attr & _BUILT_IN:
        return text
    return text[1:] if text.startswith(_META) else "##" + text
