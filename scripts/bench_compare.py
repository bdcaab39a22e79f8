"""Time and memory of `compare` on two generated runs of 100,000 cells.

    python scripts/bench_compare.py [--cells N] [--steps N]

Each line is one comparison with the real command in its own process: wall time in seconds from
start to exit, CPU time in seconds (which shows how busy the machine was), peak resident memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(0, str(Path(__file__).parent.parent))

from pipeline.model.verdicts import RunStatus
from pipeline.results.compare.side import KEY
from pipeline.results.tables import parquet, schemas

_FAILING = ("silent_corruption", "unenforced", "early_stop", "dead_end", "truncated")
_SHAPE = {"tokenizer": 20, "builder": 5, "suite": 10}


def make(folder: Path, n_cells: int, n_steps: int, failing: float, seed: int) -> None:
    """Write a run in which the share `failing` of the cells fails."""
    chance = random.Random(seed)
    folder.mkdir(parents=True)
    rows: list[dict[str, Any]] = []
    for number in range(n_cells):
        rest, names = number, {"target": "inprocess", "model": "tiny"}
        for name, count in _SHAPE.items():
            rest, place = divmod(rest, count)
            names[name] = f"{name}_{place}"
        names["case"] = f"case_{rest}"
        verdict = chance.choice(_FAILING) if chance.random() < failing else "ok"
        rows.append(
            dict.fromkeys(schemas.SCHEMAS["cells"])
            | names
            | {
                "cell_key": "/".join(names[name] for name in KEY),
                "cell_hash": f"{number:064x}",
                "verdict": verdict,
                "cause": "none" if verdict == "ok" else "bytes",
                "output": '{"colour":"vermilion","count":3}' + " " * (verdict != "ok"),
                "reason": "" if verdict == "ok" else "step 0: token 5 ' a' (the table says 'a')",
                "culprit_step": None if verdict == "ok" else number % n_steps,
                "prompt_ids": [1, 2, 3, 4],
                "model_sha256": f"{1:064x}",
                "vocab_hash": f"{number % 20:064x}",
                "grammar_hash": f"{rest:064x}",
                "case_hash": f"{rest:064x}",
                "seed": 0,
            }
        )
    cells = parquet.frame("cells", rows).sort("cell_key")
    parquet.write(cells, folder / "cells.parquet")
    whose = ["model", "tokenizer", "builder", "suite", "case", "cell_key"]
    steps = cells.select(*whose, step=pl.int_ranges(n_steps)).explode("step")
    steps = steps.with_columns(
        token=pl.lit(5, pl.Int64),
        attribute=pl.lit("NORMAL"),
        claimed=pl.lit(b"a"),
        true=pl.lit(b" a"),
        rendered=pl.lit(b" a"),
        n_allowed=pl.lit(7, pl.Int64),
        origin=pl.lit("chosen"),
    )
    parquet.write(steps, folder / "steps.parquet")
    for table in ("tokenizers", "tokens", "masks"):
        parquet.write(parquet.frame(table, []), folder / f"{table}.parquet")
    rows_of = {"cells": cells.height, "steps": steps.height}
    manifest = {
        "schema_version": schemas.SCHEMA_VERSION,
        "status": RunStatus.COMPLETE.value,
        "rows": rows_of,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def measure(before: Path, after: Path, out: Path | None) -> tuple[float, float, float, int]:
    """(wall seconds, CPU seconds, peak MB, exit code) of one comparison."""
    command = [sys.executable, "-m", "pipeline", "compare"]
    command += [f"before.run={before}", f"after.run={after}"]
    command += [f"out={out}"] if out else []
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=Path(__file__).parent.parent)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    cpu = usage.ru_utime + usage.ru_stime
    return seconds, cpu, usage.ru_maxrss * 1024 / 1e6, os.waitstatus_to_exitcode(status)


def main() -> None:
    """Make the runs, compare them, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--make", nargs=3, metavar=("FOLDER", "FAILING", "SEED"))
    asked = parser.parse_args()
    if asked.make:
        folder, failing, seed = asked.make
        make(Path(folder), asked.cells, asked.steps, float(failing), int(seed))
        return
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for name, failing, seed in (("a", 0.02, 1), ("b", 0.02, 2), ("ok", 0, 3), ("bad", 1, 4)):
            # In a child process: a process inherits the peak memory of its parent.
            size = [f"--cells={asked.cells}", f"--steps={asked.steps}"]
            made = [sys.executable, __file__, *size, "--make", root / name, str(failing), str(seed)]
            subprocess.run(made, check=True)
        for before, after in (("a", "b"), ("ok", "bad")):
            for out in (None, root / f"out_{after}"):
                seconds, cpu, megabytes, code = measure(root / before, root / after, out)
                what = "all outputs" if out else "console only"
                share = "4 % differ" if before == "a" else "all regress"
                print(
                    f"cells={asked.cells} steps={asked.cells * asked.steps} {share}, {what}: "
                    f"seconds={seconds:.2f} cpu_seconds={cpu:.2f} "
                    f"peak_mb={megabytes:.0f} exit={code}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
