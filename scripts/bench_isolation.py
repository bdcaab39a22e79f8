"""Cost of process isolation and the journal: the embedded matrix with and without them.

    python scripts/bench_isolation.py [--walks 150] [--rounds 2] [--json]

"Bare" is the same job in one process that loads the libraries, does the work and discards the rows:
no parent, no messages, no journal, no tables. Both run alternately, `--rounds` times. The output is
the medians of wall and CPU time, the overhead, and the time from a worker's start until it is ready
for its job. The exit code is 1 if the overhead of wall time is above 8 %. Only the ratios can be
compared between machines, and those of wall time only on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent
_LIMIT = 0.08

_BARE = """
import sys
from pathlib import Path
from pipeline.runs.protocol import Refused, read_job
from pipeline.runs.worker.channel import Channel
from pipeline.runs.worker.job import run_job
class Nowhere(Channel):
    def __init__(self): pass
    def send(self, *messages):
        for message in messages:
            if isinstance(message, Refused):
                sys.exit(message.message)
    def rows(self, table, rows):
        for _ in rows: pass
    def finish(self, unit, rows):
        for table, some in rows.items(): self.rows(table, some)
run_job(read_job(Path(sys.argv[1]).read_text(encoding="utf-8")), Nowhere())
"""


@dataclass(frozen=True)
class Spent:
    """Seconds of one run: wall time, and CPU time of all cores."""

    wall: float
    cpu: float


def timed(command: list[str]) -> Spent:
    """Run a command and measure its time."""
    env = os.environ | {"PYTHONPATH": str(_ROOT)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    subprocess.run(command, cwd=_ROOT, env=env, check=True, capture_output=True)
    wall = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Spent(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def first_word() -> float:
    """Seconds from the start of a worker until it can take its job."""
    begun = time.monotonic()
    command = [
        sys.executable,
        "-c",
        "import pipeline.runs.worker.__main__, pipeline.runs.worker.job",
    ]
    subprocess.run(command, cwd=_ROOT, env=os.environ | {"PYTHONPATH": str(_ROOT)}, check=True)
    return time.monotonic() - begun


def measure(walks: int, rounds: int) -> dict[str, Any]:
    """The figures, by name."""
    whole: list[Spent] = []
    bare: list[Spent] = []
    with tempfile.TemporaryDirectory() as folder:
        given = [f"audit.walks={walks}", "runtime.n_threads=1", f"results_dir={folder}"]
        run = [sys.executable, "-m", "pipeline", "run", *given]
        timed([*run, "run.name=warm", "audit.walks=0"])  # fills the cache
        job = Path(folder) / "job.json"
        for number in range(rounds):
            whole.append(timed([*run, f"run.name=r{number}"]))
            (part,) = (Path(folder) / f"r{number}" / "parts").glob("*.jsonl")
            with part.open(encoding="utf-8") as lines:
                job.write_text(json.dumps(json.loads(lines.readline())["job"]))
            bare.append(timed([sys.executable, "-c", _BARE, str(job)]))
    wall = [statistics.median(s.wall for s in some) for some in (whole, bare)]
    cpu = [statistics.median(s.cpu for s in some) for some in (whole, bare)]
    return {
        "wall_s": wall[0],
        "wall_bare_s": wall[1],
        "wall_overhead": wall[0] / wall[1] - 1,
        "cpu_s": cpu[0],
        "cpu_bare_s": cpu[1],
        "cpu_overhead": cpu[0] / cpu[1] - 1,
        "worker_start_s": statistics.median(first_word() for _ in range(5)),
    }


def main() -> int:
    """Print the figures; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--walks", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.walks, options.rounds)
    if options.json:
        print(json.dumps(found))
    else:
        for kind in ("wall", "cpu"):
            whole, bare = found[f"{kind}_s"], found[f"{kind}_bare_s"]
            over = found[f"{kind}_overhead"]
            print(f"{kind:5} {whole:6.1f} s, bare {bare:6.1f} s: {over:+.1%}")
        share = found["worker_start_s"] / found["wall_bare_s"]
        print(f"a worker's start: {found['worker_start_s']:.2f} s, {share:.1%} of the work")
    return int(found["wall_overhead"] > _LIMIT)


if __name__ == "__main__":
    sys.exit(main())
