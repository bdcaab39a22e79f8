"""The judge of a job's masks and texts; all stages share its oracle, cache and time budget."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...audit.canonical import Canonical
from ...audit.masks import Finding, MaskJudge
from ...audit.token_oracle import TokenOracle
from ...grammars.case import Case
from ...model.names import Row
from ...vocab.spelling import Spelling
from .session import Session

_SMALL_VOCABULARY = 65536
"""Largest vocabulary, in tokens, for which `engine.oracle=auto` judges every mask."""


@dataclass
class Judge:
    """The oracles and judges of one job, each created when it is first used."""

    session: Session

    @cached_property
    def oracle(self) -> TokenOracle:
        """The true next tokens of the vocabulary."""
        return TokenOracle(self.session.vocabulary.rendered)

    @cached_property
    def masks(self) -> MaskJudge:
        """The judge of every mask of this job."""
        budget = self.session.job.engine.oracle_budget
        return MaskJudge(self.session.vocabulary, self.oracle, budget)

    @cached_property
    def spelling(self) -> Spelling:
        """Byte-exact token sequences of the vocabulary."""
        return Spelling(self.session.vocabulary)

    @cached_property
    def canonical(self) -> Canonical:
        """The canonical tokenization: the split that a model was trained on."""
        return Canonical(self.session.material, self.spelling)

    @property
    def of_generation(self) -> str:
        """Which masks of generation are judged: `off`, `first` or `every`."""
        wanted = self.session.job.engine.oracle
        if wanted != "auto":
            return wanted
        return "every" if self.session.vocabulary.n_tokens <= _SMALL_VOCABULARY else "first"

    def state_row(self, builder: str, case: Case, walk: str, step: int, finding: Finding) -> Row:
        """A row of `states`: one judged mask."""
        return {
            "tokenizer": self.session.job.tokenizer,
            "builder": builder,
            "grammar": f"{case.suite}/{case.id}",
            "walk": walk,
            "step": step,
            "verdict": finding.verdict.value,
            "n_allowed": finding.n_allowed,
            "n_unsound": finding.n_unsound,
            "n_incomplete": finding.n_incomplete,
            "n_incomplete_forced": finding.n_incomplete_forced,
            "ids": list(finding.ids),
            "engine_free": finding.engine_free or None,
            "reason": finding.reason,
        }
