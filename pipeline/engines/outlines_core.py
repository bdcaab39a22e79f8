"""outlines-core's own masks, over true bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.builders.outlines_core import enter
from pipeline.engines import Compile, Library, Probe, bits, register
from pipeline.foreign import Claim, Given, library


@register
class OutlinesCore(Library):
    """`Guide(Index(regex, vocabulary))`; a JSON Schema by `build_regex_from_schema`."""

    name = "outlines_core"
    package = "outlines-core"
    extra = "outlines-core"

    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """See the module."""
        claim, vocabulary = enter(given)
        return claim, compiler(vocabulary, len(given.texts))


def compiler(vocabulary: Any, n_tokens: int) -> Compile:
    """The compiler over an `outlines_core.Vocabulary`."""
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
