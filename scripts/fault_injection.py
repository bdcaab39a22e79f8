"""Kill workers and the parent at seeded points of a small matrix; the results must be complete.

    python scripts/fault_injection.py [--points 200] [--seed 0] [--places]

Each point is one run in which one process gets one fault (a signal, `os._exit`, a hang, a failing
allocation) at one of its Python calls. If the parent was killed, the run is resumed until it is
complete. Its tables must then equal those of an undisturbed run. `--places` also tries a full disk,
a read-only folder and an emptied cache; it needs root to mount a small tmpfs.

Needs a clone with the extra `test` installed (`tests/support/damaged_ggufs` makes the
vocabularies).
The last line is `lost=… doubled=… parent_died=… untyped=…`; the exit code is 0 only if all are 0.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

_ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(_ROOT), str(_ROOT / "tests")]

from pipeline.model.verdicts import Verdict  # noqa: E402
from pipeline.results.tables import parquet, schemas  # noqa: E402

FAULTS = (
    *(("worker", "SIGKILL"), ("parent", "SIGTERM"), ("worker", "memory"), ("parent", "SIGKILL")),
    *(("worker", "SIGABRT"), ("worker", "exit"), ("parent", "SIGINT"), ("worker", "SIGSEGV")),
    ("worker", "hang"),
)
"""(process, fault) pairs, used in turn."""
MODULES = {"worker": "runs.worker", "parent": "pipeline"}
"""The module that each process runs, to recognize its command line."""
STARTS = {"worker": "main", "parent": "execute"}
"""The function at whose first call the count of calls starts."""

SUITE = """suite: small
about: One case of each kind.
cases:
  - id: literal
    prompt: "Hello"
    grammar: {lark: 'start: "he said no"'}
    check: {literal: "he said no"}
  - id: pattern
    prompt: "Hello"
    grammar: {lark: 'start: /[a-c]{2,4}/ "!"'}
    check: {regex: '[a-c]{2,4}!'}
  - id: object
    prompt: "Hi"
    grammar: {json: {enum: ["a", "b c"]}}
    check: {json: true}
"""


@dataclass
class Ground:
    """The folder of one script's runs, and the command that they share."""

    folder: Path
    results: Path

    def command(self, name: str) -> list[str]:
        paths = ",".join(str(self.folder / f"{each}.gguf") for each in ("plain", "spaced"))
        return [
            *("run", "-m", "tokenizer=path", f"tokenizer.path={paths}"),
            *("grammar=path", f"grammar.path={self.folder / 'small.yaml'}"),
            *("builder=[unfixed,fixed]", "audit.walks=2", "audit.strings_suite=null"),
            "audit.engines=[gbnf]",
            *("engine.max_tokens=8", "engine.time_limit=5", "runtime.n_threads=1"),
            *(f"results_dir={self.results}", f"run.name={name}"),
        ]

    def start(self, arguments: list[str], *faults: dict[str, Any]) -> tuple[int, str]:
        """Run the real command, with faults if given; returns (exit code, output)."""
        env = os.environ | {"BYTE_EXACT_CACHE": str(self.folder / "cache")}
        env.pop("BYTE_EXACT_INVOCATION", None)
        path = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
        if faults:
            env["BYTE_EXACT_FAULTS"] = json.dumps(faults)
            path.insert(0, str(_ROOT / "scripts" / "fault_hook"))
        env["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        done = subprocess.run(
            [sys.executable, "-m", "pipeline", *arguments],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def run(self, name: str) -> Path:
        return self.results / name


@contextmanager
def ground() -> Generator[Ground]:
    """Create two small vocabularies, a suite, and an empty cache."""
    faults = import_module("support.damaged_ggufs")
    with tempfile.TemporaryDirectory(prefix="byte-exact-") as name:
        here = Ground(Path(name), Path(name) / "results")
        (here.folder / "small.yaml").write_text(SUITE, "utf-8")
        faults.tiny_spm(here.folder / "plain.gguf", byte_tokens=True)
        faults.tiny_spm(here.folder / "spaced.gguf", byte_tokens=True, add_space_prefix=True)
        yield here


@dataclass(frozen=True)
class Difference:
    """The differences between a run's tables and the undisturbed ones."""

    lost: int = 0
    doubled: int = 0
    untyped: int = 0


def difference(run: Path, wanted: dict[str, pl.DataFrame]) -> Difference:
    """Compare every table, row by row; the result includes the first lost row."""
    lost = doubled = untyped = 0
    for table, rows in wanted.items():
        got = parquet.read(run, table)
        keys = schemas.SORT_KEYS[table]
        doubled += got.height - got.unique(keys).height
        there = got.unique(keys).join(rows, on=rows.columns, how="semi", nulls_equal=True)
        if rows.height > there.height:
            lost += rows.height - there.height
            for which, one, other in (("lost", rows, got), ("odd", got, rows)):
                left = one.join(other, on=rows.columns, how="anti", nulls_equal=True)
                print(which, table, left.rows(named=True)[:1])
        if table == "cells":
            typed = got["verdict"].is_in([verdict.value for verdict in Verdict])
            untyped += got.height - int(typed.sum())
    return Difference(lost, doubled, untyped)


def lengths(here: Ground) -> dict[str, int]:
    """The number of Python calls of each process in an undisturbed run."""
    tokens = {who: here.folder / f"count-{who}" for who in MODULES}
    counting = [
        {
            "module": MODULES[who],
            "after": STARTS[who],
            "kind": "count",
            "at": -1,
            "token": str(token),
        }
        for who, token in tokens.items()
    ]
    here.start(here.command("count"), *counting)
    return {who: int(token.read_text()) for who, token in tokens.items()}


def resumed(here: Ground, name: str, code: int) -> tuple[int, str]:
    """Resume a run until it is complete; returns (last exit code, output)."""
    said = ""
    for _ in range(3):
        if code in (0, 1):
            break
        if (here.run(name) / "parts" / "owner").exists():
            code, said = here.start(["run", f"resume={here.run(name)}"])
        else:  # ended before the run started
            shutil.rmtree(here.run(name), ignore_errors=True)
            code, said = here.start(here.command(name))
    return code, said


def remains(here: Ground) -> list[str]:
    """Processes and temporary files that should not exist any more."""
    deadline = time.monotonic() + 10
    while (left := _processes(here)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left += [str(path) for path in here.results.rglob(".*")]
    return left


def _processes(here: Ground) -> list[str]:
    mark = f"BYTE_EXACT_CACHE={here.folder / 'cache'}".encode()
    found: list[str] = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environ.read_bytes():
                found.append(environ.parent.name)
        except OSError:
            continue
    return found


def points(here: Ground, count: int, seed: int, wanted: dict[str, pl.DataFrame]) -> Counter[str]:
    """Run the faults one by one; returns how often each kind of error occurred."""
    rng = random.Random(seed)
    n_calls = lengths(here)
    print(f"calls: {n_calls['worker']} in the first worker, {n_calls['parent']} in the parent")
    wrong: Counter[str] = Counter()
    for number in range(count):
        who, kind = FAULTS[number % len(FAULTS)]
        at, name = rng.randint(1, n_calls[who]), f"point-{number}"
        token = here.folder / name
        fault = {"module": MODULES[who], "after": STARTS[who], "kind": kind, "at": at}
        first, said = here.start(here.command(name), fault | {"token": str(token)})
        code, said = resumed(here, name, first) if first not in (0, 1) else (first, said)
        found: Counter[str] = Counter()
        if code != 0 or (who == "worker" and first != 0):
            found["parent_died"] += 1
            print(said)
        else:
            found.update(vars(difference(here.run(name), wanted)))
        if left := remains(here):
            found["left"] += len(left)
            print("left behind:", left)
        bad = {key: value for key, value in found.items() if value}
        fired = "" if token.exists() else " (too late: the process had ended)"
        print(
            f"{number:4} {who} {kind} at {at}{fired}: exit {first}, {bad or 'complete'}", flush=True
        )
        wrong.update(found)
        shutil.rmtree(here.run(name), ignore_errors=True)
    return wrong


def main() -> int:
    """Print one line per point and the totals; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--places", action="store_true", help="also a full disk etc.; needs root")
    options = parser.parse_args()
    with ground() as here:
        code, said = here.start(here.command("undisturbed"))
        if code != 0:
            print(said)
            return 1
        wanted = {table: parquet.read(here.run("undisturbed"), table) for table in schemas.SCHEMAS}
        wrong = points(here, options.points, options.seed, wanted)
        if options.places:
            wrong += import_module("fault_places").places(here, wanted)
    if wrong["left"]:
        print(f"left={wrong['left']}")
    keys = ("lost", "doubled", "parent_died", "untyped")
    print(" ".join(f"{key}={wrong[key]}" for key in keys))
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
