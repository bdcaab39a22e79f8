"""Compare one mask with the oracle: what it wrongly allows, and what it misses.

A mask is judged at the *true* prefix: the bytes that the runtime renders for the tokens so far.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ..engines.protocol import Mask, Matcher
from ..grammars.languages import ByteGrammar, Language
from ..model.verdicts import FAULTY_MASKS, Agreement, MaskVerdict
from ..vocab.vocabulary import Vocabulary
from .token_oracle import Legal, TokenOracle

_KEPT_IDS = 20
"""Number of ids that a finding keeps; its counts are complete."""
_TRIED = 12
"""Number of allowed tokens of a state that are tried on clones."""


Truth = tuple[Legal, bool]
"""(ids that may come next, whether the text may end)."""

FAULTS = frozenset(FAULTY_MASKS)
"""Verdicts that are faults."""


@dataclass(frozen=True)
class Finding:
    """The result for one mask."""

    verdict: MaskVerdict
    n_allowed: int = 0
    n_unsound: int = 0
    n_incomplete: int = 0
    n_incomplete_forced: int = 0
    forced: bool = False
    """Whether the one allowed token was forced by the builder's tokenization."""
    ids: tuple[int, ...] = ()
    """At most 20 of the ids with the fault, lowest first."""
    reason: str = ""
    """Why there is no oracle."""
    engine_free: str = ""
    """Whether the engine-free oracle `agrees` or `disagrees`; empty if there is none."""


@dataclass
class MaskJudge:
    """Judges masks of one vocabulary; legal sets are cached by (language, true prefix)."""

    vocabulary: Vocabulary
    oracle: TokenOracle
    budget: float
    """Seconds of oracle time; after that, states are `over_budget`."""
    spent: float = 0.0
    _legal: dict[tuple[Language, bytes], tuple[npt.NDArray[np.uint8], bool] | None] = field(
        default_factory=dict[tuple[Language, bytes], tuple[npt.NDArray[np.uint8], bool] | None]
    )

    def with_own_cache(self) -> MaskJudge:
        """A copy with its own cache and budget, for a state that is judged only once."""
        return replace(self, spent=0.0, _legal={})

    def legal(self, language: Language, prefix: bytes) -> Truth | None:
        """The legal ids after a prefix, and whether the text may end; None for an illegal prefix.

        The cache compares languages by identity and keeps them alive. Otherwise a new language
        could get the address of a dead one, and with it the wrong answer.
        """
        key = (language, prefix)
        if key not in self._legal:
            begun = time.perf_counter()
            state = language.after(prefix)
            self._legal[key] = (
                None
                if state is None
                else (np.packbits(self.oracle.legal_in(state)), state.complete())
            )
            self.spent += time.perf_counter() - begun
        found = self._legal[key]
        if found is None:
            return None
        bits = np.unpackbits(found[0], count=self.vocabulary.n_tokens).view(np.bool_)
        return bits, found[1]

    def judge(
        self,
        grammar: ByteGrammar,
        prefix: bytes,
        matcher: Matcher,
        mask: Mask | None,
        rng: random.Random,
        control: Language | None = None,
    ) -> Finding:
        """Judge the mask of a state.

        At most 12 allowed tokens, drawn by `rng`, are consumed on clones of the matcher. `control`
        is the same language without the engine, if there is one; it fills `engine_free`.
        """
        if grammar.no_oracle is not None:
            return Finding(MaskVerdict.NO_ORACLE, reason=grammar.no_oracle)
        if self.spent > self.budget:
            spent = f"the oracle's budget of {self.budget:g} s is spent"
            return Finding(MaskVerdict.OVER_BUDGET, reason=spent)
        truth = self.legal(grammar, prefix)
        n_tokens = self.vocabulary.n_tokens
        allowed = np.zeros(n_tokens, np.bool_)
        if mask is not None:
            bits = np.unpackbits(mask.view(np.uint8), count=n_tokens, bitorder="little")
            allowed = bits.view(np.bool_)
        agreed = "" if control is None else self._agreement(truth, control, prefix)
        if truth is None:
            return Finding(
                MaskVerdict.AFTER_DIVERGENCE, n_allowed=int(allowed.sum()), engine_free=agreed
            )
        return replace(self._compare(allowed, *truth, matcher, rng), engine_free=agreed)

    def _agreement(self, truth: Truth | None, control: Language, prefix: bytes) -> str:
        other = self.legal(control, prefix)
        if truth is None or other is None:
            return Agreement.AGREES if truth is other else Agreement.DISAGREES
        same = truth[1] == other[1] and bool((truth[0] == other[0]).all())
        return Agreement.AGREES if same else Agreement.DISAGREES

    def _compare(
        self,
        allowed: npt.NDArray[np.bool_],
        legal: Legal,
        complete: bool,
        matcher: Matcher,
        rng: random.Random,
    ) -> Finding:
        ends = np.zeros_like(allowed)
        ends[list(self.vocabulary.end_ids)] = True
        unsound = allowed & ~legal & ~ends
        missing = legal & ~allowed & ~ends
        n_allowed, n_missing = int(allowed.sum()), int(missing.sum())
        may_stop = bool((allowed & ends).any())
        forced = n_allowed == 1 and matcher.forced()[:1] == [int(np.flatnonzero(allowed)[0])]
        refused = [] if unsound.any() else self._refused(allowed & ~ends, matcher, rng)
        if unsound.any():
            verdict, ids = MaskVerdict.UNSOUND, np.flatnonzero(unsound)
        elif may_stop and not complete:
            verdict, ids = MaskVerdict.STOP_TOO_EARLY, np.flatnonzero(allowed & ends)
        elif refused:
            verdict, ids = MaskVerdict.REFUSED_BY_CONSUME, np.array(refused)
        elif not n_allowed and n_missing:
            verdict, ids = MaskVerdict.EMPTY, np.flatnonzero(missing)
        elif complete and not may_stop and ends.any():
            verdict, ids = MaskVerdict.STOP_MISSING, np.flatnonzero(ends)
        elif n_missing and not forced:
            verdict, ids = MaskVerdict.INCOMPLETE, np.flatnonzero(missing)
        elif n_missing:
            verdict, ids = MaskVerdict.INCOMPLETE_FORCED, np.flatnonzero(allowed)
        else:
            verdict, ids = MaskVerdict.EXACT, np.empty(0, np.int64)
        return Finding(
            verdict,
            n_allowed=n_allowed,
            n_unsound=int(unsound.sum()),
            n_incomplete=0 if forced else n_missing,
            n_incomplete_forced=n_missing if forced else 0,
            forced=forced,
            ids=tuple(int(i) for i in ids[:_KEPT_IDS]),
        )

    def _refused(
        self, allowed: npt.NDArray[np.bool_], matcher: Matcher, rng: random.Random
    ) -> list[int]:
        """The allowed tokens that a clone refuses to consume, of at most 12 that are tried."""
        ids = [int(i) for i in np.flatnonzero(allowed)]
        tried = ids if len(ids) <= _TRIED else rng.sample(ids, _TRIED)
        refused: list[int] = []
        for token in sorted(tried):
            clone = matcher.clone()
            if not clone.consume(token):
                refused.append(token)
            clone.close()
        return refused
