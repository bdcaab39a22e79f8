"""Builders with one planted fault each, of the kinds that a slice of the checks may miss.

Each is `fixed` or `exact` with one change. No plain audit may call any of them safe.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline.engines import builders
from pipeline.engines.builders import bridge
from pipeline.engines.table import Material, Tokenize, TokenTable
from pipeline.vocab.spelling import Spelling
from pipeline.vocab.token_types import UNRENDERED

Change = Callable[[TokenTable, Material], TokenTable]


@dataclass
class Planted:
    """A builder with one fault."""

    name: str
    change: Change
    version: int = 1

    def build(self, material: Material) -> TokenTable:
        """The faulty table; its tokenization begins as a byte-exact one."""
        return self.change(_exact(material), material)


def _exact(material: Material) -> TokenTable:
    """`exact`, or `fixed` with a greedy callback where `exact` has no tokenization."""
    table = builders.get("exact").build(material)
    if table.tokenize is not None:
        return table
    spelling = Spelling(material.vocabulary)
    return replace(table, tokenize=spelling.known, tokenize_mode="spelling")


def _tokenized(change: Callable[[Tokenize, bytes, Material], list[int]]) -> Change:
    """A change of the tokenization: the function gets the right one, the text and the material."""

    def changed(table: TokenTable, material: Material) -> TokenTable:
        right = table.tokenize
        assert right is not None

        def tokenize(data: bytes) -> list[int]:
            return change(right, data, material)

        return replace(table, tokenize=tokenize)

    return changed


def _when(fits: Callable[[bytes], bool], wrong: Callable[[bytes], bytes]) -> Change:
    """Texts that fit are tokenized as another text."""
    return _tokenized(lambda right, data, _: right(wrong(data) if fits(data) else data))


def _claims(change: Callable[[list[bytes], Material], None]) -> Change:
    def changed(table: TokenTable, material: Material) -> TokenTable:
        claimed = list(table.claimed)
        change(claimed, material)
        return replace(table, claimed=claimed)

    return changed


def _text_tokens(material: Material) -> list[int]:
    """Ids of plain text of several letters, in order."""
    rendered = material.vocabulary.rendered
    return [i for i, piece in enumerate(rendered) if len(piece) > 2 and piece.isalpha()]


def _swapped(claimed: list[bytes], material: Material) -> None:
    token = next(
        i for i in _text_tokens(material) if claimed[i] != claimed[i][:2][::-1] + claimed[i][2:]
    )
    claimed[token] = claimed[token][:2][::-1] + claimed[token][2:]


def _last_emptied(claimed: list[bytes], material: Material) -> None:
    claimed[_text_tokens(material)[-1]] = b""


def _upper_case(claimed: list[bytes], material: Material) -> None:
    token = _text_tokens(material)[-1]
    claimed[token] = claimed[token].swapcase()


def _half_characters_replaced(claimed: list[bytes], _: Material) -> None:
    for token, claim in enumerate(claimed):
        claimed[token] = claim.decode("utf-8", "replace").encode()


def _first_hidden(material: Material) -> int:
    attrs = material.vocabulary.attrs.tolist()
    true, rendered = material.vocabulary.true_bytes, material.vocabulary.rendered
    hidden = (i for i, attr in enumerate(attrs) if attr & UNRENDERED and true[i])
    return next(i for i in hidden if not rendered[i] and i not in material.vocabulary.end_ids)


def _mark_lost(table: TokenTable, material: Material) -> TokenTable:
    special = list(table.special)
    special[_first_hidden(material)] = False
    return replace(table, special=special)


def _text_marked(table: TokenTable, material: Material) -> TokenTable:
    special = list(table.special)
    special[_text_tokens(material)[0]] = True
    return replace(table, special=special)


def _ordinary_end(table: TokenTable, material: Material) -> TokenTable:
    return replace(table, eos=_text_tokens(material)[0])


def _hidden_end(table: TokenTable, material: Material) -> TokenTable:
    return replace(table, eos=_first_hidden(material))


def _short(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, claimed=table.claimed[:-1], special=table.special[:-1])


def _long(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, claimed=[*table.claimed, b"x"], special=[*table.special, False])


def _text_claims(table: TokenTable, _: Material) -> TokenTable:
    claimed: list[object] = [*table.claimed[:-1], "text"]
    return replace(table, claimed=claimed)


def _raises(_: TokenTable, material: Material) -> TokenTable:
    raise KeyError(f"no such token in {material.vocabulary.n_tokens}")


def _raise_on(character: bytes) -> Change:
    def raising(right: Tokenize, data: bytes, _: Material) -> list[int]:
        if character in data:
            raise ValueError(f"cannot tokenize {character!r}")
        return right(data)

    return _tokenized(raising)


def _random(right: Tokenize, data: bytes, material: Material) -> list[int]:
    return [random.randrange(material.vocabulary.n_tokens) for _ in right(data)]


def _random_split(table: TokenTable, material: Material) -> TokenTable:
    spelling = Spelling(material.vocabulary)

    def tokenize(data: bytes) -> list[int]:
        return spelling.ids(spelling.random_split(data, random.Random())) or []

    return replace(table, tokenize=tokenize)


def _parses_specials(_: Tokenize, data: bytes, material: Material) -> list[int]:
    return bridge.raw_tokenize(material.vocab)(data)


_E = "é".encode()
PLANTED = (
    Planted("raises", _raises),
    Planted("one_id_short", _short),
    Planted("one_id_long", _long),
    Planted("claims_text", _text_claims),
    Planted("swaps_two_bytes_of_one_token", _claims(_swapped)),
    Planted("empties_one_token", _claims(_last_emptied)),
    Planted("changes_the_case_of_one_token", _claims(_upper_case)),
    Planted("replaces_half_characters", _claims(_half_characters_replaced)),
    Planted("loses_one_mark", _mark_lost),
    Planted("marks_one_text_token", _text_marked),
    Planted("ends_with_an_ordinary_token", _ordinary_end),
    Planted("ends_with_another_special", _hidden_end),
    Planted("raises_on_one_character", _raise_on(_E)),
    Planted("nothing_for_long_texts", _when(lambda d: len(d) > 2000, lambda _: b"")),
    Planted("wrong_in_long_texts", _when(lambda d: len(d) > 1000, lambda d: d[:1000])),
    Planted("wrong_after_a_newline", _when(lambda d: b"\n" in d, lambda d: d.replace(b"\n", b" "))),
    Planted("wrong_on_one_character", _when(lambda d: _E in d, lambda d: d.replace(_E, b"e"))),
    Planted("drops_the_space_of_a_colon", _when(lambda d: True, lambda d: d.replace(b": ", b":"))),
    Planted(
        "ends_on_an_exclamation_mark",
        _tokenized(
            lambda right, data, material: (
                right(data) + ([min(material.vocabulary.end_ids)] if data.endswith(b"!") else [])
            )
        ),
    ),
    Planted("adds_a_space", _when(lambda d: bool(d), lambda d: b" " + d)),
    Planted("strips_spaces_at_the_end", _when(lambda d: True, lambda d: d.rstrip(b" "))),
    Planted("lower_cases", _when(lambda d: True, lambda d: d.lower())),
    Planted("drops_tabs", _when(lambda d: True, lambda d: d.replace(b"\t", b""))),
    Planted("random_ids", _tokenized(_random)),
    Planted("random_split", _random_split),
    Planted(
        "ids_out_of_range",
        _tokenized(lambda right, data, material: [*right(data), material.vocabulary.n_tokens + 7]),
    ),
    Planted("negative_ids", _tokenized(lambda right, data, _: [*right(data), -1])),
    Planted("returns_nothing", _tokenized(lambda right, data, material: [])),
    Planted("wrong_on_emoji", _when(lambda d: b"\xf0" in d, lambda d: d.replace(b"\xf0", b""))),
)
"""Builders of which none is safe."""

SPECIALS = Planted("parses_specials", _tokenized(_parses_specials))
"""Its fault needs a grammar whose text spells a special token, on vocabularies where
`llama_tokenize` is exact otherwise."""
