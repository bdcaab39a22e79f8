"""`xgrammar_auto`: XGrammar finds the kind of vocabulary out from a Hugging Face tokenizer.

The model's own `tokenizer.json` where `builder.tokenizer_json` names it, else one derived from the
GGUF.
"""

from __future__ import annotations

from pipeline.builders import register
from pipeline.builders.xgrammar import read
from pipeline.foreign import Claim, Foreign, Given, library


@register
class XgrammarAuto(Foreign):
    """`TokenizerInfo.from_huggingface`."""

    name = "xgrammar_auto"
    package = "xgrammar"
    extra = "xgrammar"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        tokenizer = library("transformers").PreTrainedTokenizerFast(
            tokenizer_object=library("tokenizers").Tokenizer.from_str(given.document())
        )
        made = library("xgrammar").TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=len(given.texts), stop_token_ids=given.end_ids
        )
        return read(made, given)
