"""Every builder obeys the laws, and the laws catch every builder that is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from pipeline.engines import builders
from pipeline.engines.builders import bridge
from pipeline.engines.libraries.package import Foreign
from pipeline.engines.table import SPECIAL_MARKER, Material, TokenTable
from pipeline.model.errors import BuilderRefused, ConfigError
from pipeline.native.llama import PIECE_LIMIT
from pipeline.native.llguidance import Tokenizer
from support import laws, spoilt
from support.command import ROOT
from support.laws import Subject
from support.vocabularies import Opened

Open = Callable[[str], Opened]

NAMES = sorted(path.stem for path in (Path(builders.__path__[0])).glob("*.py"))
BUILDERS = [
    name
    for name in NAMES
    if name not in {"__init__", "bridge"} and not isinstance(builders.get(name), Foreign)
]
"""Our own builders; `test_libraries` tests those of released packages."""
VOCABULARIES = ["llama_spm", "llama_bpe", "bert_bge"]

DETOKENIZED = {
    "llama_spm": {"leading_space_lost": 16393, "run_shortened": 15, "emptied": 2},
    "llama_bpe": {"leading_space_lost": 117},
    "bert_bge": {"leading_space_lost": 5},
}
"""What `llama_detokenize` of one id does to the tokens (defect A)."""

RECORDED: dict[str, dict[str, dict[str, int]]] = dict.fromkeys(
    ("unfixed", "attr_special", "tokenize_fixed"), DETOKENIZED
)
"""Wrong builders: the number of wrong tokens by kind, for each vocabulary."""

PARSED = {"unfixed", "attr_special", "bytes_fixed"}
"""Builders whose tokenization is `llama_tokenize`, exact or not (defect B)."""

REJECTED = {"special_prefix", "prefix_strip", "no_special_prefix"}
"""Rejected remedies, which do not work everywhere (`test_remedies` shows where)."""


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
    """Law 5: a builder is one file, registered by its name, with one config file."""
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
    """Normally a separate process tests this; here the answer is given."""

    def survives(data: bytes) -> bool:
        return data != b"a b"

    material = replace(open_vocabulary("llama_bpe").material, survives=survives)
    table = builders.get("fixed").build(material)
    assert (table.tokenize, table.tokenize_mode) == (None, "greedy")


# --- deliberately broken builders -----------------------------------------------------------------


BROKEN: list[tuple[Callable[[TokenTable, Material], TokenTable], str, str]] = [
    (spoilt.drops_one_ids_bytes, "llama_spm", "claims_the_true_bytes"),
    (spoilt.drops_one_ids_bytes, "llama_bpe", "claims_the_true_bytes"),
    (spoilt.forgets_an_id, "llama_spm", "one_entry_per_id"),
    (spoilt.strips_one_space, "llama_spm", "claims_the_true_bytes"),
    (spoilt.strips_one_space, "llama_bpe", "claims_the_true_bytes"),
    (spoilt.shifts_ids, "llama_spm", "claims_the_true_bytes"),
    (spoilt.shifts_ids, "bert_bge", "claims_the_true_bytes"),
    (spoilt.swaps_two, "llama_spm", "claims_the_true_bytes"),
    (spoilt.collapses_through_text, "llama_spm", "claims_the_true_bytes"),
    (spoilt.collapses_through_text, "llama_bpe", "claims_the_true_bytes"),
    (spoilt.ends_elsewhere, "llama_bpe", "ends_on_eot_else_eos"),
    (spoilt.ends_elsewhere, "bert_bge", "ends_on_eot_else_eos"),
    (spoilt.ends_nowhere, "llama_spm", "ends_on_eot_else_eos"),
    (spoilt.marks_text_special, "llama_spm", "text_is_not_special"),
    (spoilt.forgets_the_marker, "llama_bpe", "control_tokens_are_special"),
    (spoilt.marks_the_nameless, "llama_spm", "special_tokens_have_a_name"),
    (spoilt.claims_a_tokenization, "llama_spm", "mode_is_honest"),
    (spoilt.hides_its_tokenization, "llama_bpe", "mode_is_honest"),
    (spoilt.never_probes, "llama_spm", "exact_tokenization_is_exact"),
    (spoilt.never_probes, "llama_spm", "forced_tokens_spell_the_forced_text"),
    (spoilt.tokenizes_one_id_off, "llama_bpe", "exact_tokenization_is_exact"),
    (spoilt.tokenizes_beyond_the_end, "llama_spm", "tokenize_never_raises"),
    (spoilt.wants_text, "llama_bpe", "tokenize_never_raises"),
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
    """The named law raises with a message."""
    opened = open_vocabulary(vocabulary)
    broken = Subject(spoilt.Broken(spoil), opened.material, opened.engine)
    [caught] = [one for one in laws.LAWS if one.__name__ == law]
    with pytest.raises(AssertionError) as raised:
        caught(broken)
    assert len(str(raised.value)) > 10


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_laws_find_nothing_in_fixed_and_bytes_in_unfixed(
    open_vocabulary: Open, vocabulary: str
) -> None:
    """Without its recorded faults, `unfixed` fails like any broken builder."""
    opened = open_vocabulary(vocabulary)
    assert laws.broken(Subject(builders.get("fixed"), opened.material, opened.engine)) == set()
    unfixed = laws.broken(Subject(builders.get("unfixed"), opened.material, opened.engine))
    assert "claims_the_true_bytes" in unfixed
    assert ("exact_tokenization_is_exact" in unfixed) == (vocabulary != "llama_bpe")


def test_builder_that_changes_from_one_time_to_the_next_is_caught(open_vocabulary: Open) -> None:
    opened, times = open_vocabulary("llama_spm"), iter(range(10))

    def fickle(table: TokenTable, _: Material) -> TokenTable:
        return spoilt.strips_one_space(table, opened.material) if next(times) % 2 else table

    with pytest.raises(AssertionError, match="two different tables"):
        laws.same_hash_same_table(Subject(spoilt.Broken(fickle), opened.material, opened.engine))


def test_tables_of_one_hash_that_tokenize_differently_are_caught(open_vocabulary: Open) -> None:
    """Native tokenizers are cached by hash: the second builder would get the first one's."""
    table = open_vocabulary("llama_bpe").table("fixed")

    def tokenize(data: bytes) -> list[int]:
        return [0] if data else []

    other = replace(table, tokenize=tokenize)
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
    """`llama_detokenize(…, dp, 1024, false, false)` has room for exactly 1024 bytes."""
    long = b"x" * PIECE_LIMIT
    assert bridge.entries([long], [long]) == ([long], [False])


def test_long_piece_ends_only_that_builders_part(open_vocabulary: Open) -> None:
    """Every builder that copies the bridge's buffer refuses, with a reason."""
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
    """All of them use the bridge's loop, whose buffer has 1024 bytes per token."""
    opened = open_vocabulary("llama_spm")
    two = replace(opened.vocabulary, attrs=opened.vocabulary.attrs[-2:])
    material = Material(two, LongVocab(), lambda _: True)  # type: ignore[arg-type]
    with pytest.raises(BuilderRefused, match="2000 bytes"):
        builders.get(builder).build(material)


def test_engine_refuses_a_table_it_cannot_hold() -> None:
    """llguidance checks the end id against the table; its message becomes the reason."""
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
