"""Released engines' own masks: known wrong and missing tokens, and the code that finds them.

The walks of `phi3` cover field cases U-05 (several ids of one text), U-23 (padding) and U-31 (empty
tokens); GBNF, which uses pieces, is the control.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.audit import small_cases
from pipeline.audit.engine_mask_kinds import Kinds
from pipeline.audit.engine_masks import portable_grammar, property_orders
from pipeline.audit.masks import FAULTS
from pipeline.engines.libraries import engines
from pipeline.engines.libraries.engine import ForeignEngine
from pipeline.engines.table import Material
from pipeline.grammars.case import Case, Grammar
from pipeline.grammars.checkers import Json, Pattern
from pipeline.grammars.languages import ByteGrammar
from pipeline.model.verdicts import MaskVerdict
from pipeline.native import llama
from pipeline.runs.worker.survival import survives
from pipeline.vocab import vocabulary
from support.command import Finished, pipeline, rerun_arguments
from support.damaged_ggufs import tiny_spm
from support.vocabularies import Opened, present

Open = Callable[[str], Opened]

SUITE = """suite: engines
about: Few and small, so that the slowest engine is quick.
cases:
  - id: free_text
    prompt: "Hello"
    grammar: {lark: 'start: /(.|\\n)*/'}
    check: {regex: '(.|\\n)*'}
  - id: repeated
    prompt: "Hello"
    grammar: {lark: 'start: /(ab)*/'}
    check: {regex: '(ab)*'}
  - id: airports
    prompt: "Hello"
    grammar:
      json:
        type: object
        properties: {cost: {type: string}}
        required: [cost]
        additionalProperties: false
    check: {json: true}
    layout: compact
"""


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("engines")
    suite = folder / "engines.yaml"
    suite.write_text(SUITE, "utf-8")
    done = pipeline(
        folder,
        "audit",
        "tokenizer=phi3",
        "builder=fixed",
        "audit.walks=6",
        "audit.strings_suite=null",
        f"audit.engines=[{','.join(present(engines.get, *engines.names()))}]",
        f"audit.engines_suite={suite}",
    )
    assert done.code == 0, done.err
    return done


def finding(probed: Finished, engine: str, verdict: str, kind: str) -> dict[str, Any]:
    """The one row; skips the test if the engine's package is not installed."""
    if engine not in present(engines.get, engine):
        pytest.skip(f"needs: pip install 'byte-exact[{engines.get(engine).extra}]'")
    rows = probed.table("engine_findings").filter(engine=engine, verdict=verdict, kind=kind)
    assert rows.height == 1, probed.table("engine_findings").filter(engine=engine)
    return rows.row(0, named=True)


def test_every_engine_was_walked(probed: Finished) -> None:
    rows = probed.table("engines")
    assert set(rows["engine"]) == set(present(engines.get, *engines.names()))
    assert set(rows["status"]) == {"ok"}, rows.filter(pl.col("status") != "ok")
    assert rows["verdict"].null_count() == rows["walk"].null_count() == 0
    assert rows["made_by"].null_count() == 0


def test_findings_are_shown_and_written_out(probed: Finished) -> None:
    """The console names the kinds; each has a report text."""
    assert "Engines' own masks" in probed.out
    [shown] = [line for line in probed.out.splitlines() if "llama-cpp-python 0" in line]
    assert "unsound/special" in shown
    for row in probed.table("engine_findings").iter_rows(named=True):
        release = row["made_by"].split()[1]
        stem = f"phi3-engine-{row['engine']}-{release}-{row['verdict']}-{row['kind']}"
        assert row["file"] == f"reproducers/{stem}.yaml"
        path = probed.folder / row["file"]
        assert path.read_text("utf-8") == row["suite_file"]
        assert path.with_suffix(".md").read_text("utf-8") == row["report"]


def test_every_kind_of_finding_shows_when_its_command_is_run(
    probed: Finished, tmp_path: Path
) -> None:
    """One engine for each kind, walked along the tokens of its file; `fixed` has no fault there."""
    rows = probed.table("engine_findings").unique(["verdict", "kind"], maintain_order=True)
    assert rows.height >= 6
    for number, row in enumerate(rows.iter_rows(named=True)):
        done = pipeline(tmp_path, *rerun_arguments(probed, row), f"run.name={number}")
        assert done.code == 0, done.err
        shown = done.table("engine_findings")
        found = shown.filter(engine=row["engine"], verdict=row["verdict"], kind=row["kind"])
        assert found.height == 1, (row["file"], shown)
        assert row["ids"][0] in found["ids"].item()
        assert set(done.table("engines")["walk"]) == {"0000-given"}
        states = done.table("states")
        assert set(states["builder"]) == {"fixed"}
        faults = states.filter(pl.col("verdict").is_in([verdict.value for verdict in FAULTS]))
        assert faults.height == 0, (row["file"], faults)


@pytest.mark.parametrize("engine", ["xgrammar", "outlines", "gbnf"])
def test_special_tokens_are_allowed_in_free_text(probed: Finished, engine: str) -> None:
    """U-17: tokens that the runtime does not render are allowed by their text."""
    row = finding(probed, engine, "unsound", "special")
    assert 1 in row["ids"], "<s>"
    assert "b'<s>'" in row["report"]


def test_empty_tokens_are_allowed_at_every_step(probed: Finished) -> None:
    """U-31: lm-format-enforcer puts empty tokens at the root of its tree, so it always allows them.

    It treats control tokens as empty; on two of them the runtime stops.
    """
    row = finding(probed, "lmfe", "unsound", "special")
    judged = probed.table("engines").filter(engine="lmfe", verdict="unsound").height
    assert (row["n_states"], row["n_ids"]) == (judged, 63)
    assert "the table says b''" in row["report"]
    assert 2 in finding(probed, "lmfe", "stop_too_early", "end")["ids"], "</s>, at the start"


def test_all_but_one_id_of_a_text_are_lost(probed: Finished) -> None:
    """U-05: the vocabulary of outlines is a dict with texts as keys."""
    row = finding(probed, "outlines", "incomplete", "duplicate")
    assert row["n_ids"] > 90
    assert "the table says b''" in row["report"]


def test_outlines_core_loses_tokens_where_the_text_could_end(probed: Finished) -> None:
    """If the text may end here, it allows only tokens after which the text may end again."""
    row = finding(probed, "outlines_core", "incomplete", "other")
    assert (row["grammar"], row["tokens"]) == ("(ab)*", [])
    assert "b'a'" in row["report"]


def test_control_engine_loses_the_byte_zero_alone(probed: Finished) -> None:
    """GBNF refuses every piece that begins with byte 0, under any grammar."""
    assert finding(probed, "gbnf", "incomplete", "other")["ids"] == [3]


def test_no_engine_allows_padding_or_lacks_long_tokens(probed: Finished) -> None:
    """These releases do not have U-23, nor a fault of tokens over 32 bytes."""
    kinds = set(probed.table("engine_findings")["kind"])
    assert not kinds & {"padding", "long"}


def test_unknown_engine_is_a_usage_error(tmp_path: Path) -> None:
    done = pipeline(tmp_path, "audit", "audit.engines=[xgramar]")
    assert done.code == 2
    assert "Unknown engine 'xgramar'; choose from gbnf, lmfe" in done.err


# --- finding and classifying faults --------------------------------------------------------------


def test_a_literal_becomes_a_regular_expression_of_itself() -> None:
    assert portable_grammar(small_cases.literal("a.b (c)\\-")) == ("regex", r"a\.b \(c\)\\\-")
    assert portable_grammar(small_cases.pattern("[a-z]+")) == ("regex", "[a-z]+")
    schema = Case("engines", "x", "", Grammar("json", '{"const":1}'), Json({"const": 1}), 64)
    assert portable_grammar(schema) == ("json", '{"const":1}')


def test_a_grammar_that_its_check_does_not_repeat_is_no_common_one() -> None:
    """The check's pattern is not used for engines if the grammar is written differently."""
    grammar = Grammar("lark", 'start: /[a-z]{2}/ "!"')
    assert portable_grammar(Case("s", "x", "", grammar, Pattern("[a-z]{2}!"), 64)) is None


def test_a_suite_for_engines_must_be_one_that_all_know(tmp_path: Path) -> None:
    suite = tmp_path / "odd.yaml"
    suite.write_text(SUITE.replace("/(ab)*/'", '("ab")*\''), "utf-8")
    quiet = ("tokenizer=phi3", "builder=fixed", "audit.walks=0", "audit.strings_suite=null")
    asked = ("audit.engines=[gbnf]", f"audit.engines_suite={suite}")
    done = pipeline(tmp_path, "audit", *quiet, *asked)
    assert done.code == 2
    assert "case 'repeated': some engines cannot use it" in done.err


def test_each_kind_of_fault_is_told(open_vocabulary: Open) -> None:
    """A mask with deliberate faults: padding, special, empty, duplicate, long, newline, end."""
    vocabulary = open_vocabulary("llama_spm").vocabulary
    true = [*vocabulary.true_bytes]
    true[500], true[501], true[502] = b"", b"x" * 40, b"y\n"
    hidden = [*vocabulary.hidden]
    small = replace(vocabulary, true_bytes=true[:510], attrs=vocabulary.attrs[:510])
    claimed = [*small.true_bytes]
    claimed[400] = b"?"
    legal = np.zeros(510, np.bool_)
    legal[[400, 501, 502, 131, 68]] = True
    allowed = np.zeros(512, np.bool_)
    allowed[[1, 2, 500, 511]] = True
    mask = np.packbits(allowed, bitorder="little").view(np.uint32)
    found = dict(Kinds(small, claimed).of(small_cases.pattern("x"), (), mask, (legal, False)))
    assert hidden[1]
    assert found == {
        (MaskVerdict.UNSOUND, "special"): [1],
        (MaskVerdict.UNSOUND, "no_bytes"): [500],
        (MaskVerdict.UNSOUND, "padding"): [511],
        (MaskVerdict.INCOMPLETE, "wrong_bytes"): [400],
        (MaskVerdict.INCOMPLETE, "long"): [501],
        (MaskVerdict.INCOMPLETE, "newline"): [502],
        (MaskVerdict.INCOMPLETE, "half_character"): [131],
        (MaskVerdict.INCOMPLETE, "other"): [68],
        (MaskVerdict.STOP_TOO_EARLY, "end"): [2],
    }


@pytest.mark.parametrize(
    ("prefix", "token", "kind"),
    [
        (b'{"a": "', b"\n", "control_character"),
        (b'{"a": "', b"\\/", "json_spelling"),
        (b'{"a": "', b'",\n ', "json_white_space"),
        (b'{"a": "\\"', b"\t", "control_character"),
        (b'{"a": "\\', b"u", "json_spelling"),
        (b"{", b" \n", "json_white_space"),
        (b"{", b"x", "other"),
    ],
)
def test_where_json_leaves_a_choice_the_kind_says_so(
    open_vocabulary: Open, prefix: bytes, token: bytes, kind: str
) -> None:
    vocabulary = open_vocabulary("llama_spm").vocabulary
    true = [b"<s>", token, prefix]
    three = replace(vocabulary, true_bytes=true, attrs=vocabulary.attrs[[1, 29900, 29900]])
    three = replace(three, end_ids=frozenset())
    mask = np.array([2], np.uint32)
    schema = Case("engines", "x", "", Grammar("json", "{}"), Json({}), 64)
    nothing = np.zeros(3, np.bool_), False
    found = Kinds(three, true).of(schema, [2], mask, nothing)
    assert dict(found) == {(MaskVerdict.UNSOUND, kind): [1]}
    elsewhere = Kinds(three, [*true[:2], b"?"]).of(schema, [2], mask, nothing)
    assert dict(elsewhere) == {(MaskVerdict.UNSOUND, "drifted"): [1]}, (
        "the engine's state differs from the text"
    )


def test_another_order_of_properties_is_no_fault() -> None:
    """JSON Schema does not define an order; llguidance uses the order of the schema."""
    text = '{"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"required":["a","b"]}'
    schema = Case("engines", "x", "", Grammar("json", text), Json({}), 64)
    [other] = property_orders(schema)
    assert other.match(b'{"b":2').n_legal == 6
    assert ByteGrammar(schema.grammar.engine_text()[1]).match(b'{"b":2').n_legal == 2
    assert list(property_orders(small_cases.pattern("x"))) == []


def test_an_engine_whose_process_dies_is_an_error_and_no_crash(open_vocabulary: Open) -> None:
    material = open_vocabulary("llama_spm").material
    engine = ForeignEngine("gbnf", material)
    matcher = engine.compile(engine.table, "regex", "[a-z]+")
    assert matcher.mask() is not None
    engine._session._process.kill()  # pyright: ignore[reportPrivateUsage]
    assert matcher.mask() is None
    assert matcher.error is not None
    assert "its process ended with code -9" in matcher.error
    assert not matcher.consume(1)
    matcher.close()


def test_a_file_that_is_gone_is_no_refusal_of_a_library(tmp_path: Path) -> None:
    """If the cache is emptied during a run, the worker ends and the next one makes the file again.

    Once this was reported as GBNF refusing a vocabulary that it had never read.
    """
    file = tiny_spm(tmp_path / "plain.gguf", byte_tokens=True)
    with closing(llama.Model(file, vocab_only=True)) as model:
        material = Material(vocabulary.read(model), model.vocab, lambda _: True)
        file.unlink()
        with pytest.raises(FileNotFoundError):
            ForeignEngine("gbnf", material)
        with pytest.raises(FileNotFoundError):
            survives(file, b"a")


def test_a_grammar_that_does_not_compile_sets_error(open_vocabulary: Open) -> None:
    engine = ForeignEngine("gbnf", open_vocabulary("llama_spm").material)
    broken = engine.compile(engine.table, "regex", "(?=a)")
    assert broken.mask() is None
    assert broken.error is not None
    assert "cannot be written as GBNF" in broken.error
