"""The audit stage: token tables, first masks, exactness of tokenization, special tokens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

from ...audit import round_trip, special_tokens, token_table
from ...engines.builders import bridge
from ...engines.table import TokenTable
from ...model.names import Row
from ...model.verdicts import Status
from ...system import provenance
from .judge import Judge
from .session import Session
from .tables import Tables


def run(session: Session, tables: Tables, judge: Judge) -> None:
    """Send `tokenizers`, `tokens`, `masks`, `exactness` and `specials` of every builder."""
    known = cache(partial(_known, session, tables))
    for name in session.job.plan.builders:
        if not session.start_if_pending("audit", name):
            continue
        probes, facts = known()  # within a unit, because llama.cpp may crash in it
        whose: Row = {"tokenizer": session.job.tokenizer, "builder": name}
        table = tables.made.get(name)
        if table is None:
            session.channel.rows("tokenizers", [whose | facts | _refusal(session, tables, name)])
            session.channel.done("audit", name)
            continue
        wrong = list(token_table.wrong_tokens(session.vocabulary, table))
        mode = token_table.tokenize_mode(table, session.material)
        status: Row = {"status": Status.OK.value, "reason": table.note}
        rows: dict[str, Iterator[Row]] = {
            "tokens": iter(wrong),
            "masks": token_table.mask_rows(session.vocabulary, table, session.engine, judge.masks),
            "exactness": _exactness_rows(session, judge, table, probes),
            "specials": special_tokens.rows(session.vocabulary, table, session.engine, judge.masks),
        }
        for kind, found in rows.items():
            session.channel.rows(kind, (whose | row for row in found))
        counts = token_table.table_row(session.vocabulary, table, wrong, mode)
        session.channel.rows("tokenizers", [whose | facts | status | counts])
        session.channel.done("audit", name)


def _known(session: Session, tables: Tables) -> tuple[list[bytes], Row]:
    """(probes, facts of the vocabulary), the same for all builders.

    Probes that may crash llama.cpp have been tried in a child process.
    """
    probes = round_trip.probes(session.vocabulary, session.job.audit.seed)
    if any(table.tokenize for table in tables.made.values()):
        session.survival.try_all(probes)
    return probes, _vocabulary_facts(session)


def _exactness_rows(
    session: Session, judge: Judge, table: TokenTable, probes: list[bytes]
) -> Iterator[Row]:
    survival = session.survival
    found = round_trip.measure(
        session.vocabulary,
        session.engine.tokenizer(table).tokenize,
        judge.canonical.tokenize,
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
            "spellable": judge.spelling.can_spell(probed.probe),
            "reason": probed.reason,
        }


def _vocabulary_facts(session: Session) -> Row:
    vocabulary = session.vocabulary
    return {
        "vocab_type": vocabulary.type.value,
        "n_disagreements": len(vocabulary.disagreements),
        "add_space_prefix": vocabulary.add_space_prefix,
        "prefix_scheme": session.prompts.scheme,
        "clean_spaces": vocabulary.clean_spaces,
        "eos": vocabulary.eos,
        "eot": vocabulary.eot,
        "end_ids": sorted(vocabulary.end_ids),
        "text_ends": sorted(token for token in vocabulary.end_ids if vocabulary.rendered[token]),
        "tokenize_hash": _tokenize_hash(session),
        "vocab_hash": vocabulary.hash,
    }


def _tokenize_hash(session: Session) -> str | None:
    """sha256 of the runtime's splits of the probes; None if every probe might crash it.

    Two files with the same tokens can split differently, because of their pre-tokenizers.
    """
    tokenize = bridge.raw_tokenize(session.material.vocab)
    probes = round_trip.probes(session.vocabulary, seed=0)
    sure = [probe for probe in probes if not session.vocabulary.may_throw(probe)]
    return provenance.digest(*(tokenize(probe) for probe in sure)) if sure else None


def _refusal(session: Session, tables: Tables, builder: str) -> Row:
    said: Row = {
        "status": Status.BUILDER_REFUSED.value,
        "reason": str(tables.refused[builder]),
        "n_tokens": session.vocabulary.n_tokens,
    }
    made_by = tables.refused[builder].made_by or None
    return said | dict.fromkeys(token_table.COUNTS) | {"made_by": made_by}
