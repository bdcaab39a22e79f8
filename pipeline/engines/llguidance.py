"""llguidance behind the engine protocol, through its C interface."""

from __future__ import annotations

import time

from ..native import llguidance
from .table import TokenTable


class Llguidance:
    """llguidance through its C interface; one native tokenizer per `TokenTable.identity`."""

    name = "llguidance"

    def __init__(self) -> None:
        self.version = llguidance.version()
        self._tokenizers: dict[tuple[str, object], llguidance.Tokenizer] = {}
        self.building = 0
        """CPU time spent to make native tokenizers, in nanoseconds."""

    def tokenizer(self, table: TokenTable) -> llguidance.Tokenizer:
        """The native tokenizer of a table, made on first use."""
        if table.identity not in self._tokenizers:
            begun = time.thread_time_ns()
            self._tokenizers[table.identity] = llguidance.Tokenizer(
                table.engine_bytes, eos=table.eos, tokenize=table.tokenize
            )
            self.building += time.thread_time_ns() - begun
        return self._tokenizers[table.identity]

    def compile(self, table: TokenTable, kind: str, grammar: str) -> llguidance.Matcher:
        """See `Engine.compile`."""
        return llguidance.Matcher(self.tokenizer(table), kind, grammar)

    def close(self) -> None:
        """See `Engine.close`."""
        for tokenizer in self._tokenizers.values():
            tokenizer.close()
        self._tokenizers.clear()
