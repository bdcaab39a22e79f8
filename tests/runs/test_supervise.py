"""A worker may die by a signal, hang or refuse: each is reported, and nothing is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.generation.settings import EngineSettings
from pipeline.runs.parent.supervise import Death, supervise
from pipeline.runs.protocol import Job, SuiteRef, read_job
from support import damaged_ggufs as faults
from support.command import QUICK, ROOT, pipeline
from support.vocabularies import vocabulary_file
from support.workers import job, soon_dead, stub


def work(one: Job, time_limit: float = 60) -> tuple[Death | None, list[dict[str, Any]]]:
    said: list[str] = []
    death = supervise(one, said.append, time_limit=time_limit)
    return death, [json.loads(line) for line in said]


def rows(messages: list[dict[str, Any]], table: str) -> list[dict[str, Any]]:
    return [
        row
        for message in messages
        if message["type"] == "rows" and message["table"] == table
        for row in message["rows"]
    ]


def gone(pid: Path) -> bool:
    """Whether the process is dead and has been waited for: a zombie still has a folder in /proc."""
    return not (Path("/proc") / pid.read_text().strip()).exists()


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")


# --- deaths of the real worker --------------------------------------------------------------------


def test_worker_that_ends_normally_is_not_a_death() -> None:
    death, messages = work(job(vocabulary_file("llama_spm")))
    assert death is None
    kinds = [message["type"] for message in messages]
    assert (kinds[0], kinds[-1]) == ("hello", "end")
    [row] = rows(messages, "tokenizers")
    assert (row["status"], row["n_wrong"]) == ("ok", 0)


def test_duplicate_token_text_aborts_llama_cpp_and_only_the_worker(tmp_path: Path) -> None:
    """`GGML_ASSERT(id_to_token.size() == token_to_id.size())`: U-08 and U-22."""
    file = faults.duplicate_token_text(vocabulary_file("llama_spm"), tmp_path / "twice.gguf")
    death, messages = work(job(file))
    assert death is not None
    assert not death.hung
    assert "signal SIGABRT" in death.reason
    assert "GGML_ASSERT" in death.reason, "its last words are kept"
    assert [message["type"] for message in messages] == ["hello"]
    assert "\n" not in death.reason


def test_crash_becomes_a_row_and_the_sweep_continues(tmp_path: Path) -> None:
    bad = faults.duplicate_token_text(vocabulary_file("llama_spm"), tmp_path / "twice.gguf")
    good = tmp_path / "good.gguf"
    good.symlink_to(vocabulary_file("llama_spm"))
    paths = f"tokenizer.path={bad},{good}"
    done = pipeline(tmp_path, "audit", "-m", "tokenizer=path", paths, "builder=[fixed]", *QUICK)
    assert done.code == 1, done.err
    found = {row["tokenizer"]: row for row in done.table("tokenizers").iter_rows(named=True)}
    assert found["twice"]["status"] == "crashed"
    assert "SIGABRT" in found["twice"]["reason"]
    assert found["good"]["status"] == "ok"


@pytest.mark.parametrize("fault", faults.REFUSED)
def test_refused_file_is_a_message_and_not_a_death(tmp_path: Path, fault: str) -> None:
    name, make = faults.REFUSED[fault]
    death, messages = work(job(make(vocabulary_file(name), tmp_path / "faulty.gguf")))
    assert death is None
    assert [message["type"] for message in messages] == ["hello", "refused"]
    assert "faulty.gguf" in messages[-1]["message"]


def test_silent_damage_loads_and_shows_in_the_rows(tmp_path: Path) -> None:
    """llama.cpp loads these files without any error (U-22)."""
    source = vocabulary_file("llama_spm")
    [whole] = rows(work(job(source))[1], "tokenizers")
    for make in (faults.eos_out_of_range, faults.empty_token_text, faults.without_token_type):
        death, messages = work(job(make(source, tmp_path / f"{make.__name__}.gguf")))
        assert death is None, make.__name__
        [row] = rows(messages, "tokenizers")
        assert row["status"] == "ok"
        if make is faults.eos_out_of_range:
            assert (row["eos"], row["vocab_hash"]) == (2, whole["vocab_hash"])
        else:
            assert row["vocab_hash"] != whole["vocab_hash"]
        if make is faults.without_token_type:
            assert (whole["n_special"], row["n_special"]) == (3, 1), "<unk> and <s> became text"


# --- silence --------------------------------------------------------------------------------------


def test_silent_worker_is_killed_and_reported_as_hung(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pid = stub(monkeypatch, tmp_path, "echo started >&2; exec sleep 60")
    begin = time.monotonic()
    death, messages = work(job(tmp_path), time_limit=0.5)
    assert time.monotonic() - begin < 20
    assert death is not None
    assert death.hung
    assert "nothing for 0.5 s" in death.reason
    assert "started" in death.reason
    assert messages == []
    assert gone(pid)


def test_time_limit_applies_to_silence_not_to_the_whole_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = 'for i in 1 2 3 4 5 6; do echo "{\\"type\\": \\"end\\"}"; sleep 0.3; done'
    pid = stub(monkeypatch, tmp_path, script)
    death, messages = work(job(tmp_path), time_limit=1.2)
    assert death is None
    assert len(messages) == 6
    assert gone(pid)


def test_worker_that_hangs_after_some_rows_keeps_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pid = stub(monkeypatch, tmp_path, 'echo \'{"type": "hello"}\'; exec sleep 60')
    death, messages = work(job(tmp_path), time_limit=0.5)
    assert death is not None
    assert death.hung
    assert messages == [{"type": "hello"}]
    assert gone(pid)


def test_invalid_utf_8_does_not_end_supervision(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If reading stopped at these bytes, the time limit would no longer be enforced."""
    stub(monkeypatch, tmp_path, "printf '\\377\\n'; exec sleep 3")
    said: list[str] = []
    death = supervise(job(tmp_path), said.append, time_limit=0.5)
    assert death is not None
    assert death.hung


def test_worker_that_never_reads_its_job_is_killed_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Writing a job larger than a pipe's 64 KiB (thousands of cases) blocks until it is read."""
    stub(monkeypatch, tmp_path, "exec sleep 3")
    cases = tuple(f"case_{i:020}" for i in range(10_000))
    begin = time.monotonic()
    death = supervise(job(tmp_path, suites=(SuiteRef("x", cases),)), lambda _: None, time_limit=0.5)
    assert death is not None
    assert death.hung
    assert time.monotonic() - begin < 2.5


# --- other deaths ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("kill -SEGV $$", "signal SIGSEGV"),
        ("kill -KILL $$", "signal SIGKILL"),
        ("exit 3", "exit code 3"),
        ("echo one >&2; echo two >&2; echo three >&2; echo four >&2; exit 1", "two | three | four"),
    ],
)
def test_how_it_died_and_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, words: str
) -> None:
    pid = stub(monkeypatch, tmp_path, script)
    death, _ = work(job(tmp_path))
    assert death is not None
    assert not death.hung
    assert words in death.reason
    assert "one" not in death.reason.partition("words: ")[2]
    assert gone(pid)


def test_last_words_that_are_not_text_are_still_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub(monkeypatch, tmp_path, "printf 'bad \\377 byte\\n' >&2; exit 1")
    death, _ = work(job(tmp_path))
    assert death is not None
    assert "bad \ufffd byte" in death.reason


def test_incomplete_last_line_is_not_a_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub(
        monkeypatch, tmp_path, 'echo \'{"type": "hello"}\'; printf \'{"type": "ro\'; kill -KILL $$'
    )
    death, messages = work(job(tmp_path))
    assert death is not None
    assert messages == [{"type": "hello"}]


def test_job_reaches_the_worker_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = tmp_path / "job.json"
    stub(monkeypatch, tmp_path, f'head -n 1 > "{copy}"')
    cases = tuple(f"case_{i:020}" for i in range(10_000))
    sent = job(tmp_path, suites=(SuiteRef("é", cases),), engine=EngineSettings(max_tokens=5))
    assert work(sent) == (None, [])
    assert read_job(copy.read_text("utf-8")) == sent


def test_nothing_is_left_of_a_worker_when_reading_its_messages_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pid = stub(monkeypatch, tmp_path, "echo x; exec sleep 60")

    def full(_: str) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        supervise(job(tmp_path), full, time_limit=10)
    assert gone(pid)


def test_no_process_thread_or_file_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stub(monkeypatch, tmp_path, "exit 0")
    work(job(tmp_path))
    files, threads = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    for script in ("exit 0", "exit 1", "kill -ABRT $$", "exec sleep 60"):
        pid = stub(monkeypatch, tmp_path, script)
        work(job(tmp_path), time_limit=0.3)
        assert gone(pid), script
    deadline = time.monotonic() + 5
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= threads
    assert len(list(Path("/proc/self/fd").iterdir())) <= files


def test_children_of_a_crashed_worker_are_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A child that hangs in native code does not notice the end of its standard input."""
    child = tmp_path / "child"
    stub(monkeypatch, tmp_path, f'sleep 600 & echo $! > "{child}"; kill -SEGV $$')
    death, _ = work(job(tmp_path), time_limit=250)
    assert death is not None
    assert not death.hung, "the child holds its standard output, which is no sign of life"
    assert "SIGSEGV" in death.reason
    assert soon_dead([child.read_text().strip()])


# --- other output is no message -------------------------------------------------------------------


def test_what_native_code_prints_goes_to_standard_error() -> None:
    code = (
        "import os; from pipeline.runs.worker.channel import Channel; channel = Channel(); "
        "os.write(1, b'{\"type\": \"rows\"}\\n'); print('garbage', flush=True); "
        "os.system('echo a child'); channel.rows('t', [{'b': b'\\xff\\x00'}]); "
        "from pipeline.runs.protocol import End; channel.send(End())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"type": "rows", "table": "t", "rows": [{"b": "\u00ff\u0000"}]},
        {"type": "end"},
    ]
    assert "garbage" in done.stderr
    assert "a child" in done.stderr


NOISE = """import sys
if "runs.worker" in sys.orig_argv:
    print("a plug-in says hello", flush=True)
"""


def test_garbage_on_standard_output_is_ignored(tmp_path: Path) -> None:
    """Code that runs at start-up (a .pth file, sitecustomize) prints before `Channel` exists."""
    (tmp_path / "sitecustomize.py").write_text(NOISE, "utf-8")
    env = {"PYTHONPATH": os.fspath(tmp_path)}
    done = pipeline(tmp_path, "audit", "builder=[fixed]", *QUICK, env=env)
    assert "Traceback" not in done.err
    assert done.code == 0, done.err
    assert done.table("tokenizers")["status"].to_list() == ["ok"]
