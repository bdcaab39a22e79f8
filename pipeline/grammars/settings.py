"""The settings of the group `grammar`: which suites to run, and which of their cases."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.settings import MISSING, setting


@dataclass  # not frozen: OmegaConf creates an instance first and sets its fields later
class SuiteSettings:
    """One suite: a file in `datasets/` or elsewhere, or with `layout` an external collection."""

    file: str | None = MISSING
    """The suite file, or the folder of a collection."""
    layout: str | None = None
    """The file layout of a collection, by its name in `grammars/importers/`; null for a suite."""


@dataclass(frozen=True)
class GrammarSettings:
    """The chosen suites, by name, and which of their cases to run."""

    suites: dict[str, SuiteSettings] = field(default_factory=dict[str, SuiteSettings])
    """The chosen suites and collections by name; set with grammar=[a,b]."""
    path: str | None = None
    """The suite file of `grammar=path`, or the folder of a collection."""
    limit: int | None = setting(None, least=1)
    """Use only the first N cases of each suite (or schemas of each collection)."""
    sample: int | None = setting(None, least=1)
    """Draw N at random (`seed`), before `limit` applies."""
    seed: int = 0
    """Seed of that draw."""
    cases: tuple[str, ...] = ()
    """Use only the cases with these ids, such as [founding]; empty for all."""
    prompt: str = "One example:"
    """Prompt for imported items that have none; `{grammar}` is replaced by the grammar's text."""
    constraint: str | None = None
    """Grammar file for imported items that have none: JSON Schema (.json), Lark (.lark) or GBNF
    (.gbnf)."""
