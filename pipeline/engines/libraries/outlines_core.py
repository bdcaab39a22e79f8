"""outlines-core: its vocabulary made from true bytes, and its masks with that vocabulary.

This shows whether the engine keeps a correct table: every id of every byte string, or fewer. Tokens
that a runtime does not render are not entered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import builders
from ..probe import Compile, Probe, bits
from . import engines
from .package import Claim, Foreign, Given, Library, library


@builders.register
class OutlinesCoreTable(Foreign):
    """`outlines_core.Vocabulary(eos, {bytes: [ids]})`."""

    name = "outlines_core"
    package = "outlines-core"
    extra = "outlines-core"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        return _enter(given)[0]


def _enter(given: Given) -> tuple[Claim, Any]:
    """(the claim, the `Vocabulary` from which it was read)."""
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


@engines.register
class OutlinesCoreMasks(Library):
    """`Guide(Index(regex, vocabulary))`; a JSON Schema by `build_regex_from_schema`."""

    name = "outlines_core"
    package = "outlines-core"
    extra = "outlines-core"

    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """See the module."""
        claim, vocabulary = _enter(given)
        return claim, compiler(vocabulary, len(given.texts))


def compiler(vocabulary: Any, n_tokens: int) -> Compile:
    """The compiler for an `outlines_core.Vocabulary` of `n_tokens` ids."""
    module = library("outlines_core")

    def compile_(kind: str, text: str) -> Probe:
        if kind == "json":
            text = library("outlines_core.json_schema").build_regex_from_schema(text)
        index = module.Index(text, vocabulary)
        return _Probe(module, index, module.Guide(index), n_tokens, ())

    return compile_


@dataclass
class _Probe:
    module: Any
    index: Any
    guide: Any
    n_tokens: int
    taken: tuple[int, ...]

    def mask(self) -> bytes:
        return bits(self.guide.get_tokens(), self.n_tokens)

    def consume(self, token: int) -> bool:
        if not self.guide.accepts_tokens([token]):
            return False
        self.guide.advance(token_id=token, return_tokens=False)
        self.taken += (token,)
        return True

    def accepting(self) -> bool:
        return bool(self.index.is_final_state(self.guide.get_state()))

    def clone(self) -> Probe:
        guide = self.module.Guide(self.index)
        for token in self.taken:
            guide.advance(token_id=token, return_tokens=False)
        return _Probe(self.module, self.index, guide, self.n_tokens, self.taken)
