"""Prefix schemes: what a tokenizer declares, what implementations do, and what prompts become."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from pipeline.audit.prefix_placement import Placement, first_difference
from pipeline.vocab import chat_template
from pipeline.vocab.files import gguf as files_gguf
from pipeline.vocab.prefix_schemes import AUTO, LEGACY, SpmPrefixScheme, declared
from support.command import GENERATE, QUICK, ROOT, Finished, pipeline
from support.damaged_ggufs import rewrite, scores_of_nan, tiny_spm
from support.vocabularies import Opened, vocabulary_file

Open = Callable[[str], Opened]
ONCE, AFTER_EACH = SpmPrefixScheme.ONCE, SpmPrefixScheme.AFTER_EACH_SPECIAL
V1, V2, V3 = LEGACY

TEMPLATE = """{{ bos_token }}{% for m in messages %}{% if m.role == 'user' -%}
[INST] {{ m.content }}[/INST]
{%- elif m.role == 'assistant' -%}
 {{ m.content }}{{ eos_token }}
{%- else -%}
{{ raise_exception('no place for a ' + m.role) }}
{%- endif %}{% endfor %}"""
"""A template like Mistral's own: a space between the marker and the text."""


@pytest.mark.parametrize(
    ("adds", "gguf", "sha256", "scheme"),
    [
        (True, True, None, AFTER_EACH),
        (True, True, V3, AFTER_EACH),
        (True, False, V1, AFTER_EACH),
        (True, False, V2, ONCE),
        (True, False, V3, ONCE),
        (True, False, "0" * 64, AFTER_EACH),
        (False, True, None, SpmPrefixScheme.NONE),
    ],
)
def test_auto_is_what_the_source_says(
    adds: bool, gguf: bool, sha256: str | None, scheme: SpmPrefixScheme
) -> None:
    assert declared(AUTO, adds_prefix=adds, is_gguf=gguf, sha256=sha256) is scheme
    assert declared("none", adds_prefix=adds, is_gguf=gguf, sha256=sha256) == "none"


def test_default_scheme_is_the_first() -> None:
    """A GGUF is run by llama.cpp, so llama.cpp's scheme is the default."""
    assert next(iter(SpmPrefixScheme)) is AFTER_EACH


# --- the table of the audit -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """An audit of Mistral v3's vocabulary as a GGUF with a chat template, with this Python."""
    folder = tmp_path_factory.mktemp("prefix")
    key = "tokenizer.chat_template"
    template = {key: files_gguf.text(key, TEMPLATE)}
    file = rewrite(vocabulary_file("mistral_v3"), folder / "v3.gguf", template)
    run = pipeline(
        folder,
        *("audit", "tokenizer=path", f"tokenizer.path={file}", "tokenizer.prefix_scheme=once"),
        *(
            "audit.walks=0",
            "audit.strings_suite=null",
            "audit.references=[here]",
            "builder=[fixed]",
        ),
    )
    assert run.code == 0, run.err
    return run


def ids_of(audited: Finished, implementation: str) -> dict[str, list[int]]:
    rows = audited.table("prefix").filter(implementation=implementation)
    return dict(rows.select("text", "ids").iter_rows())


def test_founding_ids_of_llama_and_of_the_declared_scheme(audited: Finished) -> None:
    llama, once = ids_of(audited, "llama.cpp"), ids_of(audited, "byte-exact/once")
    assert (llama["[INST]Write"], llama["a[INST]b"]) == ([3, 12786], [1032, 3, 1055])
    assert (once["[INST]Write"], once["a[INST]b"]) == ([29473, 3, 6006], [1032, 3, 29494])
    assert llama == ids_of(audited, "byte-exact/after_each_special")


def test_each_implementation_is_given_the_scheme_it_follows(audited: Finished) -> None:
    table = audited.table("prefix")
    schemes = dict(table.select("implementation", "scheme").unique().iter_rows())
    assert schemes["llama.cpp"] == "after_each_special"
    for scheme in SpmPrefixScheme:
        assert schemes[f"byte-exact/{scheme}"] == scheme
    [piece] = [name for name in schemes if name.startswith("sentencepiece")]
    [common] = [name for name in schemes if name.startswith("mistral-common")]
    assert schemes[piece] == schemes[common] == "none of them", "neither reads markers in a text"


def test_texts_that_prove_nothing_are_marked(audited: Finished) -> None:
    table = audited.table("prefix").filter(implementation="llama.cpp")
    told = dict(table.select("text", "discriminating").iter_rows())
    assert not told[""]
    assert not told["<s>x"]
    assert all(told[text] for text in ("[INST]Write", "a[INST]b", "[INST] Write", " a[INST] b"))


def test_pieces_stand_beside_the_ids(audited: Finished) -> None:
    row = audited.table("prefix").row(
        by_predicate=(pl.col("text") == "a[INST]b") & (pl.col("implementation") == "llama.cpp"),
        named=True,
    )
    assert row["pieces"] == ["\u2581a", "[INST]", "\u2581b"]


def test_no_flag_keeps_the_space_away(audited: Finished) -> None:
    """Section 9: `parse_special` inserts a leading space, although the document denies it."""
    flags = audited.table("flags")
    assert flags.height == 8
    assert flags["space_added"].all()
    assert flags.select("add_special", "parse_special").n_unique() == 4
    assert "a space is added in 8 of 8" in audited.out


def test_chat_template_is_compared_with_mistral_common(audited: Finished) -> None:
    """llama.cpp adds a second space after the one in the template; the reference does not."""
    told = audited.table("templates").filter(conversation="one_turn")
    row = told.row(by_predicate=pl.col("reference").str.starts_with("mistral-common"), named=True)
    assert row["text"] == "<s>[INST] Write[/INST]"
    assert row["llama_ids"] == [1, 3, 29473, 12786, 4]
    assert row["ids"] == [1, 3, 12786, 4]
    assert row["first_difference"] == 2


def test_chat_template_is_compared_with_every_scheme(audited: Finished) -> None:
    told = audited.table("templates").filter(conversation="two_turns")
    at = dict(told.select("reference", "first_difference").iter_rows())
    assert at["byte-exact/after_each_special"] is None
    assert at["byte-exact/once"] == 2
    assert told.filter("declared")["reference"].to_list() == ["byte-exact/once"]
    said = "chat template, two_turns, against byte-exact/once: ids differ from position 2: "
    assert said in audited.out


def test_conversation_that_a_template_refuses_says_why(audited: Finished) -> None:
    [row] = audited.table("templates").filter(conversation="system").to_dicts()
    assert "no place for a system" in row["reason"]


def test_phi3s_own_template_is_read_as_llama_reads_it(open_vocabulary: Open) -> None:
    opened = open_vocabulary("phi3")
    template = opened.model.meta("tokenizer.chat_template")
    assert template is not None
    text = chat_template.render(
        template, chat_template.CONVERSATIONS["two_turns"], bos="<s>", eos="<|endoftext|>"
    )
    ours = Placement(opened.vocabulary).encoders[AFTER_EACH].encode(text.encode())
    llama = opened.model.vocab.tokenize(text.encode(), add_special=False, parse_special=True)
    assert first_difference(llama, ours) is None


def test_broken_template_is_no_crash() -> None:
    with pytest.raises(chat_template.Unrenderable, match="TemplateSyntaxError"):
        chat_template.render("{% for %}", [], bos="", eos="")


@pytest.mark.parametrize(
    ("one", "two", "at"), [([1, 2], [1, 2], None), ([1, 2], [1], 1), ([1, 2], [3, 2], 0)]
)
def test_first_difference(one: list[int], two: list[int], at: int | None) -> None:
    assert first_difference(one, two) == at


# --- what a user declares -------------------------------------------------------------------------

SUITE = """suite: marked
about: A prompt with a marker in it.
cases:
  - id: only
    prompt: "[INST]Write"
    grammar: {lark: 'start: "ok"'}
    check: {literal: 'ok'}
"""


@pytest.mark.parametrize(
    ("tokenizer", "scheme", "used", "ids"),
    [
        ("mistral_v3", "auto", "once", [1, 29473, 3, 6006]),
        ("mistral_v2", "after_each_special", "after_each_special", [1, 3, 12786]),
    ],
)
def test_prompts_are_encoded_under_the_scheme(
    tmp_path: Path, tokenizer: str, scheme: str, used: str, ids: list[int]
) -> None:
    suite = tmp_path / "marked.yaml"
    suite.write_text(SUITE)
    run = pipeline(
        tmp_path,
        *("run", f"tokenizer={tokenizer}", f"tokenizer.prefix_scheme={scheme}", "builder=[exact]"),
        *("grammar=path", f"grammar.path={suite}", "stages=[generate]", "engine.oracle=off"),
    )
    assert run.code == 0, run.err
    [cell] = run.table("cells").to_dicts()
    assert (cell["prefix_scheme"], cell["prompt_ids"]) == (used, ids)
    assert cell["verdict"] == "ok"


def test_legacy_checkpoint_follows_the_scheme_it_was_made_for(open_vocabulary: Open) -> None:
    """The ids of Mistral v1 equal those of transformers (`legacy=true`) and splintr."""
    placement = Placement(open_vocabulary("mistral_v1").vocabulary)
    scheme = declared(AUTO, adds_prefix=True, is_gguf=False, sha256=V1)
    assert placement.encoders[scheme].encode(b"</s>Write") == [2, 12018]
    assert placement.encoders[scheme].encode(b" </s>x") == [259, 2, 1318]


def test_scheme_of_a_vocabulary_without_prefix_is_refused(tmp_path: Path) -> None:
    run = pipeline(
        tmp_path,
        *("audit", "tokenizer=bert_bge", "tokenizer.prefix_scheme=once", "audit.walks=0"),
    )
    assert run.code == 2
    assert "tokenizer.prefix_scheme=once" in run.err
    assert "type WPM" in run.err
    assert not run.folder.exists()


def test_scores_that_are_no_numbers_are_said_and_no_death(tmp_path: Path) -> None:
    """Once our encoder's error about a damaged file ended the worker, and all rows were lost."""
    plain = tiny_spm(tmp_path / "plain.gguf", byte_tokens=True)
    path = f"tokenizer.path={scores_of_nan(plain, tmp_path / 'nan.gguf')}"
    audited = pipeline(tmp_path, "audit", "tokenizer=path", path, "builder=fixed", *QUICK)
    assert audited.code == 0, audited.err
    [row] = audited.table("prefix").to_dicts()
    assert (row["status"], row["reason"]) == ("load_refused", "a token's score is not a number")
    assert row["scheme"] is row["text"] is None
    said = f"prefix of {row['tokenizer']}: load_refused: a token's score is not a number"
    assert said in audited.out
    assert audited.table("tokenizers")["status"].to_list() == ["ok"]
    under = ("tokenizer=path", path, "tokenizer.prefix_scheme=once", "builder=fixed", *GENERATE)
    run = pipeline(tmp_path, "run", *under, "run.name=under")
    assert run.code == 2
    assert "cannot be encoded under it: a token's score is not a number" in run.err


def test_unknown_scheme_names_the_known(tmp_path: Path) -> None:
    run = pipeline(tmp_path, "audit", "tokenizer.prefix_scheme=twice")
    assert run.code == 2
    assert "after_each_special, once" in run.err


def test_reference_python_that_is_none(tmp_path: Path) -> None:
    """If the program is not a Python, the error is one paragraph and no file is left."""
    run = pipeline(tmp_path, "audit", "audit.references=[/no/such/python]", "audit.walks=0")
    assert run.code == 2
    assert "audit.references" in run.err
    assert not run.folder.exists()


def test_help_shows_the_scheme(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "pipeline", "run", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    assert "tokenizer.prefix_scheme=auto|after_each_special|once" in shown
