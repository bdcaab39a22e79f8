"""Cost of shards: one collection in 1, 2 and 4 parallel shards, and the share of the start-up.

    python scripts/bench_shards.py FOLDER [key=value …]

FOLDER is a collection in MaskBench's layout; the other arguments go to the pipeline. The start-up
of a shard is its time without any schema: interpreter, vocabulary and token tables.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

COUNTS = (1, 2, 4)


def main() -> None:
    """Print one line for each number of shards."""
    collection, *more = sys.argv[1:]
    common = ["grammar=maskbench", f"grammar.path={collection}", "stages=[replay]", *more]
    with tempfile.TemporaryDirectory() as folder:
        start = _seconds(folder, "start", 1, [*common, "grammar.limit=1"])
        print(f"start-up of one shard: {start:.1f} s")
        tables: list[pl.DataFrame] = []
        for count in COUNTS:
            spent = _seconds(folder, f"run{count}", count, [*common, "runtime.n_threads=1"])
            tables.append(_table(folder, f"run{count}", count))
            share = 100 * start / spent
            print(f"{count} shards: {spent:6.1f} s wall, {share:.0f} % of it start-up of each")
        assert all(table.equals(tables[0]) for table in tables), "the shards' tables differ"
        print(f"{tables[0].height} rows, the same in all of them")


def _seconds(folder: str, name: str, count: int, arguments: list[str]) -> float:
    """Wall time in seconds of all shards of a run, run in parallel."""
    command = [sys.executable, "-m", "pipeline", "run", *arguments]
    command += [f"results_dir={folder}", f"run.name={name}"]
    shards = [[*command, f"shard.count={count}", f"shard.index={n}"] for n in range(count)]
    begun = time.monotonic()
    quiet = subprocess.DEVNULL
    running = [subprocess.Popen(shard, stdout=quiet, stderr=quiet) for shard in shards]
    assert not any(process.wait() for process in running), f"a shard of {name} failed"
    return time.monotonic() - begun


def _table(folder: str, name: str, count: int) -> pl.DataFrame:
    command = [sys.executable, "-m", "pipeline", "collect", f"run={Path(folder, name)}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return pl.read_parquet(Path(folder, name, "replay.parquet"))


if __name__ == "__main__":
    main()
