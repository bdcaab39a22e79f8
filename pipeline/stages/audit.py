"""The audit stage: token tables, first masks, exactness of tokenization, special tokens."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline import audit, exactness, specials
from pipeline.builders import Tokenize
from pipeline.stages.workbench import Workbench
from pipeline.verdict import End
from pipeline.worker import Row


def run(bench: Workbench) -> None:
    """Send `tokenizers`, `tokens`, `masks`, `exactness` and `specials` of every builder."""
    probes = exactness.probes(bench.vocabulary, bench.job.audit_seed)
    bench.survival.try_all(probes)
    for name in bench.job.builders:
        whose: Row = {"tokenizer": bench.job.tokenizer, "builder": name}
        table = bench.tables.get(name)
        if table is None:
            bench.channel.rows("tokenizers", [_refused_row(bench, whose)])
            continue
        wrong = list(audit.wrong_tokens(bench.vocabulary, table))
        mode = audit.tokenize_mode(table, bench.material)
        facts = audit.table_row(bench.vocabulary, table, wrong, mode)
        status: Row = {"status": "ok", "reason": table.note}
        rows: dict[str, Iterator[Row]] = {
            "tokens": iter(wrong),
            "masks": audit.mask_rows(bench.vocabulary, table, bench.engine),
            "exactness": _exactness_rows(bench, name, probes),
            "specials": specials.rows(bench.vocabulary, table, bench.engine, bench.judge),
        }
        for kind, found in rows.items():
            bench.channel.rows(kind, (whose | row for row in found))
        bench.channel.rows("tokenizers", [whose | _vocabulary_facts(bench) | status | facts])


def _exactness_rows(bench: Workbench, name: str, probes: list[bytes]) -> Iterator[Row]:
    table = bench.tables[name]
    tokenizer = bench.engine.tokenizer(table)
    tokenize: Tokenize = table.tokenize or tokenizer.tokenize
    survives = bench.material.survives
    found = exactness.measure(
        bench.vocabulary,
        tokenize,
        bench.canonical,
        survives if table.calls_llama else lambda _: True,
        probes,
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
        "vocab_hash": vocabulary.hash,
    }


def _refused_row(bench: Workbench, whose: Row) -> Row:
    return (
        whose
        | _vocabulary_facts(bench)
        | {
            "status": End.BUILDER_REFUSED.value,
            "reason": bench.refusals[str(whose["builder"])],
            "n_tokens": bench.vocabulary.n_tokens,
        }
        | dict.fromkeys(audit.COUNTS)
    )
