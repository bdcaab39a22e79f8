"""Field cases C: special tokens and stop tokens."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import llguidance

from pipeline.engines.llguidance import Llguidance
from pipeline.grammars.checkers import Json
from pipeline.grammars.languages import ByteGrammar
from pipeline.model.verdicts import Cause, MaskVerdict, Verdict
from pipeline.vocab.token_types import Attr
from pipeline.vocab.vocabulary import Vocabulary
from support import damaged_ggufs as faults
from support import field_cases
from support.field_cases import Open, literal_check, special_rows
from support.toy import (
    BYTES,
    Bench,
    bench_of,
    case_of,
    made_of,
    opened_file,
    schema_case,
    table_of,
)

engine = field_cases.engine


def thinking() -> Vocabulary:
    """All single bytes, `<think>`, `</think>` and an end id."""
    pieces = [*BYTES, b"<think>", b"</think>", b"</s>"]
    return made_of(pieces, dict.fromkeys((256, 257, 258), Attr.CONTROL), ends=[258])


def test_u15_literal_is_characters_and_a_bare_name_is_the_token(engine: Llguidance) -> None:
    """outlines #1771 and PR 1965: a literal `"<think>"` is bytes; a tokenizer may give its id."""
    vocabulary = thinking()
    bench = Bench(vocabulary, table_of(vocabulary), engine)
    literal = case_of('start: "<think>" /[a-z]+/', literal_check("<think>"))
    assert bench.state(literal).verdict is MaskVerdict.EXACT
    assert bench.allowed(literal) == [ord("<")]
    bare = case_of("start: <think> /[a-z]+/ </think>", literal_check(""))
    assert bench.allowed(bare) == [256]
    assert bench.state(bare).verdict is MaskVerdict.NO_ORACLE
    with closing(bench.compile(case_of("start: <nothere>", literal_check("")))) as matcher:
        assert matcher.error is not None
        assert "nothere" in matcher.error


def test_u15_a_bare_name_has_no_oracle_and_the_reason_says_why() -> None:
    """Over bytes there is no token `<think>`. The grammar has no fault: it compiles."""
    grammar = ByteGrammar("%llguidance {}\nstart: <think> /[a-z]+/ </think>")
    assert grammar.no_oracle is not None
    assert "by id or name" in grammar.no_oracle


def test_u15_a_tokenizer_that_parses_specials_forces_the_id(
    engine: Llguidance, open_vocabulary: Open
) -> None:
    """The literal `<s>a</s>` is refused with `llama_tokenize`, and generated as bytes without it.

    In reality the mask is already *unsound*: it allows a token that renders nothing.
    """
    opened = open_vocabulary("llama_spm")
    literal = 'start: "<s>a</s>"'
    bench = bench_of(opened, "bytes_fixed")
    assert bench.allowed(literal) == [1]
    assert bench.state(literal).verdict is MaskVerdict.UNSOUND
    judged = bench.generate(literal)
    assert (judged.verdict, judged.cause) == (Verdict.UNENFORCED, Cause.SPECIAL)
    assert bench_of(opened, "fixed").generate(literal).verdict is Verdict.OK


def marked_up(out: Path) -> Path:
    """SentencePiece with `\\n` and `<b>` user-defined, and a control token `<|x|>`."""
    tokens = [("<unk>", faults.UNKNOWN), ("<s>", faults.CONTROL), ("</s>", faults.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", faults.BYTE) for byte in range(256)]
    tokens += [("\n", faults.USER_DEFINED), ("<b>", faults.USER_DEFINED)]
    tokens += [("<|x|>", faults.CONTROL), ("<|channel|>", faults.USER_DEFINED)]
    tokens += [("▁", faults.NORMAL), ('"', faults.NORMAL)]
    return faults.tiny_vocabulary(out, tokens, add_space_prefix=False)


NEWLINE, BOLD, CONTROL, CHANNEL = 259, 260, 261, 262


def test_u16_added_tokens_that_are_not_special_stay_text(tmp_path: Path) -> None:
    """llguidance #147, #361, PR 202: `\\n` and `<b>` are added tokens, but treated as special.

    `attr_special` overrides the file's type USER_DEFINED. `fixed` follows what the runtime renders.
    """
    with opened_file(marked_up(tmp_path / "added.gguf")) as opened:
        for builder, lost in (("fixed", False), ("attr_special", True)):
            bench = bench_of(opened, builder)
            rows = special_rows(bench)
            for token in (NEWLINE, BOLD):
                row = rows[token]
                assert (row["attribute"], row["marked_special"]) == ("USER_DEFINED", lost)
                assert row["verdict"] == ("text_lost" if lost else "ok")
            for case, before, token in (
                ("start: /a\\nb/", b"a", NEWLINE),
                ("start: /(<b>|x)a/", b"", BOLD),
            ):
                taken = [3 + byte for byte in before]
                found = table_without_tokenization(bench).state(case, taken)
                if lost:
                    assert (found.verdict, found.ids) == (MaskVerdict.INCOMPLETE, (token,))
                else:
                    assert found.verdict is MaskVerdict.EXACT


def table_without_tokenization(bench: Bench) -> Bench:
    """The same claims, tokenized greedily, so that nothing is forced."""
    table = replace(bench.table, tokenize=None, tokenize_mode="greedy")
    return Bench(bench.vocabulary, table, bench.engine)


def test_u17_every_token_that_is_not_plain_is_asked_inside_a_json_string(tmp_path: Path) -> None:
    """llama.cpp PR 15837, #17607; guidance PR 1137; omlx #1087: markers inside JSON strings.

    In reality a marker typed USER_DEFINED, as in gpt-oss, *is* text for llama.cpp, which renders
    it. The table therefore says that it is allowed in a string, and that this is right. The column
    `in_json_string` answers the question of the report. `attr_special` was made for this case: it
    does not allow the marker, and so text is lost.
    """
    with opened_file(marked_up(tmp_path / "marked.gguf")) as opened:
        fixed, strict = (special_rows(bench_of(opened, b)) for b in ("fixed", "attr_special"))
        assert fixed[CHANNEL]["in_json_string"] is True
        assert strict[CHANNEL]["in_json_string"] is False
        assert strict[CHANNEL]["verdict"] == "text_lost"
        for rows in (fixed, strict):
            hidden = [row for row in rows.values() if row["attribute"] in ("CONTROL", "UNKNOWN")]
            assert len(hidden) == 4
            assert not any(row["in_json_string"] for row in hidden)
            assert [row["token"] for row in hidden if row["in_free_text"]] == [2], "the end alone"


def test_u17_a_forgotten_marker_lets_a_control_token_in(engine: Llguidance) -> None:
    """Unmarked control tokens are allowed in a JSON string and in an enum; marked ones are not."""
    pieces = [*BYTES, b"<|im_end|>", b"<|x|>", b"</s>"]
    attrs: dict[int, Attr] = dict.fromkeys((256, 257, 258), Attr.CONTROL)
    vocabulary = made_of(pieces, attrs, ends=[258, 256])
    forgot = Bench(vocabulary, table_of(vocabulary, special=[258]), engine)
    rows = special_rows(forgot)
    assert rows[256]["verdict"] == "end_allowed_in_string"
    assert rows[257]["verdict"] == "allowed_but_hidden"
    enum = "start: /(<\\|x\\|>|no)/"
    assert 257 in forgot.allowed(enum)
    assert forgot.state(enum).verdict is MaskVerdict.UNSOUND
    marked = Bench(vocabulary, table_of(vocabulary), engine)
    assert {row["verdict"] for row in special_rows(marked).values()} == {"ok"}
    assert marked.state(enum).verdict is MaskVerdict.EXACT


def two_ends(second: Attr) -> Vocabulary:
    """All single bytes, and two ids on which the runtime stops: `</s>` and `<|im_end|>`.

    The builder knows only `</s>` as an end id.
    """
    pieces = [*BYTES, b"</s>", b"<|im_end|>"]
    return made_of(pieces, {256: Attr.CONTROL, 257: second}, ends=[256, 257], eos=256)


def test_u18_a_second_stop_id_cuts_the_text(engine: Llguidance) -> None:
    """vllm #52146, PR 52153; coreai-models PR 117: the builder does not know one of the stop ids.

    `test_every_stop_id_is_kept_not_only_the_builders` compares the real stop ids of several
    vocabularies with the one id that a builder names.
    """
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    begun = [*b'{"a":"x']
    case = schema_case(json.dumps(schema), Json(schema), begun)
    vocabulary = two_ends(Attr.CONTROL)
    unmarked = Bench(vocabulary, table_of(vocabulary, special=[256]), engine)
    found = unmarked.state(case, begun)
    assert (found.verdict, found.ids) == (MaskVerdict.STOP_TOO_EARLY, (257,))
    cut = unmarked.generate(replace(case, tokens=(*begun, 257)))
    assert (cut.verdict, cut.cause, cut.output) == (
        Verdict.EARLY_STOP,
        Cause.SPECIAL,
        b'{"a":"x',
    )
    marked = Bench(vocabulary, table_of(vocabulary), engine)
    assert 257 not in marked.allowed(case, begun)
    assert marked.state(case, begun).verdict is MaskVerdict.EXACT


def test_u18_a_builder_without_the_end_never_stops(engine: Llguidance) -> None:
    """The opposite fault: the text is complete, and no stop id is allowed."""
    vocabulary = two_ends(Attr.CONTROL)
    endless = Bench(vocabulary, replace(table_of(vocabulary), eos=-1), engine)
    assert endless.state('start: "a"', [ord("a")]).verdict is MaskVerdict.STOP_MISSING
    assert endless.generate('start: "a"').verdict is Verdict.NO_STOP


def test_u19_the_end_alone_or_in_a_list(engine: Llguidance) -> None:
    """llguidance #239: consuming `[a, EOS]` in one call worked; one by one did not.

    In reality this is still so if nothing can follow the text. After `a` the matcher has stopped by
    itself. Consuming the end id alone is then an error, though the mask allows it and the list is
    accepted. `try_consume_tokens` counts one token in both cases. If the text can continue (`a+`),
    every split gives the same result. For the pipeline a refused end id is no loss of the
    constraint: the cell is ok.
    """
    tokenizer = llguidance.LLTokenizer("byte")
    a, end = ord("a"), tokenizer.eos_token

    def fails(grammar: str, *split: list[int]) -> bool:
        matcher = llguidance.LLMatcher(
            tokenizer, f"%llguidance {{}}\nstart: {grammar}", log_level=0
        )
        for ids in split:
            matcher.consume_tokens(ids)
        assert matcher.is_stopped()
        return matcher.is_error()

    assert not fails('"a"', [a, end])
    assert fails('"a"', [a], [end])
    assert not fails("/a+/", [a, end])
    assert not fails("/a+/", [a], [end])
    for ids in ([a, end], [a]):
        matcher = llguidance.LLMatcher(tokenizer, '%llguidance {}\nstart: "a"', log_level=0)
        assert matcher.try_consume_tokens(ids) == 1
    vocabulary = made_of([*BYTES, b"</s>"], {256: Attr.CONTROL}, ends=[256])
    bench = Bench(vocabulary, table_of(vocabulary), engine)
    for grammar in ('start: "a"', "start: /a+/"):
        assert 256 in bench.allowed(grammar, [a])
        assert bench.state(grammar, [a]).verdict is MaskVerdict.EXACT
        assert bench.generate(replace(case_of(grammar), tokens=(a, 256))).verdict is Verdict.OK


def test_u20_a_reserved_token_costs_its_own_request_alone(engine: Llguidance) -> None:
    """llama.cpp #11591, #13341, #13690, #18173, #12597: an id outside the grammar stops the server.

    An earlier sampler leaves only `[reserved]`. It is sampled, and the grammar has no next state.

    In reality this cannot happen here: an allowed token is sampled even if no allowed token has a
    logit left. If the id is given to the engine directly, it is refused with an error message and
    without a crash.
    """
    pieces = [b"{", b"[reserved]", b"<unused32>", b"</s>"]
    attrs = {1: Attr.CONTROL, 2: Attr.UNUSED, 3: Attr.CONTROL}
    vocabulary = made_of(pieces, attrs, ends=[3])
    bench = Bench(vocabulary, table_of(vocabulary, special=[1, 2, 3]), engine)
    literal = 'start: "{"'
    assert bench.state(literal).verdict is MaskVerdict.EXACT
    assert bench.generate(literal, never=(0, 2, 3)).verdict is Verdict.OK
    for token in (1, 2):
        with closing(bench.compile(case_of(literal))) as matcher:
            assert not matcher.consume(token)
            assert matcher.error
    assert [special_rows(bench)[token]["attribute"] for token in (1, 2)] == ["CONTROL", "UNUSED"]
    assert bench.generate(literal).verdict is Verdict.OK, "the process lives"


def test_u20_no_candidate_left_is_an_outcome(engine: Llguidance) -> None:
    """`impossible` if the vocabulary cannot write `{`; `stopped` if only the table has lost it."""
    vocabulary = made_of(
        [b"{", b"[reserved]", b"</s>"], {1: Attr.CONTROL, 2: Attr.CONTROL}, ends=[2]
    )
    lost = Bench(vocabulary, table_of(vocabulary, [b"", b"[reserved]", b"</s>"]), engine)
    literal = 'start: "{"'
    found = lost.state(literal)
    assert (found.verdict, found.ids) == (MaskVerdict.EMPTY, (0,))
    assert lost.generate(literal, drop=False).verdict is Verdict.STOPPED
    bare = made_of([b"}", *vocabulary.true_bytes[1:]], {1: Attr.CONTROL, 2: Attr.CONTROL}, ends=[2])
    nothing = Bench(bare, table_of(bare), engine)
    assert nothing.generate(literal).verdict is Verdict.IMPOSSIBLE
