"""The settings of the group `audit`: how deep the audit looks."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.settings import setting


@dataclass(frozen=True)
class AuditSettings:
    """How deep the audit looks."""

    walks: int = setting(20, least=0)
    """State walks per tokenizer and builder, spread over the suites and strategies."""
    seed: int = 0
    """Seed of the walks."""
    walks_suite: str = "walks.yaml"
    """Suite that is walked in addition to the chosen ones: choices at spaces and punctuation."""
    strings_suite: str | None = "strings.yaml"
    """Grammars with strings to accept and reject; null for none."""
    engines: tuple[str, ...] = ()
    """Released engines whose own masks are audited too: xgrammar, outlines_core, outlines, lmfe,
    gbnf."""
    engines_suite: str = "engines.yaml"
    """Grammars that all of these engines support."""
    references: tuple[str, ...] = ()
    """Python interpreters whose reference tokenizers show where the prefix goes; `here`: this one.
    """
