"""`xgrammar_byte_fallback`: XGrammar, told that the text is BYTE_FALLBACK (U+2581, `<0xNN>`).

Right for one kind of vocabulary, and XGrammar does not object to another.
"""

from __future__ import annotations

from pipeline.builders import register
from pipeline.builders.xgrammar import info, read
from pipeline.foreign import Claim, Foreign, Given


@register
class XgrammarByteFallback(Foreign):
    """`TokenizerInfo(vocabulary text, VocabType.BYTE_FALLBACK)`."""

    name = "xgrammar_byte_fallback"
    package = "xgrammar"
    extra = "xgrammar"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        return read(info(given, given.texts, "BYTE_FALLBACK"), given)
