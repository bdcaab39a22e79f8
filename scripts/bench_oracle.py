"""Cost of proving a mask: each oracle's time per state, compared with the engine's mask time.

    python scripts/bench_oracle.py [--tokenizer NAME ...] [--states N] [--repeats N] [--json]

States are taken at several places of a legal text of each grammar. `grammar` is the engine over
single bytes (`languages.ByteGrammar`). `regex` is the oracle without engine (`byte_regex`), which
exists if the independent checker is a literal or a pattern. Each figure is the median over the
states of the median of several tries. Later tries of the regex oracle reuse the automaton of the
first one. Only the ratios can be compared between machines.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))

from pipeline.audit.token_oracle import TokenOracle
from pipeline.engines import builders
from pipeline.engines.llguidance import Llguidance
from pipeline.engines.table import Material
from pipeline.grammars import suites
from pipeline.grammars.case import Case
from pipeline.grammars.languages import Language, Languages
from pipeline.native import llama
from pipeline.vocab import vocabulary
from pipeline.vocab.files import resolve
from pipeline.vocab.files.source import Source
from pipeline.vocab.spelling import Spelling

_ROOT = Path(__file__).parent.parent
TOKENIZERS = ("llama_spm", "llama_bpe", "gemma4")
_WALKED = ("stop_or_letter", "spaced_letters", "words_and_space_runs", "marks", "free_text")
_MIDDLES = {
    "stop_or_letter": b"ab.c",
    "spaced_letters": b"so, a word and more. yes",
    "words_and_space_runs": b"one two   three  four",
    "marks": b"x = [1, 2]; # so on",
    "free_text": "Ünd so weiter, 公司".encode(),
    "json_object": b'{"my note":"so it is","by":"A. N',
    "founding": b"The quick brown fox jumps",
}
"""A legal prefix for each grammar; states are taken along it."""


def cases() -> list[Case]:
    """Grammars with a choice at every byte, one literal, one JSON object."""
    datasets = _ROOT / "datasets"
    walked = {case.id: case for case in suites.load_named("walks", datasets).cases}
    literal = suites.load_named("forced_literal", datasets).cases[0]
    return [*(walked[name] for name in _WALKED), literal, walked["json_object"]]


def median_of(repeats: int, work: Callable[[], object]) -> float:
    """Milliseconds, the median of several tries."""
    times: list[float] = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times)


def measure(name: str, n_states: int, repeats: int) -> Iterator[dict[str, Any]]:
    """One row for each grammar over the vocabulary of a tokenizer."""
    fields = yaml.safe_load((_ROOT / "conf" / "tokenizer" / f"{name}.yaml").read_text("utf-8"))
    source = Source(**fields | {"members": tuple(fields["members"])})
    file = resolve.resolve(source, progress=False)
    if file.format != "gguf":
        raise SystemExit(f"{name} is not a GGUF; choose a tokenizer whose file is a GGUF.")
    with closing(llama.Model(file.path, vocab_only=True)) as model, closing(Llguidance()) as engine:
        vocab = vocabulary.read(model)
        table = builders.get("fixed").build(Material(vocab, model.vocab, lambda _: True))
        oracle, spelling = TokenOracle(vocab.rendered), Spelling(vocab)
        for case in cases():
            ids = _spelt(spelling, case)
            languages = Languages.of(case)
            costs: dict[str, list[float]] = {"mask": [], "grammar": [], "regex": []}
            legal: list[int] = []
            for place in _places(len(ids), n_states):
                prefix = b"".join(vocab.rendered[token] for token in ids[:place])
                with closing(engine.compile(table, *case.grammar.engine_text())) as matcher:
                    if not all(matcher.consume(token) for token in ids[:place]):
                        raise SystemExit(f"{name}, {case.id}: {matcher.error}")
                    costs["mask"].append(_mask_cost(matcher, repeats))
                state = languages.grammar.after(prefix)
                assert state is not None, (case.id, prefix)
                legal.append(int(oracle.legal_in(state).sum()))
                costs["grammar"].append(_oracle_cost(oracle, languages.grammar, prefix, repeats))
                if languages.control is not None:
                    cost = _oracle_cost(oracle, languages.control, prefix, repeats)
                    costs["regex"].append(cost)
            medians = {kind: statistics.median(found) for kind, found in costs.items() if found}
            yield {
                "tokenizer": name,
                "n_tokens": vocab.n_tokens,
                "grammar": f"{case.suite}/{case.id}",
                "n_states": len(legal),
                "n_legal": int(statistics.median(legal)),
                **{f"{kind}_ms": round(cost, 3) for kind, cost in medians.items()},
                **{
                    f"{kind}_per_mask": round(medians[kind] / medians["mask"], 1)
                    for kind in ("grammar", "regex")
                    if kind in medians
                },
            }


def _spelt(spelling: Spelling, case: Case) -> list[int]:
    """The longest-token spelling of the grammar's text."""
    return next(ids for _, ids in spelling.spellings(_MIDDLES[case.id], random.Random(0)))


def _places(n: int, wanted: int) -> list[int]:
    """The start, and other places evenly spaced along the tokens."""
    return sorted({round(i * (n - 1) / max(wanted - 1, 1)) for i in range(wanted)})


def _mask_cost(matcher: Any, repeats: int) -> float:
    """Milliseconds of a mask. The engine caches it until the next token: each try uses a clone."""
    clones = [matcher.clone() for _ in range(repeats)]
    left = iter(clones)
    cost = median_of(repeats, lambda: next(left).mask())
    for clone in clones:
        clone.close()
    return cost


def _oracle_cost(oracle: TokenOracle, language: Language, prefix: bytes, repeats: int) -> float:
    return median_of(repeats, lambda: oracle.legal(language, prefix))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokenizer", action="append", metavar="NAME", help="one or several")
    parser.add_argument("--states", type=int, default=3, help="states per grammar (3)")
    parser.add_argument("--repeats", type=int, default=3, help="tries per state (3)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    asked = parser.parse_args()
    llama.start()
    rows: list[dict[str, Any]] = []
    form = "{:10} {:>8} {:30} {:>8} {:>9} {:>11} {:>9} {:>13} {:>11}"
    heads = ("tokenizer", "tokens", "grammar", "legal", "mask ms", "grammar ms", "regex ms")
    print(form.format(*heads, "grammar/mask", "regex/mask"))
    keys = ("tokenizer", "n_tokens", "grammar", "n_legal", "mask_ms", "grammar_ms", "regex_ms")
    for name in asked.tokenizer or TOKENIZERS:
        for row in measure(name, max(asked.states, 1), max(asked.repeats, 1)):
            rows.append(row)
            shown = (row.get(key, "–") for key in (*keys, "grammar_per_mask", "regex_per_mask"))
            print(form.format(*shown), flush=True)
    if asked.json:
        print(json.dumps({"states": rows}))


if __name__ == "__main__":
    main()
