"""Shards on a real Ray and as submitit's processes: one is killed and recovered.

The tables are those of the plain run, no process is left, and no usage statistics are sent.
`scripts/slurm_check.sh` does the same on a real Slurm.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from support.command import ROOT, Finished, pipeline

sys.path.append(str(ROOT / "scripts"))
from pipeline.results.tables import schemas
from slurm_check import holders

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes as Linux has them"),
]

MATRIX = ("audit.walks=2", "audit.strings_suite=null", "audit.references=[]")
"""The embedded matrix: the default model, tokenizer, suites and builders; few walks."""
LAUNCHERS = {"ray": ["+hydra.launcher.ray.init.num_cpus=2"], "submitit_local": []}
"""With what each is told of this machine: two workers at once, or all four."""
MARK = "BYTE_EXACT_TEST"
"""Environment variable that marks every process that a command starts."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The same matrix in one process."""
    done = pipeline(tmp_path_factory.mktemp("plain"), "run", *MATRIX)
    assert done.code == 0, done.err
    return done


def test_holders_finds_the_process_that_has_a_file_open(tmp_path: Path) -> None:
    with (tmp_path / "x.lock").open("w"):
        assert holders(tmp_path / "x.lock") == [os.getpid()]
    assert holders(tmp_path / "x.lock") == []


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_killed_shard_is_named_and_recovered_and_the_tables_are_those_of_the_plain_run(
    launcher: str, plain: Finished, tmp_path: Path
) -> None:
    env = os.environ | {"RAY_AUTH_MODE": "disabled", MARK: str(tmp_path)}
    command = [sys.executable, "-m", "pipeline", "run", "-m", *MATRIX, "shard.count=4"]
    command += [f"hydra/launcher={launcher}", *LAUNCHERS[launcher]]
    command += ["run.name=run", f"results_dir={tmp_path}"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lock = tmp_path / "run" / "parts" / "tiny--mistral_v1--2of4.lock"
    while not (victims := holders(lock)) and process.poll() is None:
        time.sleep(0.05)
    for victim in victims:
        assert environment(victim)["RAY_USAGE_STATS_ENABLED"] == "0"
        os.kill(victim, signal.SIGKILL)
    out, err = process.communicate(timeout=250)
    assert process.returncode == 2, err
    assert "INTERRUPTED" in out
    assert "tiny--mistral_v1--2of4 is not finished" in out or "shard.index=2 has not begun" in out

    again = pipeline(tmp_path, "run", f"resume={tmp_path / 'run'}", env=dict(env))
    assert again.code == 0, again.err
    assert not left_behind(tmp_path)
    for table in schemas.SCHEMAS:
        assert_frame_equal(again.table(table), plain.table(table))


def environment(process: int) -> dict[str, str]:
    """The environment of a process; empty if it is gone or belongs to another user."""
    try:
        pairs = Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def left_behind(mark: Path) -> list[str]:
    """The processes of the marked commands that still run up to 10 s after these have ended."""
    found: list[str] = []
    for _ in range(100):
        every = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        marked = [process for process in every if environment(process).get(MARK) == str(mark)]
        found = [name for name in map(_command, marked) if name]
        if not found:
            break
        time.sleep(0.1)
    return found


def _command(process: int) -> str:
    """The command line of a process; empty if it is gone or a zombie."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
