"""Run the real command on damaged GGUF files and random grammars; each must get its row.

    python scripts/fuzz_inputs.py [--files 2000] [--grammars 2000] [--seed 0] [--keep FOLDER]
                                  [--minutes N]

The inputs go through `python -m pipeline run`, many in one multirun or suite file. Each must give a
row with a known status within its limits. No command may fail otherwise, no worker may end with an
exception of our code, and no process or temporary file may remain. The script prints a table of the
outcomes. Its last line is `lost=… doubled=… parent_died=… untyped=…`, and the exit code is 0 only
if all are 0.

`--keep` copies every failing input, and each file that crashed a worker, into a folder. `--minutes`
stops after N minutes; the table shows how many inputs were run. The script and each command that it
runs are limited to four GiB of memory, for any number of inputs. Needs a clone with the extra
`test` installed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from fault_injection import Ground, ground, remains
from fuzz_files import damaged, vocabularies
from fuzz_grammars import case
from pipeline.grammars import suites
from pipeline.model.errors import SuiteError
from pipeline.model.verdicts import Status, Verdict
from pipeline.results.tables import parquet, schemas
from pipeline.vocab.files import resolve, source

_ROOT = Path(__file__).parent.parent
_FILES_AT_ONCE, _CASES_AT_ONCE = 50, 100
_MEMORY = 4 * 2**30
_TYPES = {"audit": {*Status}, "cells": {*Verdict}}
_DIED = (Status.CRASHED, Status.TIMEOUT)
_BUILDERS = ("unfixed", "fixed")


@dataclass
class Tally:
    """The outcomes of the inputs, and the number of each kind of error."""

    keep: Path | None
    until: float
    """`time.monotonic()` after which no new input is started."""
    wrong: Counter[str] = field(default_factory=Counter[str])
    outcomes: dict[str, Counter[str]] = field(default_factory=dict[str, "Counter[str]"])
    slowest: float = 0.0

    def count(self, what: str, outcome: str) -> None:
        self.outcomes.setdefault(what, Counter())[outcome] += 1

    def more(self) -> bool:
        return time.monotonic() < self.until

    def spoilt(self, kind: str, number: int, about: str, *files: Path) -> None:
        self.wrong[kind] += number
        print(f"{kind}: {number} {about}", flush=True)
        self.copy(*files)

    def copy(self, *files: Path) -> None:
        if self.keep is not None:
            self.keep.mkdir(parents=True, exist_ok=True)
            for file in files:
                shutil.copy(file, self.keep)


def run(here: Ground, tally: Tally, name: str, inputs: int, *arguments: str) -> pl.DataFrame:
    """Run one command; returns its `cells`, empty if there are none."""
    begun = time.monotonic()
    fixed = ("audit.walks=0", "audit.strings_suite=null", "engine.oracle=off")
    limits = ("engine.time_limit=20", "engine.case_limit=5", "runtime.memory_limit=4")
    where = (f"results_dir={here.folder / 'results'}", f"run.name={name}", "runtime.n_threads=1")
    builders = f"builder=[{','.join(_BUILDERS)}]"
    code, said = here.start(["run", *arguments, builders, *fixed, *limits, *where])
    tally.slowest = max(tally.slowest, (time.monotonic() - begun) / inputs)
    if code not in (0, 1, 2) or "Traceback" in said or "\x1b[31m" in said or "\x07" in said:
        tally.spoilt("parent_died", 1, f"exit code {code}: {said[-2000:]}")
    if left := remains(here):
        tally.spoilt("left", len(left), f"left behind by {name}: {left[:3]}")
    folder = here.run(name)
    if not (folder / "manifest.json").exists():
        tally.spoilt("lost", inputs, f"no manifest: {said[-500:]}")
        return pl.DataFrame(schema=schemas.SCHEMAS["cells"])
    return parquet.read(folder, "cells")


def fuzz_files(here: Ground, tally: Tally, count: int, seed: int) -> None:
    """Audit damaged files and run them with a forged model, many per multirun."""
    seeds = vocabularies(_resolve)
    rng = random.Random(seed)
    suite = here.folder / "one.yaml"
    suite.write_text((here.folder / "small.yaml").read_text("utf-8").partition("  - id: obj")[0])
    numbers = iter(range(count))
    while tally.more() and (batch := list(islice(numbers, _FILES_AT_ONCE))):
        files: dict[str, Path] = {}
        about: dict[str, str] = {}
        for number in batch:
            about[f"f{number}"], data = damaged(seeds, rng)
            files[f"f{number}"] = here.folder / f"f{number}.gguf"
            files[f"f{number}"].write_bytes(data)
        paths = f"tokenizer.path={','.join(map(str, files.values()))}"
        name = f"files-{batch[0]}"
        given = ("tokenizer=path", paths, "grammar=path", f"grammar.path={suite}")
        cells = run(here, tally, name, len(files), "-m", *given)
        if (here.run(name) / "manifest.json").exists():
            audited = parquet.read(here.run(name), "tokenizers")
            placed = parquet.read(here.run(name), "prefix")
            for file, path in files.items():
                _judge_file(tally, file, path, about[file], audited, cells)
                for rows in (audited, placed, cells):
                    _judge_reasons(tally, rows.filter(tokenizer=file), path, about[file])
        for path in files.values():
            path.unlink()
        shutil.rmtree(here.run(name), ignore_errors=True)
        shutil.rmtree(here.folder / "cache", ignore_errors=True)
        print(f"{batch[-1] + 1} files", flush=True)


def _judge_file(
    tally: Tally, file: str, path: Path, about: str, audited: pl.DataFrame, cells: pl.DataFrame
) -> None:
    statuses = audited.filter(tokenizer=file)["status"].to_list()
    verdicts = cells.filter(tokenizer=file)["verdict"].to_list()
    for kind, got, wanted in (("audit", statuses, 2), ("cells", verdicts, 4)):
        if len(got) != wanted:
            less = len(got) < wanted
            much = abs(len(got) - wanted)
            tally.spoilt("lost" if less else "doubled", much, f"{kind} of {about}", path)
        if odd := [value for value in got if value not in _TYPES[kind]]:
            tally.spoilt("untyped", len(odd), f"{kind} of {about}: {odd}", path)
    worst = next((s for s in _DIED if s in (*statuses, *verdicts)), None)
    if worst is not None:
        tally.copy(path)
    outcome = worst or (statuses[0] if statuses and statuses[0] != Status.OK else "loads")
    for fault in about.split("+")[1:]:
        tally.count(fault, outcome)
    tally.count("all files", outcome)


def _judge_reasons(tally: Tally, rows: pl.DataFrame, path: Path, about: str) -> None:
    """A worker may die in native code or without memory, but not with an exception of our code."""
    odd = rows.filter(pl.col("reason").str.contains("by exit code"))
    odd = odd.filter(~pl.col("reason").str.contains("MemoryError"))
    if odd.height:
        tally.spoilt("raised", odd.height, f"{about}: {odd['reason'][0]}", path)


def fuzz_grammars(here: Ground, tally: Tally, count: int, seed: int) -> None:
    """Run random grammars on a small vocabulary, many per suite file."""
    rng = random.Random(seed)
    wanted = _cases(here, tally, count, rng)
    number = 0
    while tally.more() and (batch := list(islice(wanted, _CASES_AT_ONCE))):
        file, name = here.folder / "fuzz.json", f"grammars-{number}"
        number += 1
        file.write_text(json.dumps({"suite": "fuzz", "about": "Generated.", "cases": batch}))
        given = ("tokenizer=path", f"tokenizer.path={here.folder / 'plain.gguf'}")
        given += ("grammar=path", f"grammar.path={file}", "stages=[generate]")
        cells = run(here, tally, name, len(batch), *given)
        for each in batch:
            got = cells.filter(case=each["id"])["verdict"].to_list()
            about = json.dumps(each["grammar"])[:300]
            if len(got) != len(_BUILDERS):
                kind = "lost" if len(got) < len(_BUILDERS) else "doubled"
                tally.spoilt(kind, abs(len(got) - len(_BUILDERS)), about, file)
            if odd := [value for value in got if value not in _TYPES["cells"]]:
                tally.spoilt("untyped", len(odd), about, file)
            kind = "lark" if "lark" in each["grammar"] else "json"
            tally.count(f"{kind} grammars", next(iter(got), "none"))
            if set(_DIED) & set(got):
                print(f"{got}: {about}", flush=True)
        shutil.rmtree(here.run(name), ignore_errors=True)
        print(f"{number * _CASES_AT_ONCE} grammars", flush=True)


def _cases(here: Ground, tally: Tally, count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Cases whose suite file loads; a refusal by the loader is counted as its outcome."""
    for number in range(count):
        made = case(rng, f"c{number}")
        alone = here.folder / "alone.json"
        alone.write_text(json.dumps({"suite": "fuzz", "about": "Alone.", "cases": [made]}))
        try:
            suites.load(alone)
        except SuiteError:
            kind = "lark" if "lark" in made["grammar"] else "json"
            tally.count(f"{kind} grammars", "refused by the loader")
            continue
        yield made


def _resolve(name: str) -> source.Resolved:
    fields = yaml.safe_load((_ROOT / "conf" / "tokenizer" / f"{name}.yaml").read_text("utf-8"))
    wanted = source.Source(**fields | {"members": tuple(fields["members"])})
    return resolve.resolve(wanted, progress=False)


def table(tally: Tally) -> str:
    """The outcomes of the inputs as a Markdown table."""
    columns = sorted({outcome for counts in tally.outcomes.values() for outcome in counts})
    lines = [f"| input | {' | '.join(columns)} |", "| --- |" + " --: |" * len(columns)]
    for what in sorted(tally.outcomes):
        cells = (str(tally.outcomes[what][column] or "–") for column in columns)
        lines.append(f"| {what.replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table and the totals; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--grammars", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    begun = time.monotonic()
    tally = Tally(options.keep, begun + 60 * options.minutes)
    with ground() as here:
        fuzz_grammars(here, tally, options.grammars, options.seed)
        fuzz_files(here, tally, options.files, options.seed)
    print(table(tally))
    print(f"{time.monotonic() - begun:.0f} s; slowest command {tally.slowest:.2f} s per input")
    for key in ("left", "raised"):
        if tally.wrong[key]:
            print(f"{key}={tally.wrong[key]}")
    keys = ("lost", "doubled", "parent_died", "untyped")
    print(" ".join(f"{key}={tally.wrong[key]}" for key in keys))
    return int(any(tally.wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
