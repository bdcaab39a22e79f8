"""The command that makes one thing again: a cell of a run, or the fault of a reproducer."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from ..model.names import IN_PROCESS


@dataclass(frozen=True)
class Recipe:
    """What is needed to name a cell's parts on the command line."""

    suites: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """The suites of the run: the name in `grammar=` → its file."""
    collections: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """The collections of others: the name in `grammar=` → the place."""
    known: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """The names that `model=`, `tokenizer=`, `grammar=` and `builder=` take."""

    @classmethod
    def of(
        cls, chosen: Mapping[str, Mapping[str, Any]], known: Mapping[str, frozenset[str]]
    ) -> Recipe:
        """From the suites of a closing record; without one they are taken to be named as told."""
        files: tuple[dict[str, str | None], ...] = ({}, {})
        for name, suite in chosen.items():
            files[suite.get("layout") is not None][name] = suite.get("file")
        return cls(*files, known)

    def command(self, row: Mapping[str, Any]) -> str:
        """`python -m pipeline run …` for one row of `cells`."""
        model, tokenizer = row["model"], row["tokenizer"]
        parts = self._named("model", model)
        if tokenizer != model or model in self.known.get("tokenizer", ()):
            parts += self._named("tokenizer", tokenizer)
        parts += [*self._suite(row["suite"]), f"grammar.cases=[{quoted(row['case'])}]"]
        if row["target"] == IN_PROCESS:
            parts += [f"builder=[{quoted(row['builder'])}]"]
        else:  # where the server was is not on record; its build's label stands for the builder
            parts += [f"target={row['target']}", f"target.label={quoted(row['builder'])}"]
        return " ".join(["python -m pipeline run", *map(shlex.quote, parts)])

    def _named(self, group: str, name: str) -> list[str]:
        known = self.known.get(group)
        if known is None or name in known:
            return [f"{group}={quoted(name)}"]
        return [f"{group}=path", f"{group}.path={quoted(name + '.gguf')}"]

    def _suite(self, suite: str) -> list[str]:
        """The suite by its group's name, which its file tells; else by its path."""
        if suite in self.collections:
            place = quoted(self.collections[suite] or "FOLDER")
            return [f"grammar={suite}", f"grammar.path={place}", "stages=[generate]"]
        for name, file in self.suites.items():
            if name != "path" and (name == suite or PurePath(file or "").stem == suite):
                return [f"grammar={quoted(name)}"]
        if "path" in self.suites:
            return ["grammar=path", f"grammar.path={quoted(self.suites['path'] or 'FILE.yaml')}"]
        return [f"grammar={quoted(suite)}"]


def quoted(value: str) -> str:
    """A value as Hydra's parser takes it."""
    return value if re.fullmatch(r"[A-Za-z0-9_./-]+", value) else json.dumps(value)


def reproducing(file: str, named: Sequence[str], under: Sequence[str]) -> str:
    """The command that shows the fault of a reproducer.

    `named`: what chooses the vocabulary (`Job.named`); `under`: the builder or the engine.
    """
    parts = ["grammar=path", f"grammar.path={quoted(file)}", "debug=reproducer", *named, *under]
    return " ".join(["python -m pipeline run", *map(shlex.quote, parts)])


def file_name(text: str) -> str:
    """A name as a file's name."""
    return re.sub(r"[^\w.-]", "_", text)


def release(made_by: str) -> str:
    """The version in `package version`; empty where nothing was released."""
    return made_by.partition(" ")[2]
