"""The generation stage: the target generates a cell for every case and builder."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import cast

from ...engines.protocol import Mask
from ...generation import targets
from ...generation.cell import Cell
from ...generation.generating import Generated, GeneratingTarget, Generation, Inputs
from ...generation.request import Request
from ...grammars import checkers
from ...model.names import SENTINEL, Row
from ...vocab.token_types import attr_name
from ..protocol import Timings, repeats
from . import cell_rows
from .judge import Judge
from .session import Session
from .tables import Tables


def run(session: Session, tables: Tables, judge: Judge) -> None:
    """Send `cells`, `steps` and, for judged masks, `states`."""
    target = cast(GeneratingTarget, targets.get(session.job.target.name))
    requests = list(_requests(session))
    watcher = _Watcher(session, judge, requests)
    inputs = _inputs(session, tables, judge, watcher)
    with target.opened(inputs, requests) as generation:
        cells = _Cells(session, tables, watcher, generation)
        pending = session.pending
        missing = (one for one in requests if one.unit in pending or _is_sentinel(one, session))
        able = [request for request in missing if not cells.send_without_generating(request)]
        apart = session.job.plan.apart and target.shows_tables
        for some in [[request] for request in able] if apart else [able]:
            for request in some:
                session.channel.started(*request.unit)
            for done in generation.generate(some):
                cells.send(done)
        if able and (timings := generation.timings()) is not None:
            names = {"model": session.job.model, "tokenizer": session.job.tokenizer}
            session.channel.send(Timings(names | timings))


def _is_sentinel(request: Request, session: Session) -> bool:
    """Whether this is a sentinel case for a server; a resumed job sends these again."""
    return session.job.remote and request.case.suite == SENTINEL


def _requests(session: Session) -> Iterator[Request]:
    job = session.job
    for case in session.languages:
        for builder, repeat in product(job.plan.builders, repeats(job.repeats)):
            yield Request(
                key=cell_rows.key(job, builder, case),
                case=case,
                builder=builder,
                max_tokens=job.engine.max_tokens or case.max_tokens,
                repeat=repeat,
            )


def _inputs(session: Session, tables: Tables, judge: Judge, watcher: _Watcher) -> Inputs:
    job = session.job
    return Inputs(
        model_name=job.model,
        model=session.model,
        file=session.file,
        vocabulary=session.vocabulary,
        material=session.material,
        prompts=session.prompts,
        languages=session.languages,
        oracle=judge.oracle,
        canonical=judge.canonical,
        tables=tables.made,
        grammar_engine=session.engine,
        target=job.target,
        engine=job.engine,
        sampling=job.sampling,
        device=session.device,
        n_seq=job.runtime.n_seq,
        n_threads=session.n_threads,
        log=Path(job.log or ""),
        clock=session.clock,
        observe=None if judge.of_generation == "off" else watcher.observe,
        alive=session.channel.answered,
    )


class _Cells:
    """Sends the rows of cells."""

    def __init__(
        self, session: Session, tables: Tables, watcher: _Watcher, generation: Generation
    ) -> None:
        self._session = session
        self._tables = tables
        self._watcher = watcher
        self._generation = generation

    def send_without_generating(self, request: Request) -> bool:
        """Send the row of a cell that cannot be generated; False for one that can."""
        refusal = self._tables.refused.get(request.builder)
        if request.case.refused:
            outcome = cell_rows.not_generated(request)
        elif refusal is not None:
            outcome = cell_rows.without_table(refusal)
        else:
            return False
        self._session.channel.rows("cells", [self._row(request) | outcome])
        self._session.channel.done(*request.unit)
        return True

    def send(self, done: Generated) -> None:
        """Send the rows of a cell that was generated."""
        request, judged, channel = done.request, done.judged, self._session.channel
        row = self._row(request) | {
            "verdict": judged.verdict.value,
            "cause": judged.cause.value,
            "cause_by": judged.cause_by.value if judged.cause_by else None,
            "text_valid": judged.text_valid,
            "format_valid": checkers.format_valid(request.case.check, judged.output),
            "output": judged.output,
            "culprit_step": judged.culprit,
            "n_legal_bytes": judged.n_legal,
            "reason": judged.reason,
        }
        channel.rows("states", self._watcher.rows.pop(request.identity, []))
        channel.rows("steps", self._steps(done))
        channel.rows("cells", [row | done.columns])
        channel.done(*request.unit)

    def _row(self, request: Request) -> Row:
        """The columns that identify a cell and what produced it; see `cell_rows.cell_row`."""
        table = self._tables.made.get(request.builder)
        return cell_rows.cell_row(self._session, self._generation, request, table)

    def _steps(self, done: Generated) -> Iterator[Row]:
        job, vocabulary, request = self._session.job, self._session.vocabulary, done.request
        table = self._tables.made.get(request.builder)
        for i, step in enumerate(done.steps):
            yield {
                "model": job.model,
                "tokenizer": job.tokenizer,
                "builder": request.builder,
                "suite": request.case.suite,
                "case": request.case.id,
                "repeat": request.repeat,
                "cell_key": request.key,
                "step": i,
                "token": step.token,
                "attribute": attr_name(int(vocabulary.attrs[step.token])),
                "claimed": table.claimed[step.token] if table else None,
                "true": vocabulary.true_bytes[step.token],
                "rendered": vocabulary.rendered[step.token],
                "n_allowed": step.n_allowed,
                "origin": step.origin.value if step.origin else None,
            }


class _Watcher:
    """Judges the masks of running cells against the oracle."""

    def __init__(self, session: Session, judge: Judge, requests: list[Request]) -> None:
        self._session = session
        self._judge = judge
        self._requests = {request.identity: request for request in requests}
        self.rows: dict[str, list[Row]] = {}

    def observe(self, cell: Cell, mask: Mask) -> None:
        if cell.steps and self._judge.of_generation == "first":
            return
        request = self._requests[cell.key]
        rendered = self._session.vocabulary.rendered
        prefix = b"".join(rendered[step.token] for step in cell.steps)
        rng = random.Random(f"{cell.key}/{len(cell.steps)}")
        languages = self._session.languages[request.case]
        finding = self._judge.masks.judge(
            languages.grammar, prefix, cell.matcher, mask, rng, languages.control
        )
        walk = f"generate/{self._session.job.model}" + request.identity.removeprefix(request.key)
        self.rows.setdefault(cell.key, []).append(
            self._judge.state_row(request.builder, request.case, walk, len(cell.steps), finding)
        )
