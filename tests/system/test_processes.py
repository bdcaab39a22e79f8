"""No process outlives the process that started it, whatever its state is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.system import processes
from support.command import ROOT
from support.workers import alive, soon_dead

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only the Linux kernel kills the group"
)

STARTER = (
    "import sys, time; from pipeline.system import processes\n"
    "with processes.group(['sh', '-c', sys.argv[1]], stdin=-1): time.sleep(600)"
)


def written(path: Path, lines: int) -> list[str]:
    """Wait until a process has written this many lines to a file; returns its words."""
    deadline = time.monotonic() + 30
    while not path.exists() or path.read_text().count("\n") < lines:
        assert time.monotonic() < deadline, "the process did not start"
        time.sleep(0.02)
    return path.read_text().split()


@pytest.mark.parametrize("state", ["kill -STOP $$", "while :; do :; done", "exec sleep 600"])
def test_a_group_ends_with_a_starter_that_is_killed(tmp_path: Path, state: str) -> None:
    """A stopped or looping process, or one that does not read its standard input, ends too.

    Once a worker that was out of memory outlived its parent."""
    pids = tmp_path / "pids"
    script = f'sleep 600 & echo $! >> "{pids}"; echo $$ >> "{pids}"; {state}'
    with subprocess.Popen([sys.executable, "-c", STARTER, script], cwd=ROOT) as starter:
        group = written(pids, 2)
        assert all(map(alive, group))
        starter.kill()
    assert soon_dead(group)


def test_a_server_ends_with_its_leash(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f'echo $$ >> "{pids}"; exec sleep 600'
    command = processes.own("generation.servers.leash", "sh", "-c", script)
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE) as leash:
        server = written(pids, 1)
        leash.kill()
    assert soon_dead(server)


def test_nothing_runs_before_its_end_is_tied_to_its_starters(tmp_path: Path) -> None:
    """Once a starter was killed between `Popen` and `fcntl` and left an orphan (under load)."""
    said = tmp_path / "said"
    code = (
        "import os, signal, sys; from pipeline.system import processes\n"
        "processes._kill_at_hang_up = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "with processes.group(['sh', '-c', f'echo ran > {sys.argv[1]}; sleep 600']): pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(said)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    time.sleep(0.5)
    assert not said.exists()


def test_a_program_that_is_not_there_is_an_error_of_the_starter() -> None:
    with pytest.raises(FileNotFoundError), processes.group(["no-such-program-anywhere"]):
        pass


def test_a_group_of_another_is_left_alone(tmp_path: Path) -> None:
    """The end of a group sends no signal to its starter or to the starter's other groups."""
    code = (
        "import sys, time; from pipeline.system import processes\n"
        "with processes.group(['sleep', '600']) as other:\n"
        "    with processes.group(['sleep', '600']): pass\n"
        "    time.sleep(0.2); assert other.poll() is None\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, check=False)
    assert done.returncode == 0, signal.Signals(-done.returncode).name
