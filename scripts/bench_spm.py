"""Speed of the SentencePiece encoder in MB/s, compared with `llama_tokenize` through ctypes.

    python scripts/bench_spm.py [--tokenizer NAME ...] [--bytes N] [--repeats N] [--json]

*First* is the speed of a new encoder, *again* the speed on the same text when its parts are cached.
Both are medians of several tries in one thread. *Ratio* is the first speed divided by llama.cpp's
on the same text. *Per byte* is the first cost per byte divided by that of the slower of the two
ordinary texts, English and code; for the texts that are made to be slow it must be at most 3.
English and code are the documentation and the sources of this Python. llama.cpp gets the first
100,000 bytes of each text, and its ids are compared with ours. Only the ratios can be compared
between machines.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import string
import sys
import sysconfig
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))
from pydoc_data import topics

from pipeline.native import llama
from pipeline.vocab import vocabulary
from pipeline.vocab.files import forge, resolve
from pipeline.vocab.files.source import Source, cache_dir
from pipeline.vocab.prefix_schemes import SpmPrefixScheme
from pipeline.vocab.sentencepiece.encoder import SpmEncoder
from pipeline.vocab.vocabulary import Vocabulary

_ROOT = Path(__file__).parent.parent
TOKENIZERS = ("llama_spm", "mistral_v3")
ORDINARY = ("English", "code")
_COMPARED = 100_000
"""Bytes per text for llama.cpp, whose time grows with the square of the number of specials."""


def texts(size: int) -> dict[str, bytes]:
    """Ordinary texts, then texts that are made to be slow, of `size` bytes each."""
    rng = random.Random(0)
    english = "\n".join(topics.topics.values()).encode("ascii", "replace")
    code = b""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        code += path.read_bytes() if len(code) < size else b""
    found = {
        "English": english * (size // len(english) + 1),
        "code": code,
        "one letter": b"a" * size,
        "one rare letter": b"q" * size,
        "spaces": b" " * size,
        "two letters alternating": b"ab" * (size // 2),
        "two letters at random": bytes(rng.choices(b"es", k=size)),
        "random letters": bytes(rng.choices(string.ascii_lowercase.encode(), k=size)),
        "random letters and spaces": bytes(
            rng.choices(b" " + string.ascii_letters.encode(), k=size)
        ),
        "random bytes": rng.randbytes(size),
        "random characters": "".join(
            map(chr, rng.choices([*range(32, 0xD800), *range(0xE000, 0x11000)], k=size // 3))
        ).encode(),
        "markers alternating": b"a</s>b" * (size // 6),
    }
    return {name: text[:size] for name, text in found.items()}


def median_of(repeats: int, prepare: Callable[[], Callable[[], object]]) -> float:
    """The median time, in seconds, of several calls of what `prepare` returns."""
    times: list[float] = []
    for _ in range(repeats):
        work = prepare()
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return statistics.median(times)


def measure(name: str, size: int, repeats: int) -> list[dict[str, Any]]:
    """One row for each text."""
    with closing(llama.Model(_file(name), vocab_only=True)) as model:
        vocab = vocabulary.read(model)
        rows: list[dict[str, Any]] = []
        for about, text in texts(size).items():
            rows.append(
                {"tokenizer": name, "text": about, **_row(model.vocab, vocab, text, repeats)}
            )
        ordinary = max(row["first_s"] / row["bytes"] for row in rows if row["text"] in ORDINARY)
        for row in rows:
            row["per_byte"] = row["first_s"] / row["bytes"] / ordinary
        return rows


def _row(native: llama.Vocab, vocab: Vocabulary, text: bytes, repeats: int) -> dict[str, Any]:
    scheme = SpmPrefixScheme.AFTER_EACH_SPECIAL
    used = SpmEncoder(vocab, scheme)
    used.encode(text)
    beginning = text[:_COMPARED]

    def native_once() -> list[int]:
        return native.tokenize(beginning, add_special=False, parse_special=True)

    def fresh() -> Callable[[], object]:
        new = SpmEncoder(vocab, scheme)
        return lambda: new.encode(text)

    return {
        "bytes": len(text),
        "first_s": median_of(repeats, fresh),
        "again_s": median_of(repeats, lambda: lambda: used.encode(text)),
        "llama_s": median_of(repeats, lambda: native_once) * len(text) / len(beginning),
        "same": used.encode(beginning) == native_once(),
    }


def _file(name: str) -> Path:
    fields = yaml.safe_load((_ROOT / "conf" / "tokenizer" / f"{name}.yaml").read_text("utf-8"))
    source = Source(**fields | {"members": tuple(fields["members"])})
    found = resolve.resolve(source, progress=False)
    if found.format == "sentencepiece":
        return forge.vocabulary_of(found.path, cache_dir())
    return found.path


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokenizer", action="append", metavar="NAME", help="one or several")
    parser.add_argument("--bytes", type=int, default=1_000_000, help="bytes per text (1000000)")
    parser.add_argument("--repeats", type=int, default=3, help="tries per text (3)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    asked = parser.parse_args()
    llama.start()
    rows: list[dict[str, Any]] = []
    form = "{:11} {:26} {:>11} {:>11} {:>11} {:>7} {:>9} {:>5}"
    print(
        form.format(
            "tokenizer",
            "text",
            "first MB/s",
            "again MB/s",
            "llama MB/s",
            "ratio",
            "per byte",
            "ids",
        )
    )
    for name in asked.tokenizer or TOKENIZERS:
        for row in measure(name, asked.bytes, max(asked.repeats, 1)):
            rows.append(row)
            speeds = [row["bytes"] / row[key] / 1e6 for key in ("first_s", "again_s", "llama_s")]
            shown = [f"{speed:.2f}" for speed in speeds]
            ratio, cost = f"{speeds[0] / speeds[2]:.1f}", f"{row['per_byte']:.2f}"
            same = "same" if row["same"] else "DIFFER"
            print(form.format(name, row["text"], *shown, ratio, cost, same), flush=True)
    if asked.json:
        print(json.dumps({"texts": rows}))


if __name__ == "__main__":
    main()
