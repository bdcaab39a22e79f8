"""Given texts walked through a builder's matcher as tokens: accepted, or refused where.

A text is spelt by byte-exact token sequences: the longest token at each place, and seeded
spellings that no tokenizer would choose. Accepting includes the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..engines.protocol import Matcher, allowed_ids
from ..grammars.languages import ByteGrammar
from ..vocab.vocabulary import Vocabulary


@dataclass(frozen=True)
class Replayed:
    """How far a matcher went along a spelling."""

    accepted: bool
    """Whether it took all tokens and calls the text complete."""
    failed_at: int | None
    """The step it failed at, the number of tokens where only the end is missing; None for none."""
    may_stop: bool = False
    """Whether the mask of the complete text allows an id on which the runtime stops."""


def accepts(matcher: Matcher, ids: Sequence[int], vocabulary: Vocabulary) -> Replayed:
    """Walk a spelling to its end, the end itself included."""
    if matcher.error is not None:
        return Replayed(False, 0)
    for step, token in enumerate(ids):
        if not matcher.consume(token):
            return Replayed(False, step)
    if not matcher.accepting():
        return Replayed(False, len(ids))
    mask = matcher.mask()
    allowed = set[int]() if mask is None else {*allowed_ids(mask, vocabulary.n_tokens)}
    may_stop = not vocabulary.end_ids or bool(vocabulary.end_ids & allowed)
    return Replayed(True, None if may_stop else len(ids), may_stop)


def outcome(wanted: bool, got: Replayed, text: bytes, language: ByteGrammar) -> dict[str, object]:
    """`verdict` (`ok`, `valid_refused`, `invalid_accepted`, `no_stop`) and whose fault it is.

    The byte-level grammar decides between them: where it sides with the file, the builder is to
    blame; where it sides with the matcher, the engine. `no_stop` is a text that is accepted, and
    after which no id is allowed on which the runtime stops: the builder named the wrong end.
    """
    if wanted == got.accepted:
        if wanted and not got.may_stop:
            return {"verdict": "no_stop", "cause": "builder"}
        return {"verdict": "ok", "cause": "none"}
    by_bytes = language.match(text).complete
    return {
        "verdict": "valid_refused" if wanted else "invalid_accepted",
        "cause": "builder" if by_bytes == wanted else "engine",
    }
