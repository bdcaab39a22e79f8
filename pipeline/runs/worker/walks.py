"""The walk stage: seeded state walks and accept/reject strings, without a model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

from ...audit import reproducers, special_tokens, walks
from ...audit.masks import FAULTS, MaskVerdict
from ...audit.strings import accepts, outcome
from ...audit.upstream import Accused, told
from ...audit.walks import Strategy, Walk, Walker
from ...engines.protocol import Matcher
from ...engines.table import TokenTable
from ...grammars import suites
from ...grammars.case import Case, StringGrammar
from ...grammars.languages import ByteGrammar, Languages
from ...model.names import Row
from ...system import provenance, rerun
from .session import Workbench


def run(bench: Workbench) -> None:
    """Send `states`, `walks`, `reproducers` and `strings` of every builder."""
    strings = bench.job.strings_suite and suites.load_strings(Path(bench.job.strings_suite))
    planned = cache(partial(_planned, bench))
    for builder in bench.job.builders:
        if not bench.start_if_pending("walks", builder):
            continue
        languages, plan = planned()  # within a unit: a vocabulary's own texts are compiled
        table = bench.tables.get(builder)
        if table is None:
            bench.channel.done("walks", builder)
            continue
        walker = Walker(
            vocabulary=bench.vocabulary,
            table=table,
            judge=bench.judge,
            compile=partial(_compile, bench, table),
        )
        done = [walker.walk(case, languages[case], how, seed) for case, how, seed in plan]
        for i, walk in enumerate(done):
            name = f"{i:04d}-{walk.strategy}"
            bench.channel.rows("states", _state_rows(bench, builder, name, walk))
            bench.channel.rows("walks", [_walk_row(bench, builder, name, walk)])
        bench.channel.rows("reproducers", _reproducer_rows(bench, builder, walker, done))
        if strings:
            bench.channel.rows("strings", _string_rows(bench, table, builder, strings.grammars))
        bench.channel.done("walks", builder)


def _planned(bench: Workbench) -> tuple[dict[Case, Languages], list[tuple[Case, Strategy, str]]]:
    """The languages of the cases that are walked, and (case, strategy, seed) of each walk."""
    made_for_it = list(suites.load(Path(bench.job.walks_suite)).cases)
    spelt = special_tokens.cases(bench.vocabulary) if bench.job.walks else []
    others = [case for case in bench.languages if not case.imported]
    plan = [
        *walks.plan(made_for_it, others, bench.job.walks, bench.job.audit_seed),
        *((case, Strategy.UNIFORM, case.id) for case in spelt),
    ]
    more = {case: Languages.of(case) for case in (*made_for_it, *spelt)}
    return bench.languages | more, plan


def _compile(bench: Workbench, table: TokenTable, case: Case) -> Matcher:
    return bench.engine.compile(table, *case.grammar.engine_text())


def _state_rows(bench: Workbench, builder: str, name: str, walk: Walk) -> Iterator[Row]:
    for step, finding in enumerate(walk.findings):
        yield bench.state_row(builder, walk.case, name, step, finding)


def _reproducer_rows(
    bench: Workbench, builder: str, walker: Walker, done: list[Walk]
) -> Iterator[Row]:
    tokenizer, made_by = bench.job.tokenizer, walker.table.made_by
    accused = Accused(
        tokenizer=tokenizer,
        vocabulary=bench.vocabulary,
        claimed=walker.table.claimed,
        name=f"builder {builder}",
        called=f"Token table `{builder}`" + (f" ({made_by})" if made_by else ""),
        file=(builder, rerun.release(made_by)),
        named=bench.job.named,
        under=[f"builder={rerun.quoted(builder)}"],
        versions=f"llama-cpp-python {provenance.versions()['llama-cpp-python']}, "
        f"{bench.engine.version}",
    )
    met = list(reproducers.reproducers(walker, done))
    met += reproducers.of_wrong_tokens(walker, {found.kind for found in met})
    for found in met:
        shown = found.fault
        yield {
            "tokenizer": tokenizer,
            "builder": builder,
            "name": found.name,
            "verdict": shown.verdict.value,
            "kind": shown.kind,
            "grammar": shown.grammar[1],
            "tokens": list(shown.tokens),
            "ids": list(shown.ids),
            "made_by": made_by or None,
            **asdict(told(accused, shown)),
        }


def _walk_row(bench: Workbench, builder: str, name: str, walk: Walk) -> Row:
    pieces = [bench.vocabulary.rendered[token] for token in walk.tokens]
    return {
        "tokenizer": bench.job.tokenizer,
        "builder": builder,
        "grammar": f"{walk.case.suite}/{walk.case.id}",
        "walk": name,
        "strategy": walk.strategy.value,
        "n_steps": len(walk.tokens),
        "n_non_canonical": walks.n_non_canonical(pieces, bench.canonical_pieces(walk.text)),
        "ended": walk.ended,
        "accepting": walk.accepting,
        "text": walk.text,
        "objection": walk.objection,
        "verdict": _walk_verdict(walk),
    }


def _walk_verdict(walk: Walk) -> str:
    """The worst of its states; for a walk that ended, whether its text is right as well."""
    order = list(MaskVerdict)
    worst = min((finding.verdict for finding in walk.findings), key=order.index)
    if worst in FAULTS:
        return worst.value
    if walk.ended == "stop_id" and (walk.objection or not walk.accepting):
        return "checker_disagrees" if walk.accepting else "not_accepting"
    return worst.value


def _string_rows(
    bench: Workbench,
    table: TokenTable,
    builder: str,
    grammars: tuple[StringGrammar, ...],
) -> Iterator[Row]:
    for grammar in grammars:
        kind, data = grammar.grammar.engine_text()
        language = ByteGrammar(data)
        wanted_texts = [(True, text) for text in grammar.accept]
        wanted_texts += [(False, text) for text in grammar.reject]
        with closing(bench.engine.compile(table, kind, data)) as start:
            for wanted, text in wanted_texts:
                rng = random.Random(f"{grammar.id}/{text!r}")
                for split, ids in bench.spelling.spellings(text, rng):
                    with closing(start.clone()) as matcher:
                        got = accepts(matcher, ids, bench.vocabulary)
                    yield {
                        "tokenizer": bench.job.tokenizer,
                        "builder": builder,
                        "grammar": grammar.id,
                        "string": text,
                        "split": split,
                        "wanted": wanted,
                        "accepted": got.accepted,
                        "failed_at": got.failed_at,
                        **outcome(wanted, got, text, language),
                    }
