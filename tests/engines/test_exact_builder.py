"""`exact` restores forcing on SentencePiece: canonical forced tokens, and only exact masks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import polars as pl
import pytest

from pipeline.audit import round_trip, token_table
from pipeline.engines.protocol import allowed_ids
from pipeline.model.verdicts import Tokenization
from support.command import Finished, pipeline
from support.vocabularies import Opened

Open = Callable[[str], Opened]

LITERALS = [
    "hello world",
    "The quick brown fox",
    "\u2581 a\u2581b",
    "<s>x</s>",
    "\ttab\n\n",
    "  two",
]


def first_mask(opened: Opened, builder: str, literal: str) -> tuple[list[int], list[int]]:
    """(allowed ids, forced ids) at the start of a grammar with one text."""
    text = literal.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    grammar = f'%llguidance {{}}\nstart: "{text}"'
    with closing(opened.engine.compile(opened.table(builder), "lark", grammar)) as matcher:
        forced = matcher.forced()
        mask = matcher.mask()
        assert mask is not None, matcher.error
        return [int(i) for i in allowed_ids(mask, opened.vocabulary.n_tokens)], forced


@pytest.mark.parametrize("name", ["llama_spm", "mistral_v1"])
def test_hello_world_allows_the_one_canonical_token(open_vocabulary: Open, name: str) -> None:
    opened = open_vocabulary(name)
    allowed, forced = first_mask(opened, "exact", "hello world")
    pieces = [opened.vocabulary.true_bytes[token] for token in forced]
    assert allowed == forced[:1]
    assert pieces[0] == b"hello", "the text begins without a space"
    assert b"hello world".startswith(b"".join(pieces))
    greedy, nothing = first_mask(opened, "fixed", "hello world")
    assert len(greedy) > 1
    assert nothing == [], "greedy forces nothing"


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("name", ["llama_spm", "mistral_v3", "phi3"])
def test_forced_tokens_are_the_text(open_vocabulary: Open, name: str, literal: str) -> None:
    """Also for literals with spelled-out specials and U+2581, which `llama_tokenize` changes."""
    opened = open_vocabulary(name)
    _, forced = first_mask(opened, "exact", literal)
    ids = [token for token in forced if token not in opened.vocabulary.end_ids]
    spelt = b"".join(opened.vocabulary.rendered[token] for token in ids)
    assert spelt, "at least one token is forced"
    assert literal.encode().startswith(spelt)


@pytest.mark.parametrize("name", ["llama_spm", "mistral_v1", "phi3", "llama_bpe", "gemma4"])
def test_every_probe_of_exactness_is_exact(open_vocabulary: Open, name: str) -> None:
    """Also on byte-level BPE, where `fixed` fails on spelled-out specials."""
    opened = open_vocabulary(name)
    table = opened.table("exact")
    assert table.tokenize is not None
    probes = round_trip.probes(opened.vocabulary, seed=0, n_random=20)
    found = round_trip.measure(opened.vocabulary, table.tokenize, None, lambda _: True, probes)
    assert [probed for probed in found if probed.verdict is not Tokenization.EXACT] == []


@pytest.mark.parametrize(
    ("name", "why"), [("bert_bge", "lower-cases"), ("nomic_bert_moe", "normalizes")]
)
def test_what_cannot_be_exact_says_why(open_vocabulary: Open, name: str, why: str) -> None:
    table = open_vocabulary(name).table("exact")
    assert (table.tokenize, table.tokenize_mode) == (None, "greedy")
    assert why in table.note


@pytest.fixture(scope="module", params=["llama_spm", "mistral_v1"])
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run of all suites under `fixed` and `exact`, which judges every mask."""
    options = ("builder=[fixed,exact]", "engine.oracle=every", "audit.walks=3")
    results = tmp_path_factory.mktemp("exact")
    run = pipeline(
        results, "run", f"tokenizer={request.param}", "audit.strings_suite=null", *options
    )
    assert run.code == 0, run.err
    return run


def test_all_suites_pass_and_every_mask_is_exact_up_to_forcing(judged: Finished) -> None:
    cells = judged.table("cells")
    assert set(cells["verdict"]) == {"ok"}
    states = judged.table("states").filter(builder="exact")
    assert set(states["verdict"]) <= {"exact", "incomplete_forced"}
    assert states.filter(verdict="incomplete_forced").height > 100
    tokenizers = judged.table("tokenizers").filter(builder="exact")
    assert tokenizers["tokenize"].to_list() == ["exact"]


def test_what_greedy_loses_is_measured(judged: Finished) -> None:
    sums = (
        judged.table("cells")
        .group_by("builder")
        .agg(pl.col("n_tokens", "n_forced", "n_non_canonical").sum())
    )
    exact, fixed = (
        sums.row(by_predicate=pl.col("builder") == b, named=True) for b in ("exact", "fixed")
    )
    assert fixed["n_forced"] == 0
    assert exact["n_forced"] > exact["n_tokens"] // 2
    assert exact["n_tokens"] - exact["n_forced"] < fixed["n_tokens"] // 3
    assert exact["n_non_canonical"] * 3 < fixed["n_non_canonical"]
    assert "What greedy tokenization loses" in judged.out


def test_a_wholly_forced_text_is_canonical(judged: Finished, open_vocabulary: Open) -> None:
    """The tokens of a literal are those that the model was trained on."""
    cells = judged.table("cells").filter(builder="exact", suite="forced_literal")
    assert cells["n_non_canonical"].sum() == 0
    greedy = judged.table("cells").filter(builder="fixed", suite="forced_literal")
    assert greedy["n_non_canonical"].sum() > 0


def test_founding_probes_see_nothing_bad(open_vocabulary: Open) -> None:
    opened = open_vocabulary("llama_spm")
    rows = token_table.mask_rows(
        opened.vocabulary, opened.table("exact"), opened.engine, opened.judge
    )
    assert [(row["probe"], row["n_allowed"], row["n_bad"]) for row in rows] == [
        ("no_space", 6970, 0),
        ("hello_world", 1, 0),
    ]
