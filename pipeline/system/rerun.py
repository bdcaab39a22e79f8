"""Commands that rerun one cell of a run, or reproduce one fault."""

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
    """The names needed to write the command that reruns a cell."""

    suites: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Suites of the run: the name in `grammar=` → the suite's file."""
    collections: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Imported collections of the run: the name in `grammar=` → the folder."""
    known: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """The options of `model=`, `tokenizer=`, `grammar=` and `builder=`, by group."""

    @classmethod
    def of(
        cls, chosen: Mapping[str, Mapping[str, Any]], known: Mapping[str, frozenset[str]]
    ) -> Recipe:
        """A recipe from the suites of a run's manifest; `chosen` is empty without a manifest."""
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
        else:  # the server's address is not recorded; the builder column holds its build label
            parts += [f"target={row['target']}", f"target.label={quoted(row['builder'])}"]
        return " ".join(["python -m pipeline run", *map(shlex.quote, parts)])

    def _named(self, group: str, name: str) -> list[str]:
        known = self.known.get(group)
        if known is None or name in known:
            return [f"{group}={quoted(name)}"]
        return [f"{group}=path", f"{group}.path={quoted(name + '.gguf')}"]

    def _suite(self, suite: str) -> list[str]:
        """The overrides that choose a suite: by option name if possible, else by path."""
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
    """A value, quoted if Hydra's override parser needs it."""
    return value if re.fullmatch(r"[A-Za-z0-9_./-]+", value) else json.dumps(value)


def reproducer_command(file: str, named: Sequence[str], under: Sequence[str]) -> str:
    """The command that reproduces the fault of a reproducer file.

    `named`: overrides that select the vocabulary (`Job.named`); `under`: overrides that select the
    builder or the engine.
    """
    parts = ["grammar=path", f"grammar.path={quoted(file)}", "debug=reproducer", *named, *under]
    return " ".join(["python -m pipeline run", *map(shlex.quote, parts)])


def file_name(text: str) -> str:
    """A name that is safe as a file name: other characters than `\\w`, `.` and `-` become `_`."""
    return re.sub(r"[^\w.-]", "_", text)


def release(made_by: str) -> str:
    """The version in the text `package version`; empty if there is none."""
    return made_by.partition(" ")[2]
