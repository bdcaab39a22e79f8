"""Real released servers as targets: llama.cpp's own interface and OpenAI's."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.audit.token_oracle import TokenOracle
from pipeline.generation.judge_answer import Bench, judge_answer, shows_constant
from pipeline.generation.judgement import Judged
from pipeline.generation.servers.answer import Answer, answer
from pipeline.generation.servers.http import Reply
from pipeline.generation.servers.launch import Launched
from pipeline.generation.servers.llama_cpp import Server
from pipeline.generation.servers.provide import Provided, provide
from pipeline.generation.settings import TargetSettings
from pipeline.generation.targets.server import DEFAULT
from pipeline.grammars import suites
from pipeline.grammars.case import Case, Grammar
from pipeline.grammars.checkers import JsonValue, Literal, Pattern, check
from pipeline.grammars.languages import ByteGrammar
from pipeline.model.verdicts import End
from pipeline.results.compare.comparison import compare
from pipeline.results.compare.side import Side, SideRequest, load
from pipeline.vocab.files import forge, source
from support.command import ROOT, Finished, pipeline
from support.vocabularies import Opened, vocabulary_file

_NEEDED = ("xllamacpp", "uvicorn", "starlette_context")
if any(importlib.util.find_spec(name) is None for name in _NEEDED):
    pytest.skip("pip install -c constraints.txt -e '.[server]'", allow_module_level=True)


# --- llama.cpp's own interface --------------------------------------------------------------------


@pytest.fixture(scope="module")
def section8(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The table of the founding document's section 8 over HTTP, in one command."""
    done = pipeline(tmp_path_factory.mktemp("section8"), "run", "target=server")
    assert done.code == 0, done.err
    return done


def test_section_8_over_http(section8: Finished) -> None:
    """0/3 on SentencePiece, always HTTP 200, and engine errors are counted."""
    assert "  tiny   mistral_v1/SPM  0/3, 1/40, 27 err" in section8.out
    cells = section8.table("cells").filter(pl.col("suite") != "sentinel")
    assert cells.height == 40
    assert cells["http_status"].unique().to_list() == [200]
    assert cells["n_engine_errors"].sum() == 27
    assert cells.filter(case="founding")["verdict"].sort().to_list() == [
        *("silent_corruption", "unenforced", "unenforced")
    ]


def test_a_violation_without_an_engine_error_is_silent(section8: Finished) -> None:
    """An example of the founding document: no error is reported, but a key is corrupted."""
    cells = section8.table("cells")
    [row] = cells.filter(suite="enum", case="founding").to_dicts()
    assert row["output"] == b' {"col our":" ch artre use"," count":5 }'
    assert (row["verdict"], row["ended"]) == ("silent_corruption", "stop_id")
    assert (row["n_engine_errors"], row["http_status"]) == (0, 200)
    loud = cells.filter(pl.col("n_engine_errors") > 0)
    assert set(loud["verdict"]) == {"unenforced", "impossible"}


def test_the_sentinels_of_the_released_server(section8: Finished) -> None:
    """Grammars that must be refused are answered with HTTP 200."""
    came = {
        row["case"]: (row["verdict"], row["cause"], row["http_status"])
        for row in section8.table("cells").filter(suite="sentinel").iter_rows(named=True)
    }
    assert came == {
        "constant": ("unenforced", "unknown", 200),
        "constant_schema": ("silent_corruption", "unknown", 200),
        "impossible": ("impossible", "grammar", 200),
        "invalid": ("unenforced", "grammar", 200),
        "invalid_schema": ("unenforced", "grammar", 200),
    }
    assert "Enforcement, apart from validity" in section8.out
    assert "impossible, HTTP 200" in section8.out


def test_a_row_says_which_server_made_it(section8: Finished) -> None:
    cells = section8.table("cells")
    assert cells["target"].unique().to_list() == ["server"]
    assert cells["builder"].unique().to_list() == ["xllamacpp"]
    version = importlib.metadata.version("xllamacpp")
    assert cells["server"].unique().to_list() == [f"xllamacpp {version}"]
    assert cells["llama_lib_sha256"].str.len_bytes().unique().to_list() == [64]
    assert cells["cell_hash"].n_unique() == cells["cell_hash"].len() > 0
    steps = section8.table("steps").filter(case="founding", suite="enum")
    assert b"".join(steps["rendered"]) == b' {"col our":" ch artre use"," count":5 }'


def test_a_run_in_process_compares_with_one_of_a_server(section8: Finished) -> None:
    """Select sides by builder and by label; only one side has an audit and other stages."""
    ours = pipeline(
        section8.folder.parent,
        *("run", "builder=unfixed", "audit.walks=0", "audit.strings_suite=null"),
        *("engine.oracle=off", "run.name=ours"),
    )
    assert ours.code == 0, ours.err
    assert ours.table("tokenizers").height == 1
    comparison = compare(side(ours, "unfixed"), side(section8, "xllamacpp"))
    paired = comparison.cells.filter(pl.col("suite") != "sentinel")
    assert paired["change"].is_in(["still_passing", "still_failing"]).all()
    assert comparison.exit_code("regression") == 0
    assert comparison.hints == (
        "a server does not show its token table: only cells and standings are compared",
    )


def side(run: Finished, builder: str) -> Side:
    return load(SideRequest(run.folder.name, builder), run.folder.parent)


def test_the_log_is_kept(section8: Finished) -> None:
    [log] = (section8.folder / "parts").glob("*.log")
    assert log.read_text("utf-8", "replace").count("llg error: ") >= 27


def test_two_builds_by_their_labels_are_two_sides(section8: Finished) -> None:
    """The same build under another label: every cell is paired, and nothing has changed."""
    other = pipeline(
        section8.folder.parent,
        *("run", "target=server", "target.label=branch", "target.slots=1", "run.name=branch"),
    )
    assert other.code == 0, other.err
    comparison = compare(side(section8, "xllamacpp"), side(other, "branch"))
    assert comparison.exit_code("any_change") == 0


# --- the server, asked directly -------------------------------------------------------------------


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provided]:
    model = forge.forge_model(vocabulary_file("mistral_v1"), 0, source.cache_dir())
    log = tmp_path_factory.mktemp("released") / "server.log"
    with closing(
        provide(
            TargetSettings("server"), DEFAULT, model, log, ready="/health", context=256, threads=1
        )
    ) as server:
        yield server


def asked(server: Provided, grammar: str, prompt: tuple[int, ...] = (1, 22557)) -> Answer:
    case = Case("s", "c", "", Grammar("lark", grammar), Pattern(""), 24)
    return answer(server.post("/completion", Server().body(case, prompt, 24)), Server())


def test_u29_nothing_is_carried_over_between_requests(released: Provided) -> None:
    """Others kept state between requests or rows of a batch (llama-cpp-python PR 572, outlines PR
    556). Here a repeated request gives the same answer, after and among unconstrained ones."""
    yes_no, free = 'start: "yes" | "no"', "start: /(.|\\n)*/"
    first = asked(released, yes_no)
    again = [asked(released, grammar) for grammar in (free, yes_no, free, yes_no)]
    assert first.text is not None
    assert again[1] == again[3] == first
    assert again[0] == again[2]
    assert again[0].text != first.text
    with ThreadPoolExecutor(3) as pool:
        rows = list(pool.map(partial(asked, released), (free, free, yes_no)))
    assert rows[2] == first
    assert all(row.n_tokens == 24 for row in rows[:2])


def test_u26_on_the_released_server(released: Provided) -> None:
    """It refuses a GBNF that it cannot parse, but drops a grammar that llguidance cannot parse."""
    refused = released.post(
        "/completion", {"prompt": [1], "n_predict": 4, "grammar": 'root ::= "a'}
    )
    assert answer(refused, Server()).end is End.REFUSED
    dropped = asked(released, 'start: "a')
    assert (dropped.end, dropped.status) == (End.TOKEN_LIMIT, 200)
    assert dropped == asked(released, "start: /(.|\\n)*/"), "as if there were no grammar"


def test_another_vocabulary_is_refused(released: Provided, tmp_path: Path) -> None:
    """A server with another vocabulary would answer the ids with HTTP 200."""
    done = pipeline(
        tmp_path,
        *("run", "target=server", f"target.url={released.address}", "tokenizer=llama_spm"),
    )
    assert done.code == 2
    assert "has a different vocabulary from model=tiny tokenizer=llama_spm" in done.err


def test_a_server_that_runs_is_left_running(released: Provided, tmp_path: Path) -> None:
    done = pipeline(
        tmp_path,
        *("run", "target=server", f"target.url={released.address}", "grammar.cases=[founding]"),
    )
    assert done.code == 0, done.err
    assert released.get("/health").status == 200
    cells = done.table("cells")
    assert cells["builder"].unique().to_list() == ["server"]
    assert cells["n_engine_errors"].null_count() == cells.height == 8, "there is no log to read"
    assert not list((done.folder / "parts").glob("*.log"))


def test_a_started_server_stops_with_its_holder(released: Provided, tmp_path: Path) -> None:
    """`close` waits until the process has ended and its port is free."""
    command = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "{port}")
    started = Launched(command, {}, tmp_path / "log", ready="/", limit=30)
    address = started.address
    assert started.alive
    started.close()
    assert not started.alive
    found = Provided(address, "", None).get("/")
    assert found.status is None


# --- OpenAI's interface ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """llama-cpp-python's own server, chat completions with a schema."""
    return pipeline(
        tmp_path_factory.mktemp("chat"), "run", "target=openai", "grammar=enum", "target.slots=1"
    )


def test_chat_completions_are_judged_by_the_schema(chat: Finished) -> None:
    """This server's engine enforces constants and enums, but not the bounds of integers."""
    cells = chat.table("cells")
    assert set(cells["target"]) == {"openai"}
    [constant] = cells.filter(case="constant_schema").to_dicts()
    assert (constant["verdict"], constant["text_valid"]) == ("ok", True)
    assert constant["output"] != b'{"k":"vwqzjxkq7jkwvzqx"}', "another layout is valid too"
    [founding] = cells.filter(case="founding").to_dicts()
    assert founding["verdict"] == "silent_corruption"
    assert check(JsonValue({"type": "object"}), founding["output"]) is None
    version = importlib.metadata.version("llama-cpp-python")
    assert cells["server"].unique().to_list() == [f"llama-cpp-python {version}"]


def test_a_case_that_kills_the_server_harms_no_other(chat: Finished) -> None:
    """It crashes on a schema with quotes and backslashes; after a restart it answers the rest."""
    died = chat.table("cells").filter(verdict="crashed")
    assert died["case"].to_list() == ["quotes_and_backslashes"]
    assert "failed to parse grammar" in died["reason"][0]
    assert chat.table("cells").filter(pl.col("http_status") == 200).height == 13
    assert chat.code == 1, "something was lost"


def test_a_format_that_is_dropped_is_unenforced(tmp_path: Path) -> None:
    """llama-cpp-python's `/v1/completions` accepts a `response_format`, ignores it, returns 200."""
    done = pipeline(
        tmp_path,
        *("run", "target=openai", "target.api=completions", "grammar=enum", "grammar.limit=2"),
    )
    assert done.code == 0, done.err
    cells = done.table("cells")
    assert cells["http_status"].unique().to_list() == [200]
    assert cells["verdict"].unique().to_list() == ["unenforced"]
    assert any("no sentinel answer shows its constant" in reason for reason in cells["reason"])


# --- from an answer to a verdict ------------------------------------------------------------------


def outcome(opened: Opened, given: Answer, **how: Any) -> Judged:
    case = Case("s", "c", "Hello", Grammar("lark", 'start: "hello"'), Literal(b"hello"), 8)
    case = replace(case, **how.pop("case", {}))
    bench = Bench(
        grammar=ByteGrammar(case.grammar.engine_text()[1]),
        oracle=TokenOracle(opened.vocabulary.rendered),
        rendered=opened.vocabulary.rendered,
        **how,
    )
    return judge_answer(case, given, bench)


def judged(opened: Opened, given: Answer, **how: Any) -> tuple[str, str]:
    found = outcome(opened, given, **how)
    return found.verdict.value, found.output.hex()


_NONE = {"grammar": Grammar("lark", "start: A\nA: /[a-z]+/ & /[0-9]+/"), "check": Pattern("a")}
_WENT_ON = "the engine reported an error and the server continued without the constraint"
_BROKEN = {"grammar": Grammar("lark", 'start: "a'), "check": Pattern("a")}


@pytest.mark.parametrize(
    ("given", "how", "reason"),
    [
        ({}, {}, ""),
        (
            {"text": "help"},
            {},
            "the output leaves the grammar at byte 3 and no engine error is seen",
        ),
        ({"text": "he"}, {}, "the server ended the output before it was complete"),
        ({"errors": ("x",)}, {}, f"{_WENT_ON}; the output is correct anyway"),
        (
            {"text": "help", "errors": ("x",)},
            {},
            f"{_WENT_ON}; the output leaves the grammar at byte 3",
        ),
        (
            {"text": "he", "errors": ("x",)},
            {},
            f"{_WENT_ON}; the checker rejects the output: byte 2: ",
        ),
        ({"end": End.TOKEN_LIMIT, "text": "he"}, {}, "the token limit was reached before"),
        ({"end": End.TOKEN_LIMIT, "text": "he", "n_tokens": 3}, {}, "the limit of 3 tokens was"),
        (
            {},
            {"case": _BROKEN},
            "the grammar did not compile and the server continued without it",
        ),
        (
            {},
            {"case": _NONE},
            "the grammar allows no next byte at byte 0; the server continued without the ",
        ),
        ({"end": End.CLOSED, "text": None, "said": "gone", "unlike": True}, {}, "gone"),
    ],
)
def test_the_reason_describes_the_text_and_the_engine_errors(
    given: dict[str, Any], how: dict[str, Any], reason: str, open_vocabulary: Any
) -> None:
    answered = replace(Answer(End.STOP_ID, 200, text="hello"), **given)
    said = outcome(open_vocabulary("mistral_v1"), answered, **how).reason
    assert said.startswith(reason) and bool(said) == bool(reason)


def test_a_correct_text_of_a_server_that_enforces_nothing_is_unenforced(
    open_vocabulary: Any,
) -> None:
    right = Answer(End.STOP_ID, 200, text="hello")
    opened = open_vocabulary("mistral_v1")
    assert judged(opened, right)[0] == "ok"
    assert judged(opened, right, enforces=False)[0] == "unenforced"
    assert judged(opened, replace(right, errors=("gone",)))[0] == "unenforced"


def test_bytes_that_json_cannot_carry_come_from_the_ids(open_vocabulary: Any) -> None:
    """A text cut inside a character has U+FFFD; the ids have the byte. If they differ in anything
    else, the received text counts."""
    opened = open_vocabulary("mistral_v1")
    byte = opened.vocabulary.rendered.index(b"\xe4")
    given = Answer(End.TOKEN_LIMIT, 200, text="\ufffd", tokens=(byte,))
    assert judged(opened, given)[1] == "e4"
    assert judged(opened, replace(given, text="x"))[1] == "78"
    assert judged(opened, replace(given, tokens=(10**6,)))[1] == "\ufffd".encode().hex()


def test_an_impossible_grammar_differs_from_a_lost_one(open_vocabulary: Any) -> None:
    """Our own oracle shows that no byte was legal, whatever the server answered."""
    given = Answer(End.TOKEN_LIMIT, 200, text="anything")
    assert judged(open_vocabulary("mistral_v1"), given, case=_NONE)[0] == "impossible"
    assert judged(open_vocabulary("mistral_v1"), given)[0] == "silent_corruption"


def test_a_constant_shows_through_wrong_spaces() -> None:
    file = ROOT / "datasets" / "sentinel.yaml"
    constant, schema, impossible, invalid, _ = suites.load(file).cases
    texts = {" qz jx kvwq7": True, "quite free text, xkvw": True, "Hello, how are you?": False}
    for text, shown in texts.items():
        assert showing(constant, Answer(End.STOP_ID, 200, text=text)) is shown
    assert showing(schema, Answer(End.STOP_ID, 200, text='{"k":" vw qz"}')) is True
    assert showing(schema, Answer(End.REFUSED, 400)) is None
    for case in (impossible, invalid):
        assert showing(case, Answer(End.STOP_ID, 200, text="anything")) is None


def test_a_sentinel_cut_on_a_legal_beginning_shows_nothing() -> None:
    """It was taken for a server that ignores grammars."""
    _, schema, *_ = suites.load(ROOT / "datasets" / "sentinel.yaml").cases
    assert showing(schema, Answer(End.TOKEN_LIMIT, 200, text='{"k"')) is None
    assert showing(schema, Answer(End.TOKEN_LIMIT, 200, text="Hello, ho")) is False


def showing(case: Case, answer: Answer) -> bool | None:
    return shows_constant(case, answer, ByteGrammar(case.grammar.engine_text()[1]))


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\xff", b"[]", b"null", b"{}", b'{"content":null,"stop_type":"eos"}'),
        b'{"content":"a","stop_type":3,"tokens_predicted":1}',
        b'{"content":"a","stop_type":"eos","tokens_predicted":"many"}',
        b'{"content":"a","stop_type":"eos","tokens_predicted":1,"tokens":["x"]}',
    ],
)
def test_an_answer_of_another_shape_is_garbled(body: bytes) -> None:
    assert answer(Reply(200, body), Server()).end is End.GARBLED
