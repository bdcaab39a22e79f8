"""`llguidance_hf`: llguidance over a Hugging Face `tokenizer.json`.

The model's own file where `builder.tokenizer_json` names it, else one derived from the GGUF.
"""

from __future__ import annotations

from pipeline.builders import register
from pipeline.builders.llguidance_llamacpp import read
from pipeline.foreign import Claim, Foreign, Given, library


@register
class LlguidanceHf(Foreign):
    """`LLTokenizer(json)`, as `llguidance.hf.from_tokenizer` calls it."""

    name = "llguidance_hf"
    package = "llguidance"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        n_tokens = len(given.texts)
        tokenizer = library("llguidance").LLTokenizer(
            given.document(), n_vocab=n_tokens, eos_token=given.eos
        )
        return read(tokenizer, n_tokens)
