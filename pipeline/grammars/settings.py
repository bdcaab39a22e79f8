"""The settings of the group `grammar`: which suites, which of their cases."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.settings import MISSING, setting


@dataclass  # not frozen: OmegaConf makes these one by one, and then could not set a field
class SuiteSettings:
    """One suite: a file of `datasets/`, or any path; with a layout, a collection of others."""

    file: str | None = MISSING
    """The suite file, or the folder of a collection."""
    layout: str | None = None
    """How a collection lies on the disk: a name of `grammars/importers/`; null for a suite file."""


@dataclass(frozen=True)
class GrammarSettings:
    """The suites chosen, by name, and which of their cases."""

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
    """Only cases with these ids, such as [founding]; all where empty."""
    prompt: str = "One example:"
    """Prompt for imported items that have none; `{grammar}` is replaced by the grammar's text."""
    constraint: str | None = None
    """A JSON Schema (.json), Lark (.lark) or GBNF (.gbnf) file for prompts without a grammar."""
