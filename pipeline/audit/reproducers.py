"""Find the smallest input that shows a finding.

Each cluster of findings (one builder, one mask verdict, one kind of damage) gets one reproducer.
Small grammars are proposed, smallest first; each is compiled and its first mask is judged. The
first that shows the same verdict and kind is kept. If none does, the walk's own grammar is kept
with the steps up to the finding.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from ..grammars.case import Case
from ..grammars.languages import ByteGrammar
from ..model.verdicts import MaskKind, MaskVerdict
from ..vocab.token_types import UNRENDERED
from . import small_cases, token_table
from .masks import FAULTS, Finding
from .upstream import Fault
from .walks import Walk, Walker

_FORCED_LIMIT = 64
"""Longest lookahead of forced text, in bytes."""
_TRIED = 8
"""Number of tokens tried from each end of the sorted wrong tokens of a kind."""


@dataclass(frozen=True)
class Reproducer:
    """A small case that shows a finding."""

    case: Case
    tokens: tuple[int, ...]
    """Tokens to take before the mask that shows it."""
    finding: Finding
    kind: str
    """`special`, `forced`, the damage to the token's bytes, `drifted` (an earlier token has wrong
    claimed bytes, so the engine's state differs from the text), or `none`."""

    @property
    def name(self) -> str:
        """The cluster, as a file name without its tokenizer and builder."""
        return f"{self.finding.verdict}-{self.kind}"

    @property
    def fault(self) -> Fault:
        """The fault for an upstream report."""
        return Fault(
            verdict=self.finding.verdict,
            kind=self.kind,
            case=self.case,
            grammar=("Grammar", self.case.grammar.text),
            tokens=self.tokens,
            ids=self.finding.ids,
            n_allowed=self.finding.n_allowed,
        )


def reproducers(walker: Walker, walks: Sequence[Walk]) -> Iterator[Reproducer]:
    """One reproducer for each cluster of findings in the walks of one builder."""
    seen: set[tuple[MaskVerdict, str]] = set()
    for walk in walks:
        for index, finding in enumerate(walk.findings):
            if finding.verdict not in FAULTS:
                continue
            index = min(index, len(walk.tokens))
            cluster = finding.verdict, _kind(walker, finding, walk.tokens[:index])
            if cluster not in seen:
                seen.add(cluster)
                yield _smallest(walker, walk, index, finding)


def token_reproducers(walker: Walker, seen: Container[str]) -> Iterator[Reproducer]:
    """One reproducer for each kind of damage to rendered tokens that is not in `seen`.

    `seen` holds the kinds that walks have found. A kind that no small grammar shows is left out.
    """
    kinds: dict[str, set[int]] = {}
    for token, true in enumerate(walker.vocabulary.rendered):
        kind = token_table.damage(true, walker.table.claimed[token]) if true else None
        if kind is not None and kind.value not in seen:
            kinds.setdefault(kind.value, set()).add(token)
    for kind, tokens in sorted(kinds.items()):
        found = _first_shown(walker, kind, tokens)
        if found is not None:
            yield found


def _first_shown(walker: Walker, kind: str, tokens: set[int]) -> Reproducer | None:
    """The smallest grammar whose first mask wrongly allows or misses one of these tokens."""
    true, claimed = walker.vocabulary.rendered, walker.table.claimed
    order = sorted(
        tokens, key=lambda token: (not small_cases.is_text(true[token]), len(true[token]), token)
    )
    proposals: dict[str, Case] = {}
    for token in [*order[:_TRIED], *order[-_TRIED:]]:
        for text in dict.fromkeys((true[token], claimed[token])):
            for case in (*small_cases.choice(text), *small_cases.repeated(text)):
                proposals.setdefault(case.grammar.text, case)
    for text in sorted(proposals, key=len):
        shown = _judge(walker, proposals[text], ())
        if shown is None or shown.verdict not in FAULTS:
            continue
        # The mask may have lower wrong ids of other kinds; the file must use an id of this kind.
        ids = [token for token in shown.ids if token in tokens]
        if ids and _kind(walker, replace(shown, ids=tuple(ids)), ()) == kind:
            return Reproducer(proposals[text], (), replace(shown, ids=tuple(ids)), kind)
    return None


def _smallest(walker: Walker, walk: Walk, index: int, finding: Finding) -> Reproducer:
    tokens = tuple(walk.tokens[:index])
    kind = _kind(walker, finding, tokens)
    proposals = [*_proposals(walker, walk, index, finding)]
    for case in sorted(proposals, key=lambda case: len(case.grammar.text)):
        shown = _judge(walker, case, ())
        if shown is not None and _same(walker, shown, finding, kind):
            return Reproducer(case, (), shown, kind)
    shown = _judge(walker, walk.case, tokens)
    kept = shown if shown is not None and shown.verdict is finding.verdict else finding
    return Reproducer(replace(walk.case, suite="reproducer"), tokens, kept, kind)


def _same(walker: Walker, shown: Finding, wanted: Finding, kind: str) -> bool:
    return shown.verdict is wanted.verdict and _kind(walker, shown, ()) == kind


def _judge(walker: Walker, case: Case, tokens: Sequence[int]) -> Finding | None:
    """The finding for the mask after these tokens; None if it is not reached."""
    grammar = ByteGrammar(case.grammar.engine_text()[1])
    matcher = walker.compile(case)
    try:
        if matcher.error or not all(matcher.consume(token) for token in tokens):
            return None
        prefix = b"".join(walker.vocabulary.rendered[token] for token in tokens)
        judge = walker.judge.with_own_cache()
        return judge.judge(grammar, prefix, matcher, matcher.mask(), random.Random(0))
    finally:
        matcher.close()


def _proposals(walker: Walker, walk: Walk, index: int, finding: Finding) -> Iterator[Case]:
    """Small grammars that may show the finding at their first mask."""
    if finding.verdict is MaskVerdict.STOP_MISSING:
        yield small_cases.pattern("z*")  # complete at once, and may continue
    for token in finding.ids[:3]:
        claimed, true = walker.table.claimed[token], walker.vocabulary.rendered[token]
        wanted = true if finding.verdict is MaskVerdict.INCOMPLETE else claimed
        for text in dict.fromkeys((wanted, wanted[:1])):
            yield from small_cases.choice(text)
    prefix = b"".join(walker.vocabulary.rendered[token] for token in walk.tokens[:index])
    forced = _forced(ByteGrammar(walk.case.grammar.engine_text()[1]), prefix)
    try:
        text = forced.decode("utf-8")
    except UnicodeDecodeError:
        return
    for part in dict.fromkeys((text[:1], text[:2], *text.split()[:1], text)):
        if part:
            yield small_cases.literal(part)


def _forced(grammar: ByteGrammar, prefix: bytes) -> bytes:
    """The bytes that must follow, while there is only one possible byte."""
    out = b""
    while len(out) < _FORCED_LIMIT:
        state = grammar.after(prefix + out)
        if state is None or state.complete():
            break
        following = [byte for byte in range(256) if state.fits([byte])]
        if len(following) != 1:
            break
        out += bytes(following)
    return out


def _kind(walker: Walker, finding: Finding, before: Sequence[int]) -> str:
    vocabulary = walker.vocabulary
    if any(vocabulary.attrs[token] & UNRENDERED for token in finding.ids):
        return MaskKind.SPECIAL
    if finding.forced:
        return MaskKind.FORCED
    for token in finding.ids:
        kind = token_table.damage(vocabulary.true_bytes[token], walker.table.claimed[token])
        if kind is not None:
            return kind.value
    claimed, true = walker.table.claimed, vocabulary.true_bytes
    return (
        MaskKind.DRIFTED
        if any(claimed[token] != true[token] for token in before)
        else MaskKind.NONE
    )
