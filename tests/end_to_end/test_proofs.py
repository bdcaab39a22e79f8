"""Every mask is checked, end to end: states, walks, exactness, specials, strings, reproducers."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import polars as pl
import pytest
import yaml

from pipeline.audit.masks import FAULTS
from support.command import GENERATE, ROOT, Finished, pipeline

FAULT_NAMES = {verdict.value for verdict in FAULTS}


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The audit of a byte-level BPE vocabulary whose tokenizer is exact and parses specials."""
    done = pipeline(tmp_path_factory.mktemp("bpe"), "audit", "tokenizer=llama_bpe")
    assert done.code == 0, done.err
    return done


def test_every_mask_of_fixed_is_exact(default_run: Finished) -> None:
    states = default_run.table("states").filter(builder="fixed")
    assert set(states["verdict"]) == {"exact"}
    assert states.height > 900
    deep = states.filter(pl.col("step") >= 4)
    assert deep.height > 500, "later masks are judged, too"


def test_unfixed_is_never_called_exact_where_the_table_differs(
    default_run: Finished, bpe: Finished
) -> None:
    for run in (default_run, bpe):
        wrong = run.table("tokenizers").filter(pl.col("n_wrong") > 0)
        states = run.table("states")
        for row in wrong.iter_rows(named=True):
            mine = states.filter(tokenizer=row["tokenizer"], builder=row["builder"])
            assert FAULT_NAMES & set(mine["verdict"])


ENGINE_FAULTS = {
    "half_free/apostrophes",
    "half_free/space_before_punctuation",
    "half_free/hiragana",
}
"""llguidance's lexer does not backtrack: a lexeme takes every byte that it can. After `well.! ` the
space can only begin another mark, though the grammar also allows ` end`. After こと and byte E3,
which begins both ん and 」, only ん can follow."""


def test_the_engine_free_oracle_agrees_but_for_named_engine_faults(
    default_run: Finished, bpe: Finished
) -> None:
    for run in (default_run, bpe):
        states = run.table("states").filter(pl.col("engine_free").is_not_null())
        assert states.height > 100
        odd = states.filter(engine_free="disagrees")
        assert set(odd["grammar"]) <= ENGINE_FAULTS
    odd = default_run.table("states").filter(engine_free="disagrees")
    assert odd.height, "the second oracle shows faults that the first shares with the engine"


@pytest.mark.parametrize("builder", ["unfixed", "fixed"])
def test_walks_are_long_and_not_canonical(
    default_run: Finished, bpe: Finished, builder: str
) -> None:
    """At least 8 steps and 30 % non-canonical tokens on average, also with a wrong table."""
    for run in (default_run, bpe):
        walks = run.table("walks").filter(builder=builder)
        walks = walks.filter(~pl.col("grammar").str.starts_with("specials/"))
        assert walks.height == 20
        assert cast(float, walks["n_steps"].mean()) >= 8
        n_non_canonical, n_steps = (
            cast(int, walks[name].sum()) for name in ("n_non_canonical", "n_steps")
        )
        assert n_non_canonical / n_steps >= 0.3
        assert walks["strategy"].n_unique() == 5


def test_a_walk_that_ends_is_accepted_by_both(default_run: Finished, bpe: Finished) -> None:
    for run in (default_run, bpe):
        ended = run.table("walks").filter(builder="fixed", ended="stop_id", verdict="exact")
        assert ended.height
        assert ended["accepting"].all()
        assert ended["objection"].null_count() == ended.height


def test_forced_special_is_found_under_fixed(bpe: Finished) -> None:
    """The grammar is the text `<|eot_id|>ok`; `llama_tokenize` parses it and forces the id."""
    states = bpe.table("states").filter(builder="fixed")
    faults = states.filter(pl.col("verdict").is_in(list(FAULT_NAMES)))
    assert set(faults["grammar"].str.split("/").list.first()) == {"specials"}
    end = faults.filter(grammar="specials/id_128009").row(0, named=True)
    assert (end["verdict"], end["ids"]) == ("stop_too_early", [128009])
    names = set(bpe.table("reproducers").filter(builder="fixed")["name"])
    assert names == {"stop_too_early-special", "unsound-special"}


def test_forced_special_of_qwen2(tmp_path: Path) -> None:
    done = pipeline(
        tmp_path,
        "audit",
        "tokenizer=qwen2",
        "builder=fixed",
        "audit.walks=1",
        "audit.strings_suite=null",
    )
    states = done.table("states").filter(grammar="specials/id_151645")
    assert set(states["verdict"]) == {"stop_too_early"}, "<|im_end|>ok"
    assert (done.folder / "reproducers" / "qwen2-fixed-stop_too_early-special.yaml").exists()


def test_reproducer_of_a_wrong_byte_table_is_one_regex_and_two_tokens_at_most(
    bpe: Finished,
) -> None:
    found = bpe.table("reproducers").filter(builder="unfixed", kind="leading_space_lost")
    row = found.filter(verdict="unsound").row(0, named=True)
    assert row["grammar"].startswith("start: /")
    assert row["grammar"].count("/") == 2
    document = yaml.safe_load(row["suite_file"])
    assert len(document["cases"][0]["tokens"]) <= 2


def test_every_reproducer_shows_its_fault_when_it_is_run(bpe: Finished, tmp_path: Path) -> None:
    files = sorted((bpe.folder / "reproducers").glob("*-unfixed-*.yaml"))
    assert files
    for file in files:
        done = pipeline(
            tmp_path,
            "run",
            "tokenizer=llama_bpe",
            "builder=unfixed",
            "grammar=path",
            f"grammar.path={file}",
            "engine.oracle=every",
            "stages=[generate]",
            f"run.name={file.stem}",
        )
        assert done.code == 0, done.err
        verdict = file.stem.split("-")[2]
        assert verdict in set(done.table("states")["verdict"]), file.read_text("utf-8")
        assert file.with_suffix(".md").read_text("utf-8").startswith("Token table `unfixed`")


def test_exactness_has_every_class(default_run: Finished, bpe: Finished) -> None:
    exactness = default_run.table("exactness")
    greedy = set(exactness.filter(builder="fixed")["verdict"])
    assert greedy == {"exact", "non_canonical"}, "greedy keeps every byte, and splits it otherwise"
    unfixed = exactness.filter(builder="unfixed")
    assert {"prefix_added", "meta_symbol", "special_returned"} <= set(unfixed["class"])
    founding = unfixed.filter(pl.col("probe").is_in([b"The", b"a b", b"1\n2"]))
    assert set(founding["class"]) == {"prefix_added"}
    got = dict(unfixed.select("probe", "got").iter_rows())
    assert got[b"The"] == b" The"
    every_byte = {bytes([byte]) for byte in range(256)}
    assert every_byte <= set(unfixed["probe"])
    plain = bpe.table("exactness").filter(builder="fixed", verdict="inexact")
    assert set(plain["class"]) == {"special_returned"}


def test_specials_are_kept_out_of_free_text(default_run: Finished, bpe: Finished) -> None:
    for run in (default_run, bpe):
        specials = run.table("specials").filter(builder="fixed")
        assert set(specials["verdict"]) == {"ok"}
        assert {"CONTROL"} <= set(specials["attribute"])
    assert "BYTE" in set(default_run.table("specials")["attribute"])


def test_strings_are_accepted_and_refused_as_written(default_run: Finished, bpe: Finished) -> None:
    for run in (default_run, bpe):
        strings = run.table("strings")
        assert set(strings.filter(builder="fixed")["verdict"]) == {"ok"}
        assert strings["grammar"].n_unique() >= 60
        assert strings.select("grammar", "string").n_unique() >= 400
        assert {"greedy", "random", "random_2"} == set(strings["split"])
    spm = default_run.table("strings").filter(builder="unfixed")
    assert {"valid_refused", "invalid_accepted"} <= set(spm["verdict"])
    assert set(spm.filter(pl.col("verdict") != "ok")["cause"]) == {"builder"}


@pytest.mark.parametrize(("mode", "steps"), [("off", set[int]()), ("first", {0})])
def test_engine_oracle_says_which_masks_of_generation_are_judged(
    tmp_path: Path, mode: str, steps: set[int]
) -> None:
    done = pipeline(
        tmp_path,
        "run",
        f"engine.oracle={mode}",
        "stages=[generate]",
        "grammar.limit=2",
        "builder=fixed",
    )
    assert done.code == 0, done.err
    assert set(done.table("states")["step"]) == steps


def test_a_spent_budget_is_said_in_the_row(tmp_path: Path) -> None:
    done = pipeline(tmp_path, "audit", "engine.oracle_budget=0", "builder=fixed", "audit.walks=3")
    states = done.table("states")
    late = states.filter(verdict="over_budget")
    assert late.height
    assert all("budget" in reason for reason in late["reason"])


STRESS = """suite: stress
about: Grammars that exceed an engine's limits, and one that does not.
cases:
  - id: circular
    prompt: "Hello"
    grammar: {json: {$ref: "#"}}
    check: {literal: "never"}
    stress: true
  - id: alternatives
    prompt: "Hello"
    grammar: {lark: 'start: ALTERNATIVES'}
    check: {literal: "never"}
    stress: true
  - id: plain
    prompt: "Hello"
    grammar: {lark: 'start: "a"'}
    check: {literal: "a"}
"""


def test_a_grammar_that_explodes_ends_in_its_verdict_and_the_run_goes_on(tmp_path: Path) -> None:
    """100,000 alternatives cause a panic inside the engine; a circular grammar accepts no text."""
    file = tmp_path / "stress.yaml"
    many = " | ".join(f'"w{i}x"' for i in range(100_000))
    file.write_text(STRESS.replace("ALTERNATIVES", many), "utf-8")
    done = pipeline(
        tmp_path,
        "run",
        "grammar=path",
        f"grammar.path={file}",
        "builder=fixed",
        *GENERATE,
        "engine.on_error=stop",
    )
    assert done.code == 0, done.err
    cells = dict(done.table("cells").select("case", "verdict").iter_rows())
    assert cells == {"circular": "impossible", "alternatives": "grammar_error", "plain": "ok"}
    causes = dict(done.table("cells").select("case", "cause").iter_rows())
    assert causes["circular"] == "grammar"
    assert causes["alternatives"] == "grammar"


def test_what_bytes_cannot_express_is_no_oracle(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "suite: mine\nabout: token references\ncases:\n"
        "  - id: by_id\n    prompt: Hello\n"
        "    grammar: {lark: 'start: <[5]> \"a\"'}\n    check: {literal: a}\n",
        "utf-8",
    )
    done = pipeline(
        tmp_path,
        "run",
        "grammar=path",
        f"grammar.path={file}",
        "builder=fixed",
        "stages=[generate]",
    )
    states = done.table("states")
    assert set(states["verdict"]) == {"no_oracle"}
    assert "by id" in states["reason"][0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_bge", "starcoder"])
def test_fixed_is_exact_on_other_kinds_of_vocabulary(tmp_path: Path, name: str) -> None:
    done = pipeline(
        tmp_path,
        "audit",
        f"tokenizer={name}",
        "builder=fixed",
        "audit.walks=20",
        "audit.strings_suite=null",
        "engine.oracle=every",
    )
    assert done.code == 0, done.err
    states = done.table("states").filter(~pl.col("grammar").str.starts_with("specials/"))
    faults = states.filter(pl.col("verdict").is_in(list(FAULT_NAMES)))
    # This WordPiece vocabulary cannot end a text: `stop_missing` is reported, and no byte fault.
    expected = {"stop_missing"} if name == "bert_bge" else set[str]()
    assert set(faults["verdict"]) == expected, faults


def test_suites_dataset_files_are_known() -> None:
    files = {path.stem for path in (ROOT / "datasets").glob("*.yaml")}
    assert {"forced_literal", "enum", "half_free", "walks", "strings"} <= files
