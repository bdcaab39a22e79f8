"""Cost of an audit, compared with the calls that every user of the vocabulary must make.

    python scripts/bench_audit.py [--tokenizer NAME] [--repeats N] [--json]

audit         load, true bytes, the tables of the five builders of llama.cpp's bridge, a native
              tokenizer for each different table, exactness probes, the masks at position 0
one call      `llguidance.llamacpp.lltokenizer_from_vocab` on the same vocabulary
table         the bytes and special marks of a table, from the live vocabulary
bare loop     only `llama_token_to_piece` of every id through ctypes, twice (without and with
              special tokens, both of which a table needs)

Times are seconds of wall time, medians of several interleaved rounds. Only the ratios can be
compared between machines. `audit_over_lltokenizer` (audit / one call) should be below 3,
`table_over_bare_loop` (table / bare loop) below 2. Peak memory is measured before the first call.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))

from pipeline.audit import round_trip
from pipeline.audit.token_table import MASK_PROBES, wrong_tokens
from pipeline.engines.builders import bridge
from pipeline.engines.llguidance import Llguidance
from pipeline.engines.protocol import allowed_ids
from pipeline.engines.table import Material
from pipeline.native import llama
from pipeline.runs.worker.tables import build
from pipeline.vocab import vocabulary
from pipeline.vocab.files import resolve
from pipeline.vocab.files.source import Source

_ROOT = Path(__file__).parent.parent
_BUILDERS = ("unfixed", "fixed", "attr_special", "bytes_fixed", "tokenize_fixed")


def audit(file: Path) -> None:
    """Run a whole audit, starting from the file."""
    with closing(llama.Model(file, vocab_only=True)) as model, closing(Llguidance()) as engine:
        read = vocabulary.read(model)
        material = Material(read, model.vocab, lambda _: True)
        tables = build(_BUILDERS, material, engine)
        if tables.refused:
            raise SystemExit(f"refused: {tables.refused}")
        probes = round_trip.probes(read, 0)
        canonical = bridge.raw_tokenize(model.vocab)
        for table in {table.hash: table for table in tables.made.values()}.values():
            list(wrong_tokens(read, table))
            tokenize = table.tokenize or engine.tokenizer(table).tokenize
            list(round_trip.measure(read, tokenize, canonical, lambda _: True, probes))
            for probe in MASK_PROBES:
                with closing(engine.compile(table, "lark", probe.grammar)) as matcher:
                    mask = matcher.mask()
                    assert mask is not None, matcher.error
                    allowed_ids(mask, read.n_tokens)


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call, in seconds."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def bare_loop(library: Any, handle: int, n_tokens: int) -> None:
    """Compute every piece and discard it."""
    call, buffer = library.llama_token_to_piece, ctypes.create_string_buffer(1 << 16)
    size, address = len(buffer), ctypes.addressof(buffer)
    for special in (False, True):
        for token in range(n_tokens):
            call(handle, token, address, size, 0, special)


def measure(name: str, repeats: int) -> dict[str, float]:
    """The ratios for one tokenizer, and the peak memory in MB."""
    fields = yaml.safe_load((_ROOT / "conf" / "tokenizer" / f"{name}.yaml").read_text("utf-8"))
    source = Source(**fields | {"members": tuple(fields["members"])})
    file = resolve.resolve(source, progress=False)
    if file.format != "gguf":
        raise SystemExit(f"{name} is not a GGUF; choose a tokenizer whose file is a GGUF.")
    audit(file.path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ecosystem: Any = importlib.import_module("llguidance.llamacpp")
    library = ctypes.CDLL(str(llama.library_path()))  # its own prototypes
    library.llama_token_to_piece.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32),
        ctypes.c_bool,
    ]
    costs: dict[str, list[float]] = {}
    with closing(llama.Model(file.path, vocab_only=True)) as model:
        vocab = model.vocab

        def table() -> None:
            bridge.entries(vocab.pieces(special=False), vocab.pieces(special=True))

        works: dict[str, Callable[[], object]] = {
            "audit": lambda: audit(file.path),
            "one call": lambda: ecosystem.lltokenizer_from_vocab(vocab.handle),
            "table": table,
            "bare loop": lambda: bare_loop(library, vocab.handle, vocab.n_tokens),
        }
        for _ in range(repeats):
            for what, work in works.items():
                costs.setdefault(what, []).append(seconds(work))
    medians = {what: statistics.median(found) for what, found in costs.items()}
    for what, median in medians.items():
        print(f"{what:12} {median:8.3f} s")
    return {
        "audit_over_lltokenizer": round(medians["audit"] / medians["one call"], 3),
        "table_over_bare_loop": round(medians["table"] / medians["bare loop"], 3),
        "peak_mb": round(peak),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokenizer", default="gemma4", metavar="NAME", help="(gemma4)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    asked = parser.parse_args()
    llama.start()
    found = measure(asked.tokenizer, asked.repeats)
    for name, value in found.items():
        print(f"{name:24} {value:8.3f}")
    if asked.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
