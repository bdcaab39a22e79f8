"""`xgrammar_byte_level`: XGrammar, told that the text is BYTE_LEVEL (GPT-2's spelling of bytes).

Right for one kind of vocabulary, and XGrammar does not object to another.
"""

from __future__ import annotations

from pipeline.builders import register
from pipeline.builders.xgrammar import info, read
from pipeline.foreign import Claim, Foreign, Given


@register
class XgrammarByteLevel(Foreign):
    """`TokenizerInfo(vocabulary text, VocabType.BYTE_LEVEL)`."""

    name = "xgrammar_byte_level"
    package = "xgrammar"
    extra = "xgrammar"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        return read(info(given, given.texts, "BYTE_LEVEL"), given)
