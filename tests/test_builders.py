"""Every builder keeps the laws, and the laws catch every builder that is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import laws
import pytest
from conftest import ROOT, Opened
from laws import Subject

from pipeline import builders
from pipeline.builders import SPECIAL_MARKER, Material, TokenTable, bridge
from pipeline.errors import BuilderRefused, ConfigError
from pipeline.foreign import Foreign
from pipeline.llama import PIECE_LIMIT
from pipeline.llguidance_abi import Tokenizer
from pipeline.vocabulary import Attr

Open = Callable[[str], Opened]

NAMES = sorted(path.stem for path in (Path(builders.__path__[0])).glob("*.py"))
BUILDERS = [
    name
    for name in NAMES
    if name not in {"__init__", "bridge"} and not isinstance(builders.get(name), Foreign)
]
"""Our own; those of released packages are in `test_foreign`."""
VOCABULARIES = ["llama_spm", "llama_bpe", "bert_bge"]

DETOKENIZED = {
    "llama_spm": {"leading_space_lost": 16393, "run_shortened": 15, "emptied": 2},
    "llama_bpe": {"leading_space_lost": 117},
    "bert_bge": {"leading_space_lost": 5},
}
"""What `llama_detokenize` of one id does to the tokens (defect A)."""

RECORDED = dict.fromkeys(("unfixed", "attr_special", "tokenize_fixed"), DETOKENIZED)
"""Builders that are wrong, and how."""

PARSED = {"unfixed", "attr_special", "bytes_fixed"}
"""Builders whose tokenization is `llama_tokenize`, exact or not (defect B)."""

REJECTED = {"special_prefix", "prefix_strip", "no_special_prefix"}
"""Builders of remedies that do not mend it everywhere (`test_remedies` says where not)."""


@pytest.fixture(scope="module")
def subject(open_vocabulary: Open) -> Callable[[str, str], Subject]:
    """A builder on a vocabulary; its table is built once."""

    @cache
    def made(vocabulary: str, builder: str) -> Subject:
        opened = open_vocabulary(vocabulary)
        return Subject(
            builder=builders.get(builder),
            material=opened.material,
            engine=opened.engine,
            recorded=RECORDED.get(builder, {}).get(vocabulary, {}),
            exact=builder not in PARSED | REJECTED,
        )

    return made


def test_every_builder_is_registered_and_configured() -> None:
    """Law 5: one file, registered by its name, and its config."""
    assert len(BUILDERS) >= 5
    for name in NAMES:
        if name in {"__init__", "bridge"}:
            continue
        assert builders.get(name).name == name
        assert builders.get(name).version >= 1
        config = (ROOT / "conf" / "builder" / f"{name}.yaml").read_text("utf-8")
        assert f"# @package builder.use.{name}" in config


def test_unknown_builder_names_the_known() -> None:
    with pytest.raises(ConfigError, match=r"fixd.*bytes_fixed"):
        builders.get("fixd")


@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("builder", BUILDERS)
def test_law(
    subject: Callable[[str, str], Subject], vocabulary: str, builder: str, law: laws.Law
) -> None:
    law(subject(vocabulary, builder))


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_builders_share_a_hash_only_where_they_are_the_same(
    subject: Callable[[str, str], Subject], vocabulary: str
) -> None:
    laws.honest_sharing({name: subject(vocabulary, name).table for name in BUILDERS})


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_fixed_family_has_no_wrong_token(
    subject: Callable[[str, str], Subject], vocabulary: str
) -> None:
    for name in ("fixed", "bytes_fixed", "exact", *REJECTED):
        one = subject(vocabulary, name)
        assert one.table.claimed == one.vocabulary.true_bytes


@pytest.mark.parametrize(
    ("vocabulary", "mode"),
    [("llama_spm", "greedy"), ("llama_bpe", "llama_tokenize"), ("bert_bge", "greedy")],
)
def test_probes_decide_the_mode(
    subject: Callable[[str, str], Subject], vocabulary: str, mode: str
) -> None:
    for name in ("fixed", "tokenize_fixed"):
        assert subject(vocabulary, name).table.tokenize_mode == mode
    for name in PARSED:
        assert subject(vocabulary, name).table.tokenize_mode == "llama_tokenize"


def test_probe_that_does_not_survive_counts_as_inexact(open_vocabulary: Open) -> None:
    """Tried in a process of its own; here the answer is given."""
    material = replace(open_vocabulary("llama_bpe").material, survives=lambda data: data != b"a b")
    table = builders.get("fixed").build(material)
    assert (table.tokenize, table.tokenize_mode) == (None, "greedy")


# --- deliberately broken builders -----------------------------------------------------------------


@dataclass(frozen=True)
class Broken:
    """`fixed`, with one thing spoilt."""

    spoil: Callable[[TokenTable, Material], TokenTable]
    name: str = "broken"
    version: int = 1

    def build(self, material: Material) -> TokenTable:
        return self.spoil(builders.get("fixed").build(material), material)


def _drops_one_ids_bytes(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, claimed=[*table.claimed[:5000], b"", *table.claimed[5001:]])


def _forgets_an_id(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, claimed=table.claimed[:-1], special=table.special[:-1])


def _strips_one_space(table: TokenTable, _: Material) -> TokenTable:
    at = next(i for i, claim in enumerate(table.claimed) if claim[:1] == b" " and len(claim) > 2)
    claimed = [claim[1:] if i == at else claim for i, claim in enumerate(table.claimed)]
    return replace(table, claimed=claimed)


def _shifts_ids(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, claimed=[*table.claimed[1:], table.claimed[0]])


def _swaps_two(table: TokenTable, _: Material) -> TokenTable:
    claimed = [*table.claimed]
    claimed[5000], claimed[5001] = claimed[5001], claimed[5000]
    return replace(table, claimed=claimed)


def _collapses_through_text(table: TokenTable, _: Material) -> TokenTable:
    claimed = [claim.decode("utf-8", "replace").encode() for claim in table.claimed]
    return replace(table, claimed=claimed)


def _ends_elsewhere(table: TokenTable, material: Material) -> TokenTable:
    return replace(table, eos=max(material.vocabulary.bos, 0))


def _ends_nowhere(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, eos=-1)


def _marks_text_special(table: TokenTable, material: Material) -> TokenTable:
    attrs = material.vocabulary.attrs.tolist()
    at = next(i for i, attr in enumerate(attrs) if i > 1000 and attr & Attr.NORMAL)
    return replace(table, special=[mark or i == at for i, mark in enumerate(table.special)])


def _forgets_the_marker(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, special=[False] * len(table.special))


def _marks_the_nameless(table: TokenTable, material: Material) -> TokenTable:
    at = next(i for i, mark in enumerate(table.special) if mark)
    return replace(table, claimed=[b"" if i == at else c for i, c in enumerate(table.claimed)])


def _claims_a_tokenization(table: TokenTable, _: Material) -> TokenTable:
    return replace(table, tokenize=None, tokenize_mode="llama_tokenize")


def _hides_its_tokenization(table: TokenTable, material: Material) -> TokenTable:
    return replace(table, tokenize=bridge.raw_tokenize(material.vocab), tokenize_mode="greedy")


def _never_probes(table: TokenTable, material: Material) -> TokenTable:
    tokenize = bridge.raw_tokenize(material.vocab)
    return replace(table, tokenize=tokenize, tokenize_mode="llama_tokenize")


def _tokenizes_one_id_off(table: TokenTable, material: Material) -> TokenTable:
    raw = bridge.raw_tokenize(material.vocab)
    return replace(table, tokenize=lambda data: [i + 1 for i in raw(data)], tokenize_mode="off")


def _tokenizes_beyond_the_end(table: TokenTable, material: Material) -> TokenTable:
    n = material.vocabulary.n_tokens
    return replace(table, tokenize=lambda data: [n] if data else [], tokenize_mode="beyond")


def _wants_text(table: TokenTable, material: Material) -> TokenTable:
    raw = bridge.raw_tokenize(material.vocab)
    return replace(table, tokenize=lambda data: raw(data.decode().encode()), tokenize_mode="text")


BROKEN: list[tuple[Callable[[TokenTable, Material], TokenTable], str, str]] = [
    (_drops_one_ids_bytes, "llama_spm", "claims_the_true_bytes"),
    (_drops_one_ids_bytes, "llama_bpe", "claims_the_true_bytes"),
    (_forgets_an_id, "llama_spm", "one_entry_per_id"),
    (_strips_one_space, "llama_spm", "claims_the_true_bytes"),
    (_strips_one_space, "llama_bpe", "claims_the_true_bytes"),
    (_shifts_ids, "llama_spm", "claims_the_true_bytes"),
    (_shifts_ids, "bert_bge", "claims_the_true_bytes"),
    (_swaps_two, "llama_spm", "claims_the_true_bytes"),
    (_collapses_through_text, "llama_spm", "claims_the_true_bytes"),
    (_collapses_through_text, "llama_bpe", "claims_the_true_bytes"),
    (_ends_elsewhere, "llama_bpe", "ends_on_eot_else_eos"),
    (_ends_elsewhere, "bert_bge", "ends_on_eot_else_eos"),
    (_ends_nowhere, "llama_spm", "ends_on_eot_else_eos"),
    (_marks_text_special, "llama_spm", "text_is_not_special"),
    (_forgets_the_marker, "llama_bpe", "control_tokens_are_special"),
    (_marks_the_nameless, "llama_spm", "special_tokens_have_a_name"),
    (_claims_a_tokenization, "llama_spm", "mode_is_honest"),
    (_hides_its_tokenization, "llama_bpe", "mode_is_honest"),
    (_never_probes, "llama_spm", "exact_tokenization_is_exact"),
    (_never_probes, "llama_spm", "forced_tokens_spell_the_forced_text"),
    (_tokenizes_one_id_off, "llama_bpe", "exact_tokenization_is_exact"),
    (_tokenizes_beyond_the_end, "llama_spm", "tokenize_never_raises"),
    (_wants_text, "llama_bpe", "tokenize_never_raises"),
]


@pytest.mark.parametrize(
    ("spoil", "vocabulary", "law"), BROKEN, ids=lambda value: getattr(value, "__name__", value)
)
def test_broken_builder_is_caught(
    open_vocabulary: Open,
    spoil: Callable[[TokenTable, Material], TokenTable],
    vocabulary: str,
    law: str,
) -> None:
    """The named law raises, with a text that says what is wrong."""
    opened = open_vocabulary(vocabulary)
    spoilt = Subject(Broken(spoil), opened.material, opened.engine)
    [caught] = [one for one in laws.LAWS if one.__name__ == law]
    with pytest.raises(AssertionError) as raised:
        caught(spoilt)
    assert len(str(raised.value)) > 10


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_laws_find_nothing_in_fixed_and_bytes_in_unfixed(
    open_vocabulary: Open, vocabulary: str
) -> None:
    """Without its record, `unfixed` is a broken builder like any other."""
    opened = open_vocabulary(vocabulary)
    assert laws.broken(Subject(builders.get("fixed"), opened.material, opened.engine)) == set()
    unfixed = laws.broken(Subject(builders.get("unfixed"), opened.material, opened.engine))
    assert "claims_the_true_bytes" in unfixed
    assert ("exact_tokenization_is_exact" in unfixed) == (vocabulary != "llama_bpe")


def test_builder_that_changes_from_one_time_to_the_next_is_caught(open_vocabulary: Open) -> None:
    opened, times = open_vocabulary("llama_spm"), iter(range(10))

    def fickle(table: TokenTable, _: Material) -> TokenTable:
        return _strips_one_space(table, opened.material) if next(times) % 2 else table

    with pytest.raises(AssertionError, match="two different tables"):
        laws.same_hash_same_table(Subject(Broken(fickle), opened.material, opened.engine))


def test_tables_of_one_hash_that_tokenize_differently_are_caught(open_vocabulary: Open) -> None:
    """Native tokenizers are built once per hash: the second builder would run the first's."""
    table = open_vocabulary("llama_bpe").table("fixed")
    other = replace(table, tokenize=lambda data: [0] if data else [])
    with pytest.raises(AssertionError, match="same hash"):
        laws.honest_sharing({"one": table, "two": other})


# --- the bridge's own steps -----------------------------------------------------------------------


def test_entry_that_renders_as_nothing_is_special_by_its_text() -> None:
    claimed, special = bridge.entries([b"a", b"", b""], [b"a", b"<s>", b""])
    assert claimed == [b"a", b"<s>", b""]
    assert special == [False, True, False]
    table = TokenTable(claimed, special, -1, None, "greedy")
    assert table.engine_bytes == [b"a", SPECIAL_MARKER + b"<s>", b""]


def test_pieces_over_1024_bytes_are_refused_as_the_bridge_aborts() -> None:
    long = b"x" * (PIECE_LIMIT + 1)
    with pytest.raises(BuilderRefused, match=r"1025 bytes.*1024"):
        bridge.entries([b"a", long], [b"a", long])


def test_special_texts_have_one_byte_less_for_their_marker() -> None:
    fits, long = b"x" * (PIECE_LIMIT - 1), b"x" * PIECE_LIMIT
    assert bridge.entries([b""], [fits]) == ([fits], [True])
    with pytest.raises(BuilderRefused, match="1024"):
        bridge.entries([b""], [long])


def test_ordinary_piece_of_1024_bytes_is_taken_as_the_bridge_takes_it() -> None:
    """`llama_detokenize(…, dp, 1024, false, false)` has room for it; nothing more is asked."""
    long = b"x" * PIECE_LIMIT
    assert bridge.entries([long], [long]) == ([long], [False])


def test_long_piece_ends_only_that_builders_part(open_vocabulary: Open) -> None:
    """Every builder with the bridge's buffer refuses; the reason is a sentence."""
    opened = open_vocabulary("llama_spm")
    vocabulary = opened.vocabulary
    long = [*vocabulary.true_bytes[:-1], b"x" * 2000]
    material = replace(opened.material, vocabulary=replace(vocabulary, true_bytes=long))
    for name in ("fixed", "bytes_fixed"):
        with pytest.raises(BuilderRefused, match="2000 bytes: the bridge aborts above 1024"):
            builders.get(name).build(material)


class LongVocab:
    """A live vocabulary with one piece that the bridge's buffer cannot hold."""

    def detokenize_each(self, *, special: bool) -> list[bytes]:
        return [b"a", b"x" * 2000]


@pytest.mark.parametrize(
    "builder",
    [
        "unfixed",
        "tokenize_fixed",
        pytest.param(
            "attr_special",
        ),
    ],
)
def test_long_detokenized_piece_is_refused(open_vocabulary: Open, builder: str) -> None:
    """All of them are the bridge's loop, and the bridge's loop has 1024 bytes a token."""
    opened = open_vocabulary("llama_spm")
    two = replace(opened.vocabulary, attrs=opened.vocabulary.attrs[-2:])
    material = Material(two, LongVocab(), lambda _: True)  # type: ignore[arg-type]
    with pytest.raises(BuilderRefused, match="2000 bytes"):
        builders.get(builder).build(material)


def test_engine_refuses_a_table_it_cannot_hold() -> None:
    """llguidance checks the end id against the table; its words become the reason."""
    with pytest.raises(BuilderRefused):
        Tokenizer([b"a", b"b"], eos=7, tokenize=None)


def test_table_hash_changes_with_every_part_the_engine_sees() -> None:
    table = TokenTable([b"ab", b"c", b"<s>"], [False, False, True], 2, None, "greedy")
    others = [
        replace(table, claimed=[b"a", b"bc", b"<s>"]),
        replace(table, claimed=[b"c", b"ab", b"<s>"]),
        replace(table, special=[False, False, False]),
        replace(table, eos=1),
        replace(table, eos=-1),
        replace(table, tokenize_mode="llama_tokenize"),
    ]
    assert len({one.hash for one in (table, *others)}) == 1 + len(others)
    assert replace(table).hash == table.hash
