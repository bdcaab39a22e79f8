"""Servers that die, hang, refuse, lie or answer nonsense: each fault affects only its own cell.

One run requests every fault of `faulty_server`. It is the only fake server, for faults that no real
server shows on demand.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.cli import compose
from pipeline.generation.settings import TargetSettings
from pipeline.model.errors import ConfigError
from pipeline.runs.parent.settings import Settings
from support.command import ROOT, Finished, pipeline
from support.faulty_server import CANARY

FAULTY = ROOT / "tests" / "support" / "faulty_server.py"
SCHEMA = {
    "type": "object",
    "properties": {"k": {"const": "right"}},
    "required": ["k"],
    "additionalProperties": False,
}
ONE = ("model=tiny", "tokenizer=mistral_v1", "target=openai", "target.response_format=json_schema")

# prompt → verdict, how it ended, HTTP status, and words of the reason
FAULTS: dict[str, tuple[str, str, int | None, str]] = {
    "right": ("ok", "stop_id", 200, ""),
    "die": ("crashed", "crashed", None, "the server died"),
    "hang": ("timeout", "timeout", None, "no answer within 3 s"),
    "trickle": ("timeout", "timeout", None, "no answer within 3 s"),
    "close": ("crashed", "closed", None, "RemoteDisconnected"),
    "break_off": ("crashed", "closed", None, "IncompleteRead"),
    "no_http": ("crashed", "closed", None, "BadStatusLine"),
    "refuse": ("grammar_error", "refused", 400, "cannot do this"),
    "fail": ("crashed", "failed", 500, "broken"),
    "busy_once": ("ok", "stop_id", 200, ""),
    "not_json": ("crashed", "garbled", 200, "not a valid answer: '<html>"),
    "other_json": ("crashed", "garbled", 200, "not a valid answer"),
    "deep": ("crashed", "garbled", 200, "nested too deeply"),
    "endless": ("crashed", "garbled", 200, "the answer is too long"),
    "redirect": ("crashed", "garbled", 302, "not followed"),
    "other_end": ("ok", "stop_id", 200, "finish_reason 'content_filter'"),
    **dict.fromkeys(
        ("eos", "eos_token", "upper_case", "end_turn", "no_reason", "parts"),
        ("ok", "stop_id", 200, ""),
    ),
    "infinite_usage": ("ok", "stop_id", 200, ""),
    "huge_usage": ("ok", "stop_id", 200, ""),
    "max_tokens": ("truncated", "token_limit", 200, "limit"),
    "declines": ("refused", "declined", 200, "the model declined: I cannot help with that"),
    "tool": ("early_stop", "stop_id", 200, "the arguments of the tool call are valid"),
    "surrogate_in_the_message": ("grammar_error", "refused", 400, "HTTP 400: half ?"),
    "busy_for_an_hour": ("busy", "busy", 429, "asks to wait 3600 s; HTTP 429: slow down"),
    "busy_for_ever": ("busy", "busy", 429, "HTTP 429: slow down"),
    "busy_in_ms": ("ok", "stop_id", 200, ""),
    "busy_until_a_date": ("ok", "stop_id", 200, ""),
    "wrong": ("silent_corruption", "stop_id", 200, "no engine error is seen"),
    "lost": ("unenforced", "token_limit", 200, "the engine reported an error"),
    "cut": ("truncated", "token_limit", 200, "limit"),
    "empty": ("early_stop", "stop_id", 200, "before it was complete"),
    "nothing": ("early_stop", "stop_id", 200, "before it was complete"),
    "reasoning": ("early_stop", "stop_id", 200, "constrained the reasoning"),
    "half_a_character": ("silent_corruption", "stop_id", 200, "byte 0"),
}


def case(prompt: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    check = {"regex": "(?!)"} if more else {"json": True}
    return {"id": prompt, "prompt": prompt, "grammar": {"json": schema}, "check": check, **more}


@pytest.fixture(scope="module")
def canary() -> Iterator[tuple[str, list[str]]]:
    """(an address that must not be contacted, the paths that were requested there)."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_error(418)

        do_POST = do_CONNECT = do_GET  # noqa: N815  # as http.server calls them

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()


def write_suite(folder: Path, *cases: dict[str, Any]) -> str:
    file = folder / "faults.json"
    text = json.dumps({"suite": "faults", "about": "Faults.", "cases": list(cases)})
    file.write_text(text, "utf-8")
    return f"grammar.path={file}"


def command(folder: Path) -> str:
    return f"target.command='{sys.executable} {FAULTY} {{port}} {folder / 'started'}'"


def started(folder: Path) -> list[tuple[int, int]]:
    """(process id, port) of every server that was started."""
    file = folder / "started"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(pid), int(port)) for pid, port in map(str.split, lines)]


def alive(folder: Path) -> list[int]:
    """The servers that are still running."""
    return [pid for pid, _ in started(folder) if Path(f"/proc/{pid}").exists()]


def watch(folder: Path) -> dict[str, str]:
    """An environment in which every Python process records the addresses it contacts."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "def hook(event, given):\n"
        "    if event in {'socket.connect', 'socket.sendto', 'socket.getaddrinfo'}:\n"
        f"        with open({str(folder / 'contacted')!r}, 'a') as file:\n"
        "            to = given[:2] if event == 'socket.getaddrinfo' else given[1]\n"
        "            file.write(f'{to[0]} {to[1]}\\n')\n"
        "sys.addaudithook(hook)\n"
    )
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.getenv("PYTHONPATH"))))}


@pytest.fixture(scope="module")
def faults(
    tmp_path_factory: pytest.TempPathFactory, canary: tuple[str, list[str]]
) -> tuple[Finished, Path]:
    folder = tmp_path_factory.mktemp("faults")
    suite = write_suite(
        folder,
        *(case(prompt, SCHEMA) for prompt in FAULTS),
        case("number_at_the_limit", {"type": "integer"}),
        case(
            "bad_grammar_answered",
            {"properties": {"k": {"const": "a"}}, "not": {}},
            invalid_grammar=True,
        ),
        case("bad_grammar_refused", {"enum": []}, invalid_grammar=True),
    )
    done = pipeline(
        folder,
        *("run", *ONE, "grammar=path", suite, command(folder), "target.label=faulty"),
        *("target.timeout=3", "target.slots=8"),
        env={CANARY: canary[0], "HTTP_PROXY": canary[0], "http_proxy": canary[0], **watch(folder)},
    )
    return done, folder


def row(done: Finished, prompt: str) -> dict[str, Any]:
    [found] = done.table("cells").filter(case=prompt).to_dicts()
    return found


@pytest.mark.parametrize("prompt", FAULTS)
def test_each_fault_has_its_verdict_and_affects_no_other_cell(
    faults: tuple[Finished, Path], prompt: str
) -> None:
    verdict, ended, status, words = FAULTS[prompt]
    found = row(faults[0], prompt)
    assert (found["verdict"], found["ended"], found["http_status"]) == (verdict, ended, status)
    assert words in found["reason"]
    assert found["builder"] == "faulty"
    text = ended in {"stop_id", "token_limit"} or prompt == "other_end"
    assert (found["output"] is not None) == text


def test_the_run_is_complete_and_reports_lost_cells(faults: tuple[Finished, Path]) -> None:
    done, folder = faults
    lost = sum(verdict in {"crashed", "timeout"} for verdict, *_ in FAULTS.values())
    assert done.code == 1, done.err
    assert f"{lost} units have no result: a process crashed or hung." in done.out
    assert "Answers that could not be judged:\n  " in done.out
    for told in ("2 × the server was busy", "1 × the model declined", "1 × the server died"):
        assert told in done.out
    assert alive(folder) == []
    assert len(started(folder)) > 1, "it was started again after it died"


def test_u26_a_bad_grammar_answered_is_unenforced_and_one_refused_is_not(
    faults: tuple[Finished, Path],
) -> None:
    """A grammar fails to compile, but the server only logs it and returns free text with HTTP 200
    (ggml-org/llama.cpp #19051, #24144): the status does not show whether it compiled."""
    answered, refused = (row(faults[0], f"bad_grammar_{how}") for how in ("answered", "refused"))
    assert (answered["verdict"], answered["http_status"]) == ("unenforced", 200)
    assert (refused["verdict"], refused["http_status"]) == ("grammar_error", 400)
    assert answered["cause"] == refused["cause"] == "grammar"


def test_u27_an_engine_error_is_assigned_to_its_cell(faults: tuple[Finished, Path]) -> None:
    """The bridge drops the mask at an engine error and continues (ggml-org/llama.cpp #12474); with
    eight concurrent requests its log does not tell which request had the error."""
    cells = faults[0].table("cells")
    with_errors = cells.filter(cells["n_engine_errors"] > 0)
    assert with_errors["case"].to_list() == ["lost"]
    assert with_errors["engine_error"].to_list() == ["no such token"]


def test_u28_a_grammar_applied_to_the_reasoning_is_reported(faults: tuple[Finished, Path]) -> None:
    """The JSON is in the reasoning and the content is empty (lmstudio-bug-tracker #1773, ggml-org/
    llama.cpp #12276): the content is judged, and the reason mentions the valid reasoning."""
    found = row(faults[0], "reasoning")
    assert not found["text_valid"]
    assert "the reasoning text is valid" in found["reason"]


def test_u30_cut_at_the_limit_is_its_own_verdict_even_if_it_parses(
    faults: tuple[Finished, Path],
) -> None:
    """Others count it as success or as a schema failure (mastra-ai/mastra #24442, vllm PR 14567):
    `123` for an integer is valid so far, but truncated."""
    found = row(faults[0], "number_at_the_limit")
    assert (found["verdict"], found["text_valid"]) == ("truncated", True)
    assert row(faults[0], "cut")["text_valid"] is False


def test_nothing_but_the_address_is_contacted(
    faults: tuple[Finished, Path], canary: tuple[str, list[str]]
) -> None:
    """No proxy from the environment, no target of a redirect, and no other address."""
    done, folder = faults
    assert row(done, "redirect")["http_status"] == 302
    assert canary[1] == []
    contacted = {tuple(line.split()) for line in (folder / "contacted").read_text().splitlines()}
    assert contacted == {("127.0.0.1", str(port)) for _, port in started(folder)}


# --- no server at all ----------------------------------------------------------------------------


def test_no_server_at_the_address(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = pipeline(tmp_path, "run", "target=server", f"target.url=http://127.0.0.1:{port}")
    assert done.code == 2
    assert "is not a llama.cpp server" in done.err
    assert "Connection refused" in done.err
    assert not done.folder.exists()


def test_a_command_that_serves_nothing(tmp_path: Path) -> None:
    told = "target.command='sh -c \"echo no such model >&2; exit 4\" {port}'"
    done = pipeline(tmp_path, "run", "target=server", told)
    assert done.code == 2
    assert "could not be started" in done.err
    assert "no such model" in done.err, "the end of its log"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": "ftp://x"}, "is not a valid address"),
        ({"url": "http://x:y"}, "is not a valid address"),
        ({"url": "http://x", "command": "a {port}"}, "but not both"),
        ({"command": "serve"}, "{port}"),
        ({"timeout": 600.0}, "less than engine.time_limit=600"),
        ({"slots": 0}, "target.slots=0 is too small"),
        ({"api": "words"}, "choose from chat, completions"),
        ({"name": "nobody"}, "Unknown target 'nobody'; choose from inprocess, openai, server."),
    ],
)
def test_contradictory_settings(given: dict[str, Any], words: str) -> None:
    target = replace(TargetSettings(name="server"), **given)
    with pytest.raises(ConfigError, match=re.escape(words)):
        compose.check(Settings(target=target))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("audit", "target=server"), "Use target=inprocess to audit"),
        (("run", "target=openai", "grammar=half_free"), "accepts JSON Schemas only"),
    ],
)
def test_unsupported_by_servers(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = pipeline(tmp_path, *arguments)
    assert done.code == 2
    assert words in done.err, done.err
    assert not done.folder.exists()


# --- the leash -----------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl_c", "kill"])
def test_a_started_server_never_outlives_the_run(number: signal.Signals, tmp_path: Path) -> None:
    suite = write_suite(tmp_path, case("hang", SCHEMA))
    run = subprocess.Popen(
        [
            *(sys.executable, "-m", "pipeline", "run", *ONE, "grammar=path", suite),
            *(command(tmp_path), f"results_dir={tmp_path}", "run.name=run"),
        ],
        cwd=ROOT,
        env=os.environ.copy(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_until(lambda: bool(alive(tmp_path)))
        run.send_signal(number)
        run.wait(timeout=30)
        _wait_until(lambda: not alive(tmp_path))
    finally:
        run.kill()
        run.wait()


def _wait_until(true: Any) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_denied_request_stops_the_run_with_one_sentence(tmp_path: Path) -> None:
    """HTTP 401 was a `grammar_error` for each cell with exit 0, as if grammars were refused."""
    suite = write_suite(tmp_path, case("denied", SCHEMA), case("right", SCHEMA))
    done = pipeline(tmp_path, "run", *ONE, "grammar=path", suite, command(tmp_path))
    assert done.code == 2
    assert "HTTP 401: no such key" in done.out + done.err
    assert "set BYTE_EXACT_API_KEY" in done.out + done.err
    assert "Traceback" not in done.err


def test_a_schema_that_only_our_engine_cannot_compile_is_judged_by_the_checker(
    tmp_path: Path,
) -> None:
    """A server that enforces `not` was `unenforced`, because llguidance does not compile it."""
    schema = SCHEMA | {"not": {"type": "string"}}
    done = imported(tmp_path, ("right", schema), ("wrong", schema))
    rows = {row["output"]: row for row in done.table("cells").to_dicts()}
    right, wrong = rows[b'{"k":"right"}'], rows[b'{"k":"wrong"}']
    assert (right["verdict"], right["enforcement"]) == ("ok", "unknown")
    assert wrong["verdict"] == "silent_corruption"
    assert "the checker rejects the output" in wrong["reason"]


def test_the_empty_answer_to_the_impossible_is_impossible(tmp_path: Path) -> None:
    done = imported(tmp_path, ("empty", {"not": {}}))
    cells = done.table("cells").filter(pl.col("suite") != "sentinel")
    assert cells["verdict"].to_list() == ["impossible"]


def imported(folder: Path, *asked: tuple[str, dict[str, Any]]) -> Finished:
    """A run of (prompt, schema) pairs from a collection, which may use any keyword."""
    file = folder / "schemas.jsonl"
    lines = [json.dumps({"prompt": prompt, "json_schema": schema}) for prompt, schema in asked]
    file.write_text("\n".join(lines) + "\n")
    options = ("grammar=jsonl", f"grammar.path={file}", "stages=[generate]")
    done = pipeline(folder, "run", *ONE, *options, command(folder))
    assert done.code == 0, done.err
    return done


@pytest.mark.parametrize("key", ["sk-planted\n", "sk-planted\nmore"])
def test_a_key_is_never_stored_or_printed(tmp_path: Path, key: str) -> None:
    """A key that ends in a newline stood in cells, journal, pages and console."""
    suite = write_suite(tmp_path, case("right", SCHEMA))
    arguments = ("run", *ONE, "grammar=path", suite, command(tmp_path))
    done = pipeline(tmp_path, *arguments, env={"BYTE_EXACT_API_KEY": key})
    assert done.code == (2 if "more" in key else 0)
    assert "planted" not in done.out + done.err
    files = [path for path in done.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"planted" in path.read_bytes()]
