"""XGrammar's own masks, over true bytes (`VocabType.RAW`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.builders.xgrammar import info, read
from pipeline.engines import Compile, Library, Probe, bits, register
from pipeline.foreign import Claim, Given, library


@register
class Xgrammar(Library):
    """`GrammarCompiler.compile_regex`, `.compile_json_schema`, as they come."""

    name = "xgrammar"
    package = "xgrammar"
    extra = "xgrammar"

    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """See the module."""
        module = library("xgrammar")
        made = info(given, given.true_bytes, "RAW")
        compiler = module.GrammarCompiler(made, max_threads=1)

        def compile_(kind: str, text: str) -> Probe:
            act = compiler.compile_regex if kind == "regex" else compiler.compile_json_schema
            return _Probe(module, module.GrammarMatcher(act(text)), len(given.texts))

        return read(made, given), compile_


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
