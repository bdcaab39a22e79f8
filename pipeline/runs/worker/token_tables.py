"""The audit stage: token tables, first masks, exactness of tokenization, special tokens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

from ...audit import round_trip, special_tokens, token_table
from ...engines.builders import bridge
from ...engines.table import Tokenize
from ...model.names import Row
from ...model.verdicts import End
from ...system import provenance
from .session import Workbench


def run(bench: Workbench) -> None:
    """Send `tokenizers`, `tokens`, `masks`, `exactness` and `specials` of every builder."""
    known = cache(partial(_known, bench))
    for name in bench.job.builders:
        if not bench.start_if_pending("audit", name):
            continue
        probes, facts = known()  # within a unit: llama.cpp tokenizes for it
        whose: Row = {"tokenizer": bench.job.tokenizer, "builder": name}
        table = bench.tables.get(name)
        if table is None:
            bench.channel.rows("tokenizers", [whose | facts | _refusal(bench, name)])
            bench.channel.done("audit", name)
            continue
        wrong = list(token_table.wrong_tokens(bench.vocabulary, table))
        mode = token_table.tokenize_mode(table, bench.material)
        status: Row = {"status": "ok", "reason": table.note}
        rows: dict[str, Iterator[Row]] = {
            "tokens": iter(wrong),
            "masks": token_table.mask_rows(bench.vocabulary, table, bench.engine, bench.judge),
            "exactness": _exactness_rows(bench, name, probes),
            "specials": special_tokens.rows(bench.vocabulary, table, bench.engine, bench.judge),
        }
        for kind, found in rows.items():
            bench.channel.rows(kind, (whose | row for row in found))
        counts = token_table.table_row(bench.vocabulary, table, wrong, mode)
        bench.channel.rows("tokenizers", [whose | facts | status | counts])
        bench.channel.done("audit", name)


def _known(bench: Workbench) -> tuple[list[bytes], Row]:
    """What builders share: the probes, those that may kill tried, and the vocabulary's facts."""
    probes = round_trip.probes(bench.vocabulary, bench.job.audit_seed)
    if any(table.tokenize for table in bench.tables.values()):
        bench.survival.try_all(probes)
    return probes, _vocabulary_facts(bench)


def _exactness_rows(bench: Workbench, name: str, probes: list[bytes]) -> Iterator[Row]:
    table = bench.tables[name]
    tokenizer = bench.engine.tokenizer(table)
    tokenize: Tokenize = table.tokenize or tokenizer.tokenize
    survival = bench.survival
    found = round_trip.measure(
        bench.vocabulary,
        tokenize,
        bench.canonical,
        survival if table.calls_llama else lambda _: True,
        [probe for probe in probes if survival.tried(probe)] if table.calls_llama else probes,
    )
    for probed in found:
        yield {
            "probe": probed.probe,
            "ids": list(probed.ids),
            "got": probed.got,
            "verdict": probed.verdict.value,
            "class": probed.what.value,
        }


def _vocabulary_facts(bench: Workbench) -> Row:
    vocabulary = bench.vocabulary
    return {
        "vocab_type": vocabulary.type.value,
        "n_disagreements": len(vocabulary.disagreements),
        "add_space_prefix": vocabulary.add_space_prefix,
        "prefix_scheme": bench.scheme,
        "clean_spaces": vocabulary.clean_spaces,
        "eos": vocabulary.eos,
        "eot": vocabulary.eot,
        "end_ids": sorted(vocabulary.end_ids),
        "tokenize_hash": _tokenize_hash(bench),
        "vocab_hash": vocabulary.hash,
    }


def _tokenize_hash(bench: Workbench) -> str | None:
    """sha256 of how the runtime splits the probes; None where none of them is sure to come back.

    Two files of the same tokens may split differently: by their pre-tokenizer.
    """
    tokenize = bridge.raw_tokenize(bench.material.vocab)
    probes = round_trip.probes(bench.vocabulary, seed=0)
    sure = [probe for probe in probes if not bench.vocabulary.may_throw(probe)]
    return provenance.digest(*(tokenize(probe) for probe in sure)) if sure else None


def _refusal(bench: Workbench, builder: str) -> Row:
    said: Row = {
        "status": End.BUILDER_REFUSED.value,
        "reason": str(bench.refusals[builder]),
        "n_tokens": bench.vocabulary.n_tokens,
    }
    made_by = bench.refusals[builder].made_by or None
    return said | dict.fromkeys(token_table.COUNTS) | {"made_by": made_by}
