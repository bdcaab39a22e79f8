"""State walks: seeded paths through a builder's own masks, without a model.

Each strategy reaches different states. `adversarial` looks for wrong tokens. `given` follows the
tokens of a case, such as a reproducer. The others choose truly legal tokens while the mask has one,
so that a walk over a wrong table does not end at the first wrong token.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from ..engines.protocol import Matcher, allowed_ids
from ..engines.table import TokenTable
from ..grammars import checkers
from ..grammars.case import Case
from ..grammars.languages import ByteGrammar, Languages
from ..model.verdicts import MaskVerdict, Strategy, WalkEnd
from ..vocab.vocabulary import Vocabulary
from .masks import FAULTS, Finding, MaskJudge

_MAX_STEPS = 40
_STOP_CHANCE = 0.1


_SEEDED = [strategy for strategy in Strategy if strategy is not Strategy.GIVEN]


@dataclass
class Walk:
    """One walk and its findings."""

    case: Case
    strategy: Strategy
    tokens: list[int] = field(default_factory=list[int])
    findings: list[Finding] = field(default_factory=list[Finding])
    """One for each state, the last state included."""
    text: bytes = b""
    """The bytes that the runtime renders for `tokens`."""
    ended: WalkEnd = WalkEnd.STEP_LIMIT
    accepting: bool = False
    """Whether the byte-level grammar calls the text complete."""
    error: str | None = None
    """Why the grammar does not compile; None if it does. Such a walk has one finding, and `ended`
    says nothing."""
    objection: str | None = None
    """Why the independent checker rejects the text of a finished walk; None if it accepts it."""


@dataclass(frozen=True)
class Walker:
    """Walks the masks of one builder over one vocabulary."""

    vocabulary: Vocabulary
    table: TokenTable
    judge: MaskJudge
    compile: Callable[[Case], Matcher]

    def walk(self, case: Case, languages: Languages, strategy: Strategy, seed: str) -> Walk:
        """Walk a case once. The same seed gives the same walk."""
        grammar = languages.grammar
        rng = random.Random(seed)
        walk = Walk(case, strategy)
        matcher = self.compile(case)
        walk.error = matcher.error
        most = len(case.tokens) if strategy is Strategy.GIVEN else _MAX_STEPS
        try:
            while len(walk.tokens) < most and self._step(walk, languages, matcher, rng):
                pass
        finally:
            matcher.close()
        state = None if grammar.no_oracle else grammar.after(walk.text)
        walk.accepting = state is not None and state.complete()
        if walk.ended == WalkEnd.STOP_ID:
            walk.objection = checkers.check(case.check, walk.text)
        return walk

    def _step(self, walk: Walk, languages: Languages, matcher: Matcher, rng: random.Random) -> bool:
        """Judge a state and take a token. False if the walk has ended."""
        mask = matcher.mask() if matcher.error is None else None
        finding = self.judge.judge(
            languages.grammar, walk.text, matcher, mask, rng, languages.control
        )
        walk.findings.append(finding)
        if finding.verdict is MaskVerdict.AFTER_DIVERGENCE:
            walk.ended = WalkEnd.DIVERGED
            return False
        ids = [] if mask is None else [int(i) for i in allowed_ids(mask, self.vocabulary.n_tokens)]
        if not ids:
            walk.ended = WalkEnd.EMPTY_MASK
            return False
        if walk.strategy is Strategy.GIVEN:
            token = walk.case.tokens[len(walk.tokens)]
            if token not in ids:
                walk.ended = WalkEnd.MASKED
                return False
        else:
            token = self._pick(walk, languages.grammar, ids, rng)
        if token in self.vocabulary.end_ids:
            walk.ended = WalkEnd.STOP_ID
            return False
        walk.tokens.append(token)
        walk.text += self.vocabulary.rendered[token]
        if not matcher.consume(token):
            walk.ended = WalkEnd.CONSUME
            if finding.verdict not in FAULTS:
                refused = replace(finding, verdict=MaskVerdict.REFUSED_BY_CONSUME, ids=(token,))
                walk.findings[-1] = refused
            return False
        return True

    def _pick(self, walk: Walk, grammar: ByteGrammar, ids: list[int], rng: random.Random) -> int:
        ends = [token for token in ids if token in self.vocabulary.end_ids]
        if ends and (len(ends) == len(ids) or rng.random() < _STOP_CHANCE):
            return rng.choice(ends)
        ids = [token for token in ids if token not in self.vocabulary.end_ids]
        pieces = self.vocabulary.rendered
        if walk.strategy is Strategy.ADVERSARIAL:
            claimed, true = self.table.claimed, self.vocabulary.true_bytes
            return rng.choice([token for token in ids if claimed[token] != true[token]] or ids)
        truth = None if grammar.no_oracle else self.judge.legal(grammar, walk.text)
        if truth is not None:
            ids = [token for token in ids if truth[0][token]] or ids
        match walk.strategy:
            case Strategy.LONGEST:
                longest = max(len(pieces[token]) for token in ids)
                return rng.choice([token for token in ids if len(pieces[token]) == longest])
            case Strategy.SHORTEST:
                shortest = min(len(pieces[token]) for token in ids)
                return rng.choice([token for token in ids if len(pieces[token]) == shortest])
            case Strategy.SPLIT:
                target = pieces[rng.choice(ids)]
                fitting = [token for token in ids if target.startswith(pieces[token])]
                shorter = [token for token in fitting if len(pieces[token]) < len(target)]
                return rng.choice(shorter or fitting)
            case _:
                return rng.choice(ids)


def plan(
    walk_cases: list[Case], others: list[Case], n_walks: int, seed: int
) -> Iterator[tuple[Case, Strategy, str]]:
    """(case, strategy, seed) of each walk, spread evenly over cases and strategies.

    First, every case with `tokens` is walked along them; these walks do not count in `n_walks`. Of
    the others, two of three use the suite made for walking (`walk_cases`): its grammars leave a
    choice at every step. The third uses `others`, where much of the text is forced.
    """
    yield from given_walks([*walk_cases, *others], seed)
    taken = {True: 0, False: 0}
    for i in range(n_walks):
        pool = others if (i % 3 == 2 and others) or not walk_cases else walk_cases
        if not pool:
            return
        n = taken[pool is others]
        taken[pool is others] += 1
        case = pool[n % len(pool)]
        strategy = _SEEDED[(n + n // len(pool)) % len(_SEEDED)]
        yield case, strategy, f"{seed}/{case.suite}/{case.id}/{strategy}/{i}"


def given_walks(cases: Iterable[Case], seed: int) -> Iterator[tuple[Case, Strategy, str]]:
    """The walks along the `tokens` of cases."""
    for case in cases:
        if case.tokens:
            yield case, Strategy.GIVEN, f"{seed}/{case.suite}/{case.id}/{Strategy.GIVEN}"


def n_non_canonical(tokens: list[bytes], canonical: list[bytes]) -> int:
    """Number of tokens that do not cover the same bytes as a token of the canonical split.

    `tokens` and `canonical` are the bytes of each token, for the same text.
    """
    spans = {*_spans(canonical)}
    return sum(span not in spans for span in _spans(tokens))


def _spans(pieces: list[bytes]) -> list[tuple[int, int]]:
    ends = np.fromiter(accumulate(map(len, pieces)), np.int64, len(pieces)).tolist()
    return list(zip([0, *ends], ends, strict=False))
