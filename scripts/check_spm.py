"""Compare our SentencePiece encoder with `llama_tokenize`, and its lossless mode with the bytes.

    python scripts/check_spm.py [--tokenizer NAME ...] [--strings N] [--seed N]

Every string is encoded with and without parsing specials, then losslessly and decoded. Prints each
difference; the exit code is 1 if there is one. Needs a clone, because `tests/` generate the
strings; the tests run a short seeded part of this check.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent))

from pipeline.native import llama
from pipeline.vocab import vocabulary

TOKENIZERS = ("llama_spm", "mistral_v1", "mistral_v3", "phi3", "baichuan")


def check(name: str, n_strings: int, seed: int) -> tuple[int, int]:
    """(number of strings whose ids differ, number that are not lossless) for one vocabulary."""
    made: Any = import_module("support.spm_strings")
    file: Path = import_module("support.vocabularies").vocabulary_file(name)
    differing = lost = 0
    with closing(llama.Model(file, vocab_only=True)) as model:
        read = vocabulary.read(model)
        compared = made.Compared(read)
        for data in made.strings(read, n_strings, seed):
            for parse, encoder in compared.encoders.items():
                want = model.vocab.tokenize(data, add_special=False, parse_special=parse)
                got = encoder.encode(data)
                if got != want:
                    differing += 1
                    print(f"{name} parse_special={parse} {data!r}: {got}, llama.cpp {want}")
            if (back := compared.lost(data)) is not None:
                lost += 1
                print(f"{name} lossless {data!r}: {back!r}")
    return differing, lost


def main() -> int:
    """Compare and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokenizer", action="append", metavar="NAME", help="one or several")
    parser.add_argument(
        "--strings", type=int, default=100_000, help="strings per vocabulary (100000)"
    )
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    llama.start()
    worst = 0
    for name in asked.tokenizer or TOKENIZERS:
        differing, lost = check(name, asked.strings, asked.seed)
        print(f"{name}: {asked.strings} strings, {differing} differ, {lost} lost", flush=True)
        worst += differing + lost
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
