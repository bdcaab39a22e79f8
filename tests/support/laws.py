"""The laws that every builder must obey, as functions that raise AssertionError.

A law takes a `Subject`: one builder on one vocabulary. `recorded` holds the known faults of a
builder; any other fault breaks a law.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property

from pipeline.audit.token_table import damage
from pipeline.engines.llguidance import Llguidance
from pipeline.engines.table import Builder, Material, TokenTable
from pipeline.vocab.token_types import UNRENDERED, Attr, attr_name
from pipeline.vocab.vocabulary import Vocabulary

GREEDY = "greedy"
"""The tokenize mode of a table without its own tokenization."""

SAMPLES = (
    b"",
    b"The",
    b"a b",
    b"1\n2",
    b" two  spaces ",
    b"\t\r\n",
    b"\x00",
    b"\x80\xff",
    "é中😀".encode(),
    "😀".encode()[:2],
    "a\u2581b".encode(),
    b'{"a": [1, true]}',
    b"<s></s><|eot_id|>[SEP]",
    b"x" * 300,
)
"""Bytes on which `llama_tokenize` does not crash with any known vocabulary. They contain no code
point above U+10FFFF (`f4 90 80 80`), on which BPE and WPM crash."""

LITERALS = ("hello world", "The quick", 'x = [1, 2]; "y"')
"""Texts whose forced tokens are checked."""


@dataclass(frozen=True)
class Subject:
    """One builder on one vocabulary."""

    builder: Builder
    material: Material
    engine: Llguidance
    recorded: Mapping[str, int] = field(default_factory=dict[str, int])
    """Known number of wrong tokens, by kind of damage."""
    exact: bool = True
    """Whether its tokenization, if it has one, claims to be lossless."""

    @cached_property
    def table(self) -> TokenTable:
        return self.builder.build(self.material)

    @property
    def vocabulary(self) -> Vocabulary:
        return self.material.vocabulary


def one_entry_per_id(subject: Subject) -> None:
    """A table has exactly one entry per id, each of type bytes."""
    table, n = subject.table, subject.vocabulary.n_tokens
    assert len(table.claimed) == n, f"{len(table.claimed)} claims for {n} ids"
    assert len(table.special) == n, f"{len(table.special)} special marks for {n} ids"
    assert len(table.engine_bytes) == n
    odd = [i for i, claim in enumerate(table.claimed) if type(claim) is not bytes]
    assert not odd, f"claims that are not bytes: {odd[:5]}"


def special_tokens_have_a_name(subject: Subject) -> None:
    """A special token has text: a special marker alone would be a token of the byte 0xFF."""
    table = subject.table
    bare = [i for i, mark in enumerate(table.special) if mark and not table.claimed[i]]
    assert not bare, f"special and empty: {bare[:5]}"


def text_is_not_special(subject: Subject) -> None:
    """A token that a runtime renders as ordinary text must be reachable as text (U-16)."""
    ordinary = int(Attr.NORMAL | Attr.BYTE)
    wrong = [
        (i, attr_name(int(attr)))
        for i, (mark, attr) in enumerate(
            zip(subject.table.special, subject.vocabulary.attrs.tolist(), strict=True)
        )
        if mark and attr & ordinary
    ]
    assert not wrong, f"ordinary tokens marked special: {wrong[:5]}"


def control_tokens_are_special(subject: Subject) -> None:
    """A token that is not rendered must not be reachable as text (U-17)."""
    vocabulary = subject.vocabulary
    unmarked = [
        (i, vocabulary.true_bytes[i])
        for i, (mark, attr) in enumerate(
            zip(subject.table.special, vocabulary.attrs.tolist(), strict=True)
        )
        if not mark and attr & UNRENDERED and vocabulary.true_bytes[i]
    ]
    assert not unmarked, f"control tokens entered as text: {unmarked[:5]}"


def ends_on_eot_else_eos(subject: Subject) -> None:
    """The end id is the end of turn, else the end of sequence, else none."""
    vocabulary = subject.vocabulary
    right = vocabulary.eot if vocabulary.eot != -1 else vocabulary.eos
    assert subject.table.eos == right, f"ends on {subject.table.eos}, not on {right}"


def claims_the_true_bytes(subject: Subject) -> None:
    """Each claim equals the token's true bytes; the wrong ones are exactly those recorded."""
    pairs = zip(subject.vocabulary.true_bytes, subject.table.claimed, strict=False)
    kinds = [(i, damage(true, claim)) for i, (true, claim) in enumerate(pairs)]
    found = Counter(kind.value for _, kind in kinds if kind is not None)
    first = [i for i, kind in kinds if kind is not None and kind.value not in subject.recorded]
    assert found == Counter(subject.recorded), (
        f"wrong tokens {dict(found)}, recorded {dict(subject.recorded)}; first new {first[:5]}"
    )


def mode_is_honest(subject: Subject) -> None:
    """The mode of a table is `greedy` if and only if it has no tokenization."""
    table = subject.table
    assert table.tokenize_mode, "no tokenize mode"
    silent = table.tokenize is None
    assert silent == (table.tokenize_mode == GREEDY), (
        f"mode {table.tokenize_mode!r}, but {'no' if silent else 'a'} tokenization"
    )


def same_hash_same_table(subject: Subject) -> None:
    """Native tokenizers are shared by hash: two builds give equal tables with equal hashes."""
    one, two = subject.table, subject.builder.build(subject.material)
    same = (
        one.engine_bytes == two.engine_bytes
        and one.eos == two.eos
        and one.tokenize_mode == two.tokenize_mode
        and tokenized(one) == tokenized(two)
    )
    assert same == (one.hash == two.hash), f"same table: {same}, hashes {one.hash}, {two.hash}"
    assert same, "built twice, two different tables"


def tokenize_never_raises(subject: Subject) -> None:
    """Tokenize raises nothing and returns valid ids; either fault would give a wrong mask."""
    table = subject.table
    for sample in SAMPLES if table.tokenize else ():
        try:
            ids = tokenized(table, sample)[0]
        except Exception as error:
            raise AssertionError(f"tokenize raised {error!r} on {sample!r}") from error
        assert ids is not None
        outside = [token for token in ids if not 0 <= token < subject.vocabulary.n_tokens]
        assert not outside, f"tokenize gave ids of no token on {sample!r}: {outside[:5]}"


def exact_tokenization_is_exact(subject: Subject) -> None:
    """A tokenization that claims to be exact reproduces the probes byte for byte."""
    table, true = subject.table, subject.vocabulary.true_bytes
    for sample in (b"The", b"a b", b"1\n2") if table.tokenize and subject.exact else ():
        [ids] = tokenized(table, sample)
        back = b"".join(true[token] for token in ids or ())
        assert back == sample, f"tokenize of {sample!r} gives back {back!r}"


def forced_tokens_spell_the_forced_text(subject: Subject) -> None:
    """Forced tokens spell a prefix of the only legal text; greedy tables force nothing."""
    table = subject.table
    if table.tokenize is not None and not subject.exact:
        return
    for literal in LITERALS:
        grammar = f"%llguidance {{}}\nstart: {_quoted(literal)}"
        with closing(subject.engine.compile(table, "lark", grammar)) as matcher:
            assert matcher.error is None, f"{literal!r}: {matcher.error}"
            forced = matcher.forced()
        if table.tokenize is None:
            assert not forced, f"greedy, but {forced} are forced"
        ids = [token for token in forced if token not in subject.vocabulary.end_ids]
        spelt = b"".join(subject.vocabulary.true_bytes[token] for token in ids)
        assert literal.encode().startswith(spelt), f"{literal!r} is forced as {spelt!r}"


Law = Callable[[Subject], None]

LAWS: tuple[Law, ...] = (
    one_entry_per_id,
    special_tokens_have_a_name,
    text_is_not_special,
    control_tokens_are_special,
    ends_on_eot_else_eos,
    claims_the_true_bytes,
    mode_is_honest,
    same_hash_same_table,
    tokenize_never_raises,
    exact_tokenization_is_exact,
    forced_tokens_spell_the_forced_text,
)


def broken(subject: Subject) -> set[str]:
    """The names of the laws that a subject breaks."""
    found: set[str] = set()
    for law in LAWS:
        try:
            law(subject)
        except AssertionError:
            found.add(law.__name__)
    return found


def honest_sharing(tables: Mapping[str, TokenTable]) -> None:
    """Check that tables of several builders have equal hashes if and only if they are equal.

    Equal means: the same bytes, end, mode and tokens.
    """
    items = list(tables.items())
    for i, (name, one) in enumerate(items):
        for other, two in items[i + 1 :]:
            facts = [(t.engine_bytes, t.eos, t.tokenize_mode, tokenized(t)) for t in (one, two)]
            same = facts[0] == facts[1]
            assert same == (one.hash == two.hash), (
                f"{name} and {other}: same table {same}, same hash {one.hash == two.hash}"
            )


def tokenized(table: TokenTable, *samples: bytes) -> list[list[int] | None]:
    """The ids of each sample; None under greedy."""
    tokenize = table.tokenize
    return [None if tokenize is None else list(tokenize(s)) for s in samples or SAMPLES]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
