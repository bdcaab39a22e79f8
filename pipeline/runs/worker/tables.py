"""The token tables of the job's builders, and the reasons of builders that refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from ...audit import token_table
from ...engines import builders
from ...engines.llguidance import Llguidance
from ...engines.table import Material, TokenTable
from ...model.errors import BuilderRefused, described
from .session import Session


@dataclass(frozen=True)
class Tables:
    """The result of each builder by name: a table or a refusal."""

    made: dict[str, TokenTable] = field(default_factory=dict[str, TokenTable])
    refused: dict[str, BuilderRefused] = field(default_factory=dict[str, BuilderRefused])
    """Builders that refused this vocabulary, with their reasons."""

    @staticmethod
    def of(session: Session) -> Tables:
        """The tables of a job; each builder is announced as a unit."""
        return build(
            session.job.plan.builders,
            session.material,
            session.engine,
            started=lambda name: session.channel.started("build", name),
            done=lambda name: session.channel.done("build", name),
            apart=session.job.plan.apart,
        )


def _built(name: str, material: Material) -> TokenTable:
    """A builder's table, checked. Raises BuilderRefused, also for an exception of the builder."""
    try:
        table = builders.get(name).build(material)
        if fault := token_table.misfit(material.vocabulary, table):
            raise BuilderRefused(fault, table.made_by)
    except BuilderRefused:
        raise
    except Exception as error:
        raise BuilderRefused(f"the builder raised {described(error)}") from error
    return table


def _ignore(_: str) -> None:
    pass


def build(
    names: Iterable[str],
    material: Material,
    engine: Llguidance,
    *,
    started: Callable[[str], None] = _ignore,
    done: Callable[[str], None] = _ignore,
    apart: bool = False,
) -> Tables:
    """Let each builder make its table, and make an engine tokenizer from each table.

    Making tokenizers takes most of the time. Those of different tables are made in parallel; with
    `apart` one after the other, so that a crash identifies its builder. `started` and `done` are
    called with the name of each builder.
    """
    tables = Tables()
    tokenizers: dict[tuple[str, object], Future[object]] = {}

    def finish(name: str) -> None:
        try:
            if name in tables.made:
                tokenizers[tables.made[name].identity].result()
        except BuilderRefused as refusal:
            tables.refused[name] = refusal
            del tables.made[name]
        done(name)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        begun: list[str] = []
        for name in names:
            started(name)
            begun.append(name)
            try:
                table = tables.made[name] = _built(name, material)
                if table.identity not in tokenizers:
                    tokenizers[table.identity] = pool.submit(engine.tokenizer, table)
            except BuilderRefused as refusal:
                tables.refused[name] = refusal
            if apart:
                finish(begun.pop())
        for name in begun:
            finish(name)
    return tables
