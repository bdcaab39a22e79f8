"""XGrammar: its `TokenizerInfo`, made in four ways from a vocabulary, and its masks.

The masks use true bytes (`VocabType.RAW`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import builders
from ..probe import Compile, Probe, bits
from . import engines
from .package import Claim, Foreign, Given, Library, library


@builders.register
class XgrammarRaw(Foreign):
    """`TokenizerInfo(true bytes, VocabType.RAW)`."""

    name = "xgrammar"
    package = "xgrammar"
    extra = "xgrammar"

    def claim(self, given: Given) -> Claim:
        """See the module."""
        return _read(_info(given, given.true_bytes, "RAW"), given)


@builders.register
class XgrammarAuto(Foreign):
    """`TokenizerInfo.from_huggingface`."""

    name = "xgrammar_auto"
    package = "xgrammar"
    extra = "xgrammar"

    def claim(self, given: Given) -> Claim:
        """Uses the model's own `tokenizer.json` if `builder.tokenizer_json` is set, else a derived
        one. XGrammar detects the type of the vocabulary."""
        tokenizer = library("transformers").PreTrainedTokenizerFast(
            tokenizer_object=library("tokenizers").Tokenizer.from_str(given.document())
        )
        made = library("xgrammar").TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=len(given.texts), stop_token_ids=given.end_ids
        )
        return _read(made, given)


@builders.register
class XgrammarByteFallback(Foreign):
    """`TokenizerInfo(vocabulary text, VocabType.BYTE_FALLBACK)`."""

    name = "xgrammar_byte_fallback"
    package = "xgrammar"
    extra = "xgrammar"

    def claim(self, given: Given) -> Claim:
        """Declares that the texts use U+2581 and `<0xNN>`. That is right for one type of
        vocabulary, and XGrammar accepts others too."""
        return _read(_info(given, given.texts, "BYTE_FALLBACK"), given)


@builders.register
class XgrammarByteLevel(Foreign):
    """`TokenizerInfo(vocabulary text, VocabType.BYTE_LEVEL)`."""

    name = "xgrammar_byte_level"
    package = "xgrammar"
    extra = "xgrammar"

    def claim(self, given: Given) -> Claim:
        """Declares that the texts are in GPT-2's byte-level alphabet. That is right for one type of
        vocabulary, and XGrammar accepts others too."""
        return _read(_info(given, given.texts, "BYTE_LEVEL"), given)


def _info(given: Given, vocabulary: Sequence[bytes], kind: str) -> Any:
    """A `TokenizerInfo` with every id at which the runtime stops."""
    module = library("xgrammar")
    return module.TokenizerInfo(
        list(vocabulary),
        module.VocabType[kind],
        vocab_size=len(vocabulary),
        stop_token_ids=given.end_ids,
    )


def _read(made: Any, given: Given) -> Claim:
    """The claim of a `TokenizerInfo`."""
    claimed: list[bytes] = list(made.decoded_vocab)
    ends: list[int] = made.stop_token_ids
    apart = {*ends, *made.special_token_ids}
    special = [token in apart and bool(claim) for token, claim in enumerate(claimed)]
    eos = given.eos if given.eos in ends else next(iter(ends), -1)
    return Claim(claimed, special, eos)


@engines.register
class XgrammarMasks(Library):
    """`GrammarCompiler.compile_regex` and `.compile_json_schema`, with their defaults."""

    name = "xgrammar"
    package = "xgrammar"
    extra = "xgrammar"

    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """See the module."""
        module = library("xgrammar")
        made = _info(given, given.true_bytes, "RAW")
        compiler = module.GrammarCompiler(made, max_threads=1)

        def compile_(kind: str, text: str) -> Probe:
            act = compiler.compile_regex if kind == "regex" else compiler.compile_json_schema
            return _Probe(module, module.GrammarMatcher(act(text)), len(given.texts))

        return _read(made, given), compile_


@dataclass(frozen=True)
class _Probe:
    module: Any
    matcher: Any
    n_tokens: int

    def mask(self) -> bytes:
        if self.matcher.is_terminated():
            return bits((), self.n_tokens)
        mask = self.module.allocate_token_bitmask(1, self.n_tokens)
        self.matcher.fill_next_token_bitmask(mask)
        return mask.numpy().tobytes()

    def consume(self, token: int) -> bool:
        return bool(self.matcher.accept_token(token))

    def accepting(self) -> bool:
        return bool(self.matcher.is_completed())

    def clone(self) -> Probe:
        return _Probe(self.module, self.matcher.fork(), self.n_tokens)
