"""The byte oracle: the pruned search finds exactly the tokens that brute force finds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.audit.token_oracle import TokenOracle
from pipeline.audit.token_table import MASK_PROBES
from pipeline.engines.protocol import allowed_ids
from pipeline.grammars.languages import ByteGrammar
from support.vocabularies import Opened

Open = Callable[[str], Opened]

steady = settings(derandomize=True, deadline=None, max_examples=120)

HEAD = "%llguidance {}\nstart: "

GRAMMARS = {
    "literal": HEAD + '"hello world"',
    "choice": HEAD + '"yes" | "no" | "yeah"',
    "letters": HEAD + '/[.a-z]{2,6}/ "!"',
    "anything": HEAD + r"/(.|\n)*/",
    "emoji": HEAD + "/[😀-🙏é]{1,3}/",
    "json": HEAD + '%json {"type": "array", "items": {"type": "boolean"}}',
}
COMPILED = {name: ByteGrammar(text) for name, text in GRAMMARS.items()}

PIECES = st.lists(
    st.one_of(
        st.binary(max_size=3),
        st.sampled_from(
            [
                *(b"h", b"he", b"hello", b" world", b"hello world", b"y", b"ye", b"yes", b"!"),
                *(b"\xf0\x9f", b"\x98\x80", b"\x98", b"\x80", b"\xc3\xa9", b"[", b"[tr", b"ue]"),
                *(b"", b" ", b"\xff", b"\xffh", b"\n", b".a", b"]"),
            ]
        ),
    ),
    max_size=40,
)
PREFIXES = st.sampled_from(
    [
        *(b"", b"h", b"hello", b"hello world", b"ye", b"yes", b"ab", b".a!", b"\xf0", b"\xf0\x9f"),
        *(b"\xf0\x9f\x98", b"[", b"[true", b"[true]", b"\n", b" hello", b"\x80", b"\xff"),
    ]
)


def brute_force(grammar: ByteGrammar, pieces: list[bytes], prefix: bytes) -> list[int] | None:
    """The legal ids: each token is tested alone, with the prefix, from the grammar's start."""
    if grammar.match(prefix).n_legal < len(prefix):
        return None
    whole = [prefix + piece for piece in pieces]
    return [
        i for i, text in enumerate(whole) if pieces[i] and grammar.match(text).n_legal == len(text)
    ]


def legal(grammar: ByteGrammar, pieces: list[bytes], prefix: bytes = b"") -> list[int] | None:
    found = TokenOracle(pieces).legal(grammar, prefix)
    if found is None:
        return None
    assert found.shape == (len(pieces),)
    assert found.dtype == np.bool_
    return np.flatnonzero(found).tolist()


@pytest.mark.parametrize("name", GRAMMARS)
@steady
@given(pieces=PIECES, prefix=PREFIXES)
@example(pieces=[b"a", b"a\xff", b"a!", b"ab", b"ab!", b"b"], prefix=b"a")
def test_pruned_walk_equals_brute_force(name: str, pieces: list[bytes], prefix: bytes) -> None:
    grammar = COMPILED[name]
    assert legal(grammar, pieces, prefix) == brute_force(grammar, pieces, prefix)


def test_tokens_that_share_a_refused_beginning_are_tried_once() -> None:
    """Otherwise one state would need a trial for each of 262,144 tokens."""
    tried: list[bytes] = []

    class Counting:
        def after(self, prefix: bytes) -> Counting:
            assert prefix == b"h"
            return self

        def validate_tokens(self, tokens: list[int]) -> int:
            tried.append(bytes(tokens))
            return 1 if tokens[0] == ord("e") else 0

        fits = validate_tokens

    pieces = [b"za", b"e", b"zb", b"ex", b"z", b"exy", b"zab", b"e", b"exz"]
    found = TokenOracle(pieces).legal(Counting(), b"h")  # type: ignore[arg-type]
    assert found is not None
    assert np.flatnonzero(found).tolist() == [1, 7]
    assert len([piece for piece in tried if piece[:1] == b"z"]) == 1
    assert len([piece for piece in tried if piece[:2] == b"ex"]) == 1


def test_ids_of_the_same_bytes_are_both_legal() -> None:
    """A dict with texts as keys would keep only one of them (U-05)."""
    pieces = [b"yes", b"no", b"yes", b"y", b"x", b"y"]
    assert legal(COMPILED["choice"], pieces) == [0, 1, 2, 3, 5]


def test_empty_pieces_are_never_legal() -> None:
    """Otherwise they would be allowed in every state (U-31)."""
    assert legal(COMPILED["anything"], [b"", b"a", b""]) == [1]
    assert legal(COMPILED["anything"], []) == []


def test_token_that_begins_with_0xff_is_judged_as_raw_bytes() -> None:
    """In an engine's table 0xFF marks a special token; here it is an ordinary byte."""
    raw = ByteGrammar(HEAD + '"a" | "b"')
    assert legal(raw, [b"\xff", b"\xffa", b"a"]) == [2]
    anything = COMPILED["anything"]
    assert legal(anything, [b"\xff", b"\xffa", b"a"]) == brute_force(
        anything, [b"\xff", b"\xffa", b"a"], b""
    )
    assert legal(anything, [b"\xff"]) == [], "0xFF is not part of any character"


def test_only_the_other_half_of_a_character_may_follow_its_first(open_vocabulary: Open) -> None:
    """U-24: after `F0 9F`, the second half of an emoji is legal and a letter is not."""
    pieces = [b"\xf0\x9f", b"\x98\x80", b"\x98", b"\x80", b"a", b"\x98\x80b"]
    emoji = ByteGrammar(HEAD + '"😀"')
    assert legal(emoji, pieces) == [0]
    assert legal(emoji, pieces, b"\xf0\x9f") == [1, 2]
    assert legal(emoji, pieces, b"\xf0\x9f\x98") == [3]
    dot = ByteGrammar(HEAD + "/./")
    assert legal(dot, pieces, b"\xf0\x9f") == [1, 2, 3]
    vocabulary = open_vocabulary("llama_spm").vocabulary
    after = TokenOracle(vocabulary.true_bytes).legal(dot, b"\xf0\x9f")
    assert after is not None
    found = {vocabulary.true_bytes[i] for i in map(int, np.flatnonzero(after))}
    assert found == {bytes([byte]) for byte in range(0x80, 0xC0)}


@pytest.mark.parametrize("prefix", [b"x", b"hello worlds", b"\xff", b"hello world "])
def test_illegal_prefix_has_no_state_to_ask(prefix: bytes) -> None:
    assert legal(COMPILED["literal"], [b"h", b"e"], prefix) is None
    assert COMPILED["literal"].after(prefix) is None


def test_nothing_may_follow_a_complete_text() -> None:
    assert legal(COMPILED["literal"], [b"h", b"!", b" "], b"hello world") == []


@pytest.mark.parametrize(
    ("name", "text", "n_legal", "complete"),
    [
        ("literal", b"", 0, False),
        ("literal", b"hello", 5, False),
        ("literal", b"hello world", 11, True),
        ("literal", b"hello world!", 11, False),
        ("literal", b" hello", 0, False),
        ("literal", b"help", 3, False),
        ("choice", b"ye", 2, False),
        ("choice", b"yes", 3, True),
        ("choice", b"yeahs", 4, False),
        ("anything", b"", 0, True),
        ("emoji", "😀".encode()[:3], 3, False),
        ("emoji", "😀".encode(), 4, True),
        ("emoji", b"\xf0\x9f\x98a", 3, False),
        ("json", b"[true,", 6, False),
        ("json", b"[true]", 6, True),
    ],
)
def test_match_tells_complete_from_prefix_from_invalid(
    name: str, text: bytes, n_legal: int, complete: bool
) -> None:
    found = COMPILED[name].match(text)
    assert (found.n_legal, found.complete) == (n_legal, complete)
    again = COMPILED[name].match(text)
    assert again == found, "the start state is not modified"


@steady
@given(st.binary(max_size=12))
def test_match_never_counts_further_than_the_text(text: bytes) -> None:
    for grammar in COMPILED.values():
        found = grammar.match(text)
        assert 0 <= found.n_legal <= len(text)
        assert grammar.match(text[: found.n_legal]).n_legal == found.n_legal
        if found.complete:
            assert found.n_legal == len(text)


@pytest.mark.parametrize(
    "text",
    [
        HEAD + '"unclosed',
        HEAD + "nowhere",
        HEAD + '%json {"type": 12}',
        HEAD + "/(/",
        "nonsense ::=",
    ],
)
def test_grammar_that_does_not_compile_says_why(text: str) -> None:
    assert ByteGrammar(text).error


@pytest.mark.parametrize("grammar", COMPILED.values(), ids=COMPILED)
def test_grammar_that_compiles_has_no_error(grammar: ByteGrammar) -> None:
    assert grammar.error is None


def test_gemma_4_first_mask_of_no_space_is_the_oracles_both_ways(open_vocabulary: Open) -> None:
    """24,791 of 262,144 tokens are legal. `fixed` allows exactly these: none more, none less."""
    opened = open_vocabulary("gemma4")
    grammar = MASK_PROBES[0].grammar
    truth = TokenOracle(opened.vocabulary.rendered).legal(ByteGrammar(grammar), b"")
    assert truth is not None
    true_ids = set(np.flatnonzero(truth).tolist())
    assert len(true_ids) == 24791
    for builder, unsound in (("fixed", 0), ("unfixed", 6)):
        with closing(opened.engine.compile(opened.table(builder), "lark", grammar)) as matcher:
            mask = matcher.mask()
        assert mask is not None
        allowed = set(allowed_ids(mask, opened.vocabulary.n_tokens).tolist())
        assert len(allowed - true_ids) == unsound
        assert true_ids - allowed == set()


def test_a_language_that_died_lends_no_truths_to_another_at_its_address(
    open_vocabulary: Open,
) -> None:
    """A judge caches by language. Each of these languages is gone before the next one is made."""
    opened = open_vocabulary("llama_spm")
    for letter in "abcdefghijklmnopqrstuvwxyz":
        [language] = [ByteGrammar(f'{HEAD}"{letter}"')]
        truth = opened.judge.legal(language, b"")
        del language
        assert truth is not None
        ids = map(int, np.flatnonzero(truth[0]))
        legal = {opened.vocabulary.rendered[token] for token in ids}
        assert legal == {letter.encode()}
