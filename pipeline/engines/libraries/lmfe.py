"""lm-format-enforcer: its builder for llama.cpp, and its masks with that table.

The builder decodes each token after a `0`, as strict UTF-8, and enters U+FFFD for bytes that do
not decode (field case U-03). It leaves out the BOS and the EOS token.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .. import builders
from ..probe import Compile, Probe, bits
from . import engines
from .package import Claim, Foreign, Given, Library, library


@builders.register
class LmfeTable(Foreign):
    """`lmformatenforcer.integrations.llamacpp.build_token_enforcer_tokenizer_data`."""

    name = "lmfe"
    package = "lm-format-enforcer"
    extra = "lmfe"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        return _enter(given)[0]


def _enter(given: Given) -> tuple[Claim, Any]:
    """(the claim, the `TokenEnforcerTokenizerData` from which it was read)."""
    from ...native import llama  # loads llama.cpp

    integration = library("lmformatenforcer.integrations.llamacpp")
    data = integration.build_token_enforcer_tokenizer_data(llama.high_level(given.file))
    claimed = list(given.true_bytes)
    special = [bool(true) for true in given.true_bytes]
    for token, text, _ in data.regular_tokens:
        claimed[token], special[token] = text.encode(), False
    return Claim(claimed, special, data.eos_token_id), data


@engines.register
class LmfeMasks(Library):
    """`TokenEnforcer` with `RegexParser` or `JsonSchemaParser`."""

    name = "lmfe"
    package = "lm-format-enforcer"
    extra = "lmfe"

    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """See the module."""
        claim, data = _enter(given)
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
