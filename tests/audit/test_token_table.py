"""The audit of token tables: every kind of damage, and counts that add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audit import token_table
from pipeline.audit.token_table import MaskProbe, damage
from pipeline.engines.table import TokenTable
from pipeline.model.verdicts import Damage, TokenizeMode
from support.vocabularies import Opened

Open = Callable[[str], Opened]

steady = settings(derandomize=True, deadline=None, max_examples=300)

TEXTS = st.lists(
    st.sampled_from([b" ", b"  ", b"a", b".", b"\n", b"\xe2", b"\xff"]), max_size=6
).map(b"".join)


@pytest.mark.parametrize(
    ("true", "claimed", "kind"),
    [
        (b"", b"", None),
        (b" the", b" the", None),
        (b" ", b"", Damage.EMPTIED),
        (b"abc", b"", Damage.EMPTIED),
        (b"   ", b"", Damage.EMPTIED),
        (b"  ", b" ", Damage.RUN_SHORTENED),
        (b" " * 16, b" " * 15, Damage.RUN_SHORTENED),
        (b" the", b"the", Damage.LEADING_SPACE_LOST),
        (b"  the", b" the", Damage.LEADING_SPACE_LOST),
        (b"  the", b"the", Damage.LEADING_SPACE_LOST),
        (b" .", b".", Damage.LEADING_SPACE_LOST),
        (b" a b", b"a b", Damage.LEADING_SPACE_LOST),
        (b" a b", b"ab", Damage.LEADING_SPACE_LOST),
        (b" \xe2\x96", b"\xe2\x96", Damage.LEADING_SPACE_LOST),
        (b"a .", b"a.", Damage.INNER_SPACE_LOST),
        (b"a  b", b"a b", Damage.INNER_SPACE_LOST),
        (b"a ", b"a", Damage.INNER_SPACE_LOST),
        (b" a .", b" a.", Damage.INNER_SPACE_LOST),
        (b"", b"a", Damage.OTHER),
        (b" ", b"  ", Damage.OTHER),
        (b"the", b" the", Damage.OTHER),
        (b" the", b"\xe2\x96\x81the", Damage.OTHER),
        (b"\x80", b"\xef\xbf\xbd", Damage.OTHER),
        (b"\n", b"<0x0A>", Damage.OTHER),
        (b"a b", b" ab", Damage.OTHER),
        (b"a b", b"x", Damage.OTHER),
    ],
)
def test_damage(true: bytes, claimed: bytes, kind: Damage | None) -> None:
    assert damage(true, claimed) is kind


@steady
@given(TEXTS, TEXTS)
def test_damage_is_none_only_where_the_claim_is_true(true: bytes, claimed: bytes) -> None:
    assert (damage(true, claimed) is None) == (true == claimed)
    assert damage(true, true) is None


@steady
@given(TEXTS, TEXTS)
def test_only_lost_spaces_are_called_so(true: bytes, claimed: bytes) -> None:
    kind = damage(true, claimed)
    if kind in (Damage.LEADING_SPACE_LOST, Damage.INNER_SPACE_LOST, Damage.RUN_SHORTENED):
        assert true.replace(b" ", b"") == claimed.replace(b" ", b"")
        assert claimed.count(b" ") < true.count(b" ")
    if kind is Damage.LEADING_SPACE_LOST:
        assert true.startswith(b" ")


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama_spm", "llama_bpe", "bert_bge"])
@pytest.mark.parametrize("builder", ["unfixed", "attr_special", "tokenize_fixed", "fixed"])
def test_counts_add_up(open_vocabulary: Open, name: str, builder: str) -> None:
    opened = open_vocabulary(name)
    table = opened.table(builder)
    wrong = list(token_table.wrong_tokens(opened.vocabulary, table))
    row = token_table.table_row(opened.vocabulary, table, wrong, TokenizeMode.EXACT)
    kinds = Counter(str(one["damage"]) for one in wrong)
    assert row["n_wrong"] == len(wrong) == sum(kinds.values())
    for kind in (Damage.INNER_SPACE_LOST, Damage.EMPTIED, Damage.RUN_SHORTENED, Damage.OTHER):
        assert row[f"n_{kind.value}"] == kinds[kind.value]
    pairs = [
        (true, claimed)
        for true, claimed in zip(opened.vocabulary.true_bytes, table.claimed, strict=True)
        if true != claimed
    ]
    assert [(one["true"], one["claimed"]) for one in wrong] == pairs
    lost = sum(true[:1] == b" " and claimed[:1] != b" " for true, claimed in pairs)
    assert row["n_lost_leading_space"] == lost
    assert set(token_table.COUNTS) < set(row)


def test_the_founding_figure_counts_emptied_tokens_too(open_vocabulary: Open) -> None:
    """16,395 = 16,393 tokens that lost their leading space + 2 single spaces that became empty."""
    opened = open_vocabulary("llama_spm")
    table = opened.table("unfixed")
    wrong = list(token_table.wrong_tokens(opened.vocabulary, table))
    kinds = Counter(str(one["damage"]) for one in wrong)
    row = token_table.table_row(opened.vocabulary, table, wrong, TokenizeMode.INEXACT)
    assert kinds == {"leading_space_lost": 16393, "run_shortened": 15, "emptied": 2}
    assert row["n_lost_leading_space"] == 16393 + 2


@steady
@given(st.lists(st.tuples(st.integers(3, 31999), TEXTS), max_size=8, unique_by=lambda p: p[0]))
def test_every_wrong_claim_has_its_row(known: Opened, changes: list[tuple[int, bytes]]) -> None:
    """A token is identified by its id: each id with a wrong claim has its own row."""
    table = known.table("fixed")
    claimed = [*table.claimed]
    for token, claim in changes:
        claimed[token] = claim
    wrong = token_table.wrong_tokens(known.vocabulary, replace(table, claimed=claimed))
    truth = known.vocabulary.true_bytes
    expected = sorted(token for token, claim in changes if truth[token] != claim)
    assert [row["token"] for row in wrong] == expected


@pytest.fixture(scope="module")
def known(open_vocabulary: Open) -> Opened:
    return open_vocabulary("llama_spm")


def test_claims_of_another_length_are_refused(known: Opened) -> None:
    table = known.table("fixed")
    with pytest.raises(ValueError, match="shorter"):
        list(token_table.wrong_tokens(known.vocabulary, replace(table, claimed=table.claimed[:-1])))


# --- tokenizations and masks ----------------------------------------------------------------------


def test_tokenize_modes(open_vocabulary: Open) -> None:
    spm, bpe = open_vocabulary("llama_spm"), open_vocabulary("llama_bpe")
    for opened, builder, mode in (
        (spm, "unfixed", TokenizeMode.INEXACT),
        (spm, "fixed", TokenizeMode.GREEDY),
        (bpe, "unfixed", TokenizeMode.EXACT),
        (bpe, "fixed", TokenizeMode.EXACT),
    ):
        assert token_table.tokenize_mode(opened.table(builder), opened.material) is mode


def test_tokenization_that_may_die_is_not_tried(open_vocabulary: Open) -> None:
    opened = open_vocabulary("llama_bpe")

    def dies(_: bytes) -> list[int]:
        raise AssertionError("asked in this very process")

    def survives(_: bytes) -> bool:
        return False

    table = replace(opened.table("fixed"), tokenize=dies)
    material = replace(opened.material, survives=survives)
    assert token_table.tokenize_mode(table, material) is TokenizeMode.INEXACT


@pytest.mark.parametrize(
    ("literal", "token", "bad"),
    [
        (None, b"abc", False),
        (None, b" abc", True),
        (None, b"a c", True),
        (None, b"", False),
        (b"hello", b"hel", False),
        (b"hello", b"hello", False),
        (b"hello", b"hello!", True),
        (b"hello", b" hello", True),
        (b"hello", b"", True),
    ],
)
def test_bad_tokens_of_a_first_mask(literal: bytes | None, token: bytes, bad: bool) -> None:
    assert MaskProbe("probe", "", literal).bad(token) is bad


def test_first_mask_that_lacks_a_legal_token(known: Opened) -> None:
    """`n_missing` is None, and not 0, if the oracle's budget was spent."""
    fixed = known.table("fixed")
    byte_h = known.vocabulary.texts.index(b"<0x68>")  # legal, like the token of the letter h
    lost = replace(fixed, claimed=[b"" if i == byte_h else c for i, c in enumerate(fixed.claimed)])
    for table, missing in ((fixed, [0, 0]), (lost, [1, 1])):
        rows = token_table.mask_rows(known.vocabulary, table, known.engine, known.judge)
        assert [row["n_missing"] for row in rows] == missing
    spent = replace(known.judge, budget=-1)
    late = token_table.mask_rows(known.vocabulary, fixed, known.engine, spent)
    assert {row["n_missing"] for row in late} == {None}


def marks(opened: Opened, table: TokenTable) -> dict[str, Any]:
    wrong = list(token_table.wrong_tokens(opened.vocabulary, table))
    row = token_table.table_row(opened.vocabulary, table, wrong, TokenizeMode.GREEDY)
    found = {(row["token"], row["damage"], row["marked_special"]) for row in wrong}
    return {**row, "found": found}


def test_token_entered_as_special_or_as_text_against_what_is_rendered(known: Opened) -> None:
    """The bytes of both tokens are right, so `n_wrong` does not count them."""
    fixed = known.table("fixed")
    assert marks(known, fixed)["found"] == set()
    text, control = 1000, known.vocabulary.eos
    special = list(fixed.special)
    special[text], special[control] = True, False
    found = marks(known, replace(fixed, special=special))
    assert found["found"] == {(text, "marked_special", True), (control, "not_marked", False)}
    assert (found["n_wrong"], found["n_mark_wrong"]) == (0, 2)


@pytest.mark.parametrize(("end", "wrong"), [(2, False), (1, True), (-1, True)])
def test_end_id_on_which_the_runtime_does_not_stop(known: Opened, end: int, wrong: bool) -> None:
    found = marks(known, replace(known.table("fixed"), eos=end))
    assert (found["claimed_end"], found["end_is_wrong"]) == (end, wrong)


class DeadMatcher:
    """A constraint whose first mask fails."""

    def __init__(self) -> None:
        self.closed = 0

    error = "no mask today"

    def mask(self) -> None:
        return None

    def close(self) -> None:
        self.closed += 1


class DeadEngine:
    name, version = "dead", "0"

    def __init__(self) -> None:
        self.made: list[DeadMatcher] = []

    def compile(self, *_: object) -> DeadMatcher:
        self.made.append(DeadMatcher())
        return self.made[-1]

    def close(self) -> None: ...


def test_mask_that_fails_is_a_row_with_the_engines_words(known: Opened) -> None:
    engine = DeadEngine()
    rows: Iterator[token_table.Row] = token_table.mask_rows(
        known.vocabulary,
        known.table("fixed"),
        engine,  # type: ignore[arg-type]
        known.judge,
    )
    found = [(row["n_allowed"], row["n_bad"], row["engine_error"]) for row in rows]
    assert found == [(0, 0, "no mask today")] * len(token_table.MASK_PROBES)
    assert [matcher.closed for matcher in engine.made] == [1, 1]
