"""The steps of `slurm_check.sh`: a plain run, shards with one killed, resume, compare."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from polars.testing import assert_frame_equal

from pipeline.results.tables import parquet, schemas

MATRIX = ("audit.walks=2", "audit.strings_suite=null", "audit.references=[]")
SHARDS = (
    *("-m", "shard.count=4", "hydra/launcher=submitit_slurm"),
    *("hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=1"),
)


def main() -> None:
    """Print one line per step. Raises AssertionError if the tables differ."""
    results = Path(sys.argv[1])
    common = [*MATRIX, f"results_dir={results}"]
    print(f"plain: exit code {_start(*common, 'run.name=plain').wait()}")
    process = _start(*common, *SHARDS, "run.name=shards")
    lock = results / "shards" / "parts" / "tiny--mistral_v1--2of4.lock"
    while not (victims := holders(lock)) and process.poll() is None:
        time.sleep(0.05)
    for holder in victims:
        os.kill(holder, signal.SIGKILL)
    print(f"four shards, one killed: exit code {process.wait()}")
    resumed = _start(f"resume={results / 'shards'}").wait()
    print(f"resumed: exit code {resumed}")
    for table in schemas.SCHEMAS:
        plain, shards = (parquet.read(results / run, table) for run in ("plain", "shards"))
        assert_frame_equal(plain, shards)
        if plain.height:
            print(f"  {table}: {plain.height} rows, the same")


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pipeline", "run", *arguments]
    with Path(f"{sys.argv[1]}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def holders(lock: Path) -> list[int]:
    """The processes that have a file open, such as a shard's lock."""
    found: list[int] = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink() == lock:
                found.append(int(link.parts[2]))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    main()
