"""Shards on a real Ray and as submitit's processes: one is killed, recovered, and nothing shows.

Needs the extras `ray` and `slurm`; `scripts/slurm_check.sh` does the same on a real Slurm.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, Finished, pipeline
from polars.testing import assert_frame_equal

from pipeline import schemas

sys.path.append(str(ROOT / "scripts"))
from slurm_check import holders

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes as Linux has them"),
]

MATRIX = ("audit.walks=2", "audit.strings_suite=null", "audit.references=[]")
"""The embedded matrix: the default model, tokenizer, suites and builders; few walks."""
LAUNCHERS = {
    "ray": ("hydra_plugins.hydra_ray_launcher", "+hydra.launcher.ray.init.num_cpus=2"),
    "submitit_local": ("hydra_plugins.hydra_submitit_launcher", "shard.gpus=0"),
}


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
    module, argument = LAUNCHERS[launcher]
    if not _there(module):
        pytest.skip(f"needs the extra of hydra/launcher={launcher}")
    env = os.environ | {"RAY_AUTH_MODE": "disabled"}
    command = [sys.executable, "-m", "pipeline", "run", "-m", *MATRIX, "shard.count=4"]
    command += [f"hydra/launcher={launcher}", argument, "run.name=run", f"results_dir={tmp_path}"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lock = tmp_path / "run" / "parts" / "tiny--mistral_v1--2of4.lock"
    while not (victims := holders(lock)) and process.poll() is None:
        time.sleep(0.05)
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    out, err = process.communicate(timeout=250)
    assert process.returncode == 2, err
    assert "INTERRUPTED" in out
    assert "tiny--mistral_v1--2of4 is not finished" in out or "shard.index=2 has not begun" in out

    again = pipeline(tmp_path, "run", f"resume={tmp_path / 'run'}", env=dict(env))
    assert again.code == 0, again.err
    for table in schemas.SCHEMAS:
        assert_frame_equal(again.table(table), plain.table(table))


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
