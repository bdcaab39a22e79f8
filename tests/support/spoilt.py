"""Builders that are `fixed` with one fault, which some law or suite must detect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline.engines import builders
from pipeline.engines.builders import bridge
from pipeline.engines.table import Material, TokenTable
from pipeline.vocab.token_types import Attr


@dataclass
class Broken:
    """`fixed`, with one fault."""

    spoil: Callable[[TokenTable, Material], TokenTable]
    name: str = "broken"
    version: int = 1

    def build(self, material: Material) -> TokenTable:
        return self.spoil(builders.get("fixed").build(material), material)


def drops_one_ids_bytes(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, claimed=[*table.claimed[:5000], b"", *table.claimed[5001:]])


def forgets_an_id(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, claimed=table.claimed[:-1], special=table.special[:-1])


def strips_one_space(table: TokenTable, _: Material) -> TokenTable:
    at = next(i for i, claim in enumerate(table.claimed) if claim[:1] == b" " and len(claim) > 2)
    claimed = [claim[1:] if i == at else claim for i, claim in enumerate(table.claimed)]
    return replace(table, claimed=claimed)


def shifts_ids(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, claimed=[*table.claimed[1:], table.claimed[0]])


def swaps_two(table: TokenTable, _: Material) -> TokenTable:
    claimed = [*table.claimed]
    claimed[5000], claimed[5001] = claimed[5001], claimed[5000]
    return replace(table, claimed=claimed)


def collapses_through_text(table: TokenTable, _: Material) -> TokenTable:
    claimed = [claim.decode("utf-8", "replace").encode() for claim in table.claimed]
    return replace(table, claimed=claimed)


def ends_elsewhere(table: TokenTable, material: Material) -> TokenTable:
    return replace(table, eos=max(material.vocabulary.bos, 0))


def ends_nowhere(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, eos=-1)


def marks_text_special(table: TokenTable, material: Material) -> TokenTable:
    attrs = material.vocabulary.attrs.tolist()
    at = next(i for i, attr in enumerate(attrs) if i > 1000 and attr & Attr.NORMAL)
    return replace(table, special=[mark or i == at for i, mark in enumerate(table.special)])


def forgets_the_marker(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, special=[False] * len(table.special))


def marks_the_nameless(table: TokenTable, material: Material) -> TokenTable:
    at = next(i for i, mark in enumerate(table.special) if mark)
    return replace(table, claimed=[b"" if i == at else c for i, c in enumerate(table.claimed)])


def claims_a_tokenization(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, tokenize=None, tokenize_mode="llama_tokenize")


def hides_its_tokenization(table: TokenTable, material: Material) -> TokenTable:
    return replace(table, tokenize=bridge.raw_tokenize(material.vocab), tokenize_mode="greedy")


def never_probes(table: TokenTable, material: Material) -> TokenTable:
    tokenize = bridge.raw_tokenize(material.vocab)
    return replace(table, tokenize=tokenize, tokenize_mode="llama_tokenize")


def tokenizes_one_id_off(table: TokenTable, material: Material) -> TokenTable:
    raw = bridge.raw_tokenize(material.vocab)

    def tokenize(data: bytes) -> list[int]:
        return [i + 1 for i in raw(data)]

    return replace(table, tokenize=tokenize, tokenize_mode="off")


def tokenizes_beyond_the_end(table: TokenTable, material: Material) -> TokenTable:
    n = material.vocabulary.n_tokens

    def tokenize(data: bytes) -> list[int]:
        return [n] if data else []

    return replace(table, tokenize=tokenize, tokenize_mode="beyond")


def wants_text(table: TokenTable, material: Material) -> TokenTable:
    raw = bridge.raw_tokenize(material.vocab)

    def tokenize(data: bytes) -> list[int]:
        return raw(data.decode().encode())

    return replace(table, tokenize=tokenize, tokenize_mode="text")
