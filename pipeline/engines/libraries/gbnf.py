"""llama.cpp's own grammar sampler (GBNF), as a control: it uses pieces and no token table.

A regular expression is parsed by Python's parser and written as GBNF. A JSON Schema is converted by
llama-cpp-python's converter.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ..probe import Compile, Probe
from . import engines
from .package import Claim, Given, Library, library

_ops: Any = import_module("re._constants")
_parser: Any = import_module("re._parser")
_MEANT = "]^-"
"""Characters with a special meaning between brackets."""


@engines.register
class Gbnf(Library):
    """`llama_sampler_init_grammar`."""

    name = "gbnf"
    package = "llama-cpp-python"

    def claim(self, given: Given) -> tuple[Claim, Compile]:
        """See the module."""
        from ...native import grammar_sampler, llama  # loads llama.cpp

        model = llama.Model(Path(given.file), vocab_only=True)

        def compile_(kind: str, text: str) -> Probe:
            if kind == "json":
                grammar = library("llama_cpp.llama_grammar").json_schema_to_gbnf(text)
            else:
                grammar = f"root ::= {_sequence(_parser.parse(text))}"
            return _Probe(grammar_sampler.GrammarSampler(model, grammar), frozenset(given.end_ids))

        special = [
            bool(hidden and true)
            for hidden, true in zip(given.hidden, given.true_bytes, strict=True)
        ]
        return Claim(given.true_bytes, special, given.eos), compile_


@dataclass(frozen=True)
class _Probe:
    sampler: Any
    end_ids: frozenset[int]

    def mask(self) -> bytes:
        return self.sampler.mask()

    def consume(self, token: int) -> bool:
        if not self.sampler.mask()[token >> 3] >> (token & 7) & 1:
            return False  # llama.cpp would throw in C++ and end the process
        self.sampler.accept(token)
        return True

    def accepting(self) -> bool:
        mask = self.sampler.mask()
        return any(mask[token >> 3] >> (token & 7) & 1 for token in self.end_ids)

    def clone(self) -> Probe:
        return _Probe(self.sampler.clone(), self.end_ids)


def _sequence(tree: Any) -> str:
    return " ".join(_item(op, value) for op, value in tree) or '""'


def _item(op: Any, value: Any) -> str:
    if op is _ops.LITERAL:
        return f'"{_char(value, chr(34))}"'
    if op is _ops.ANY:
        return r"[^\n]"
    if op is _ops.IN:
        return _class(value)
    if op is _ops.BRANCH:
        return f"({' | '.join(_sequence(way) for way in value[1])})"
    if op is _ops.SUBPATTERN:
        return f"({_sequence(value[3])})"
    if op in (_ops.MAX_REPEAT, _ops.MIN_REPEAT):
        least, most, inner = value
        top = "" if most is _ops.MAXREPEAT else most
        return f"({_sequence(inner)}){{{least},{top}}}"
    raise ValueError(f"{op} cannot be written as GBNF")


def _class(members: Any) -> str:
    negate = "^" if members[0][0] is _ops.NEGATE else ""
    out = ""
    for op, value in members[bool(negate) :]:
        if op is _ops.LITERAL:
            out += _char(value, _MEANT)
        elif op is _ops.RANGE:
            out += f"{_char(value[0], _MEANT)}-{_char(value[1], _MEANT)}"
        else:
            raise ValueError(f"{op} cannot be written as GBNF")
    return f"[{negate}{out}]"


def _char(code: int, quoted: str) -> str:
    """A character in GBNF quotes or brackets; control characters and `quoted` are escaped."""
    if code < 0x20 or code == 0x7F or chr(code) in quoted + "\\":
        return f"\\x{code:02X}"
    return chr(code)
