"""`lmfe`: lm-format-enforcer's builder for llama.cpp.

It decodes each token after a `0`, strictly as UTF-8, and enters U+FFFD for what does not decode
(field case U-03); the first and the last token of a text are left out.
"""

from __future__ import annotations

from typing import Any

from pipeline.builders import register
from pipeline.foreign import Claim, Foreign, Given, library


@register
class Lmfe(Foreign):
    """`lmformatenforcer.integrations.llamacpp.build_token_enforcer_tokenizer_data`."""

    name = "lmfe"
    package = "lm-format-enforcer"
    extra = "lmfe"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        return enter(given)[0]


def enter(given: Given) -> tuple[Claim, Any]:
    """The claim, and the `TokenEnforcerTokenizerData` it was read from."""
    from pipeline import llama

    integration = library("lmformatenforcer.integrations.llamacpp")
    data = integration.build_token_enforcer_tokenizer_data(llama.high_level(given.file))
    claimed = list(given.true_bytes)
    special = [bool(true) for true in given.true_bytes]
    for token, text, _ in data.regular_tokens:
        claimed[token], special[token] = text.encode(), False
    return Claim(claimed, special, data.eos_token_id), data
