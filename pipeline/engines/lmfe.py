"""lm-format-enforcer's own masks, over its builder for llama.cpp."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pipeline.builders.lmfe import enter
from pipeline.engines import Compile, Library, Probe, bits, register
from pipeline.foreign import Claim, Given, library


@register
class Lmfe(Library):
    """`TokenEnforcer` with `RegexParser` or `JsonSchemaParser`."""

    name = "lmfe"
    package = "lm-format-enforcer"
    extra = "lmfe"

    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """See the module."""
        claim, data = enter(given)
        module = library("lmformatenforcer")

        def compile_(kind: str, text: str) -> Probe:
            if kind == "regex":
                parser = module.RegexParser(text)
            else:
                parser = module.JsonSchemaParser(json.loads(text))
            return _Probe(module.TokenEnforcer(data, parser), len(given.texts), claim.eos, ())

        return claim, compile_


@dataclass
class _Probe:
    enforcer: Any
    n_tokens: int
    eos: int
    taken: tuple[int, ...]

    def mask(self) -> bytes:
        return bits(self._allowed(), self.n_tokens)

    def consume(self, token: int) -> bool:
        if token not in self._allowed():
            return False
        self.taken += (token,)
        return True

    def accepting(self) -> bool:
        return self.eos in self._allowed()

    def clone(self) -> Probe:
        return _Probe(self.enforcer, self.n_tokens, self.eos, self.taken)

    def _allowed(self) -> list[int]:
        return self.enforcer.get_allowed_tokens(list(self.taken)).allowed_tokens
