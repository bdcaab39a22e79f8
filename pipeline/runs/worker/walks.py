"""The walk stage: seeded state walks and accept/reject strings, without a model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

from ...audit import acceptance, reproducers, special_tokens, walks
from ...audit.masks import FAULTS
from ...audit.upstream import FaultSource, fault_texts
from ...audit.walks import Walk, Walker
from ...engines.protocol import Matcher
from ...engines.table import TokenTable
from ...grammars import suites
from ...grammars.case import Case, StringGrammar
from ...grammars.languages import ByteGrammar, Languages
from ...model.names import Row
from ...model.verdicts import (
    Cause,
    InstanceVerdict,
    MaskVerdict,
    Status,
    Strategy,
    WalkEnd,
    WalkVerdict,
)
from ...system import provenance, rerun
from .judge import Judge
from .session import Session
from .tables import Tables


def run(session: Session, tables: Tables, judge: Judge) -> None:
    """Send `states`, `walks`, `reproducers` and `strings` of every builder."""
    asked = session.job.audit
    strings = asked.strings_suite and suites.load_strings(Path(asked.strings_suite))
    planned = cache(partial(_planned, session))
    for builder in session.job.plan.builders:
        if not session.start_if_pending("walks", builder):
            continue
        languages, plan = planned()  # within a unit, because compiling may crash
        table = tables.made.get(builder)
        if table is None:
            session.channel.done("walks", builder)
            continue
        walker = Walker(
            vocabulary=session.vocabulary,
            table=table,
            judge=judge.masks,
            compile=partial(_compile, session, table),
        )
        done = [walker.walk(case, languages[case], how, seed) for case, how, seed in plan]
        for i, walk in enumerate(done):
            name = f"{i:04d}-{walk.strategy}"
            session.channel.rows("states", _state_rows(judge, builder, name, walk))
            session.channel.rows("walks", [_walk_row(session, judge, builder, name, walk)])
        session.channel.rows("reproducers", _reproducer_rows(session, builder, walker, done))
        if strings:
            session.channel.rows(
                "strings", _string_rows(session, judge, table, builder, strings.grammars)
            )
        session.channel.done("walks", builder)


def _planned(session: Session) -> tuple[dict[Case, Languages], list[tuple[Case, Strategy, str]]]:
    """The languages of the cases that are walked, and (case, strategy, seed) of each walk."""
    asked = session.job.audit
    walk_cases = list(suites.load(Path(asked.walks_suite)).cases)
    spelt = special_tokens.cases(session.vocabulary) if asked.walks else []
    others = [case for case in session.languages if not case.imported]
    plan = [
        *walks.plan(walk_cases, others, asked.walks, asked.seed),
        *((case, Strategy.UNIFORM, case.id) for case in spelt),
    ]
    more = {case: Languages.of(case) for case in (*walk_cases, *spelt)}
    return session.languages | more, plan


def _compile(session: Session, table: TokenTable, case: Case) -> Matcher:
    return session.engine.compile(table, *case.grammar.engine_text())


def _state_rows(judge: Judge, builder: str, name: str, walk: Walk) -> Iterator[Row]:
    for step, finding in enumerate(walk.findings):
        yield judge.state_row(builder, walk.case, name, step, finding)


def _reproducer_rows(
    session: Session, builder: str, walker: Walker, done: list[Walk]
) -> Iterator[Row]:
    tokenizer, made_by = session.job.tokenizer, walker.table.made_by
    source = FaultSource(
        tokenizer=tokenizer,
        vocabulary=session.vocabulary,
        claimed=walker.table.claimed,
        name=f"builder {builder}",
        report_name=f"Token table `{builder}`" + (f" ({made_by})" if made_by else ""),
        file=(builder, rerun.release(made_by)),
        vocabulary_overrides=session.job.named,
        overrides=[f"builder={rerun.quoted(builder)}"],
        versions=f"llama-cpp-python {provenance.versions()['llama-cpp-python']}, "
        f"{session.engine.version}",
    )
    met = list(reproducers.reproducers(walker, done))
    met += reproducers.token_reproducers(walker, {found.kind for found in met})
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
            **asdict(fault_texts(source, shown)),
        }


def _walk_row(session: Session, judge: Judge, builder: str, name: str, walk: Walk) -> Row:
    pieces = [session.vocabulary.rendered[token] for token in walk.tokens]
    compiled = walk.error is None
    return {
        "tokenizer": session.job.tokenizer,
        "builder": builder,
        "grammar": f"{walk.case.suite}/{walk.case.id}",
        "walk": name,
        "strategy": walk.strategy.value,
        "n_steps": len(walk.tokens),
        "n_non_canonical": walks.n_non_canonical(pieces, judge.canonical.pieces(walk.text)),
        "ended": walk.ended.value if compiled else None,
        "accepting": walk.accepting if compiled else None,
        "text": walk.text,
        "objection": walk.objection,
        "verdict": _walk_verdict(walk) if compiled else None,
        "status": (Status.OK if compiled else Status.GRAMMAR_ERROR).value,
        "reason": walk.error or "",
    }


def _walk_verdict(walk: Walk) -> str:
    """The worst verdict of its states; for a finished walk also the verdict on its text."""
    order = list(MaskVerdict)
    worst = min((finding.verdict for finding in walk.findings), key=order.index)
    if worst in FAULTS:
        return worst.value
    if walk.ended is WalkEnd.STOP_ID and (walk.objection or not walk.accepting):
        wrong = WalkVerdict.CHECKER_DISAGREES if walk.accepting else WalkVerdict.NOT_ACCEPTING
        return wrong.value
    return worst.value


def _string_rows(
    session: Session,
    judge: Judge,
    table: TokenTable,
    builder: str,
    grammars: tuple[StringGrammar, ...],
) -> Iterator[Row]:
    """A row for each text and split; nothing is walked if the grammar does not compile."""
    for grammar in grammars:
        kind, data = grammar.grammar.engine_text()
        language = ByteGrammar(data)
        wanted_texts = [(True, text) for text in grammar.accept]
        wanted_texts += [(False, text) for text in grammar.reject]
        with closing(session.engine.compile(table, kind, data)) as start:
            for wanted, text in wanted_texts:
                rng = random.Random(f"{grammar.id}/{text!r}")
                for split, ids in judge.spelling.spellings(text, rng):
                    if start.error is not None:
                        walked, verdict = None, InstanceVerdict.GRAMMAR_ERROR
                        cause = Cause.GRAMMAR if language.no_oracle else Cause.BUILDER
                    else:
                        with closing(start.clone()) as matcher:
                            walked = acceptance.walk(matcher, ids, text, session.vocabulary)
                        by_bytes = wanted == walked.accepted or language.match(text).complete
                        verdict, cause = acceptance.judge(wanted, walked, by_bytes, by_bytes)
                    yield {
                        "tokenizer": session.job.tokenizer,
                        "builder": builder,
                        "grammar": grammar.id,
                        "string": text,
                        "split": split.value,
                        "wanted": wanted,
                        "accepted": walked and walked.accepted,
                        "failed_at": walked and walked.step,
                        "verdict": verdict.value,
                        "cause": cause.value,
                        "reason": start.error,
                    }
