"""`outlines_core`: outlines-core's vocabulary, given true bytes.

Says what the engine itself keeps of a right table: every id of every byte string, or fewer.
Tokens that a runtime does not render are not entered.
"""

from __future__ import annotations

from typing import Any

from pipeline.builders import register
from pipeline.foreign import Claim, Foreign, Given, library


@register
class OutlinesCore(Foreign):
    """`outlines_core.Vocabulary(eos, {bytes: [ids]})`."""

    name = "outlines_core"
    package = "outlines-core"
    extra = "outlines-core"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        return enter(given)[0]


def enter(given: Given) -> tuple[Claim, Any]:
    """The claim, and the `Vocabulary` it was read from."""
    eos = given.eos if given.eos >= 0 else given.end_ids[0]
    entered: dict[bytes, list[int]] = {}
    special = [bool(true) for true in given.true_bytes]
    claimed = list(given.true_bytes)
    for token, true in enumerate(given.true_bytes):
        if token != eos and not given.hidden[token]:
            entered.setdefault(true, []).append(token)
            claimed[token], special[token] = b"", False
    vocabulary = library("outlines_core").Vocabulary(eos, entered)
    for true in entered:
        for token in vocabulary.get(true) or ():
            claimed[token] = true
    return Claim(claimed, special, vocabulary.get_eos_token_id()), vocabulary
