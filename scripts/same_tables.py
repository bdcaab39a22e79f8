"""Run the same jobs in two checkouts of this project; every table must be equal.

    python scripts/same_tables.py OLD NEW [--only NAME …] [--keep DIR]

Each job below runs in both checkouts in parallel, as `python -m pipeline` in the checkout's folder.
The script compares the set of tables, their columns and types, their rows in order, and the names
of the reproducers' files. Tables of an older schema version are converted first, with the lists of
renamed names in `results/tables/renames`. Two kinds of columns are left out: measured times
(`…_us`), which differ between any two runs, and sentences (`renames.PROSE`), whose wording may
change; the script prints how many changed.

Needs an environment with the extra `test` installed. Prints one line per job. The exit code is 0 if
nothing differs, 1 if something does, 2 for a usage error.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
from polars.testing import assert_frame_equal

sys.path.insert(0, str(Path(__file__).parent.parent))

from pipeline.results.tables import parquet, renames

RELEASED = "unfixed,fixed,llguidance_llamacpp,llguidance_hf,lmfe,outlines,outlines_core"
TWO = "tokenizer=llama_spm,mistral_v1"
JOBS: dict[str, list[str]] = {
    "default": ["run"],
    "remedies": [
        *("run", "-m", "experiment=remedies"),
        "tokenizer=mistral_v1,llama_spm,llama_bpe,qwen2",
    ],
    "released": [
        *("audit", "tokenizer=mistral_v1", f"builder=[{RELEASED}]"),
        "audit.engines=[outlines_core,outlines,lmfe,gbnf]",
    ],
    "replay": [
        *("run", "-m", "grammar=maskbench", "grammar.path=datasets/collections/schemas"),
        *("stages=[replay]", TWO),
    ],
    "prompts": ["run", "grammar=jsonl", "grammar.path=datasets/collections/prompts.jsonl"],
    "server": ["run", "target=server"],
    "sampled": ["run", "stages=[generate]", "sampling.temperature=0.8", "repeats=5"],
    "resumed": ["run", "tokenizer=llama_spm"],
    "ray": [
        *("run", "-m", TWO, "hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2"),
        "audit.walks=5",
    ],
    "submitit": ["run", "-m", TWO, "hydra/launcher=submitit_local", "audit.walks=5"],
}
KILLED_AFTER = 40
"""Units after which the run `resumed` is killed."""


def start(checkout: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command in a checkout, in its own session."""
    env = os.environ | {"PYTHONPATH": str(checkout), "RAY_AUTH_MODE": "disabled"}
    env.pop("BYTE_EXACT_INVOCATION", None)
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline", *arguments],
        cwd=checkout,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ran(checkout: Path, name: str, results: Path) -> str:
    """Run a job in a checkout; returns an error text, empty if it succeeded."""
    named = [f"results_dir={results}", f"run.name={name}"]
    process = start(checkout, *JOBS[name], *named)
    if name == "resumed":
        units = results / name / "parts"
        while process.poll() is None and done(units) < KILLED_AFTER:
            time.sleep(0.02)
        if process.poll() is not None:
            return "it had ended before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.communicate()
        process = start(checkout, "run", f"resume={results / name}")
    out, err = process.communicate()
    return "" if process.returncode == 0 else f"exit code {process.returncode}: {out}{err}"


def done(parts: Path) -> int:
    """The number of finished units in the journals of a run."""
    return sum(path.read_bytes().count(b'{"type": "done"') for path in parts.glob("*.jsonl"))


def differences(old: Path, new: Path) -> Iterator[str]:
    """The differences between two runs, one line each."""
    for kind in ("*.parquet", "reproducers/*"):
        names = [{str(p.relative_to(run)) for p in run.glob(kind)} for run in (old, new)]
        for name in sorted(names[0] ^ names[1]):
            yield f"{name} is in only one of the runs"
        for name in sorted(names[0] & names[1]):
            if kind != "*.parquet":  # their text is also in a column
                continue
            table = Path(name).stem
            before, after = (parquet.read(run, table) for run in (old, new))
            try:
                left_out = pl.selectors.ends_with("_us") | pl.selectors.by_name(
                    *renames.PROSE, require_all=False
                )
                assert before.columns == after.columns, f"{before.columns}, {after.columns}"
                assert_frame_equal(before.select(~left_out), after.select(~left_out))
            except AssertionError as error:
                yield f"{name}: {' '.join(str(error).split())[:500]}"


def reworded(old: Path, new: Path) -> int:
    """The number of sentences whose wording differs between the two runs."""
    changed = 0
    for path in old.glob("*.parquet"):
        before, after = (parquet.read(run, path.stem) for run in (old, new))
        for column in renames.PROSE:
            if column in before.columns and before.height == after.height:
                changed += int(before[column].ne_missing(after[column]).sum())
    return changed


def compared(name: str, checkouts: tuple[Path, Path], folder: Path) -> list[str]:
    """Run one job in both checkouts; returns the differences."""
    places = (folder / "old", folder / "new")
    act: Callable[[Path, Path], str] = lambda checkout, place: ran(checkout, name, place)  # noqa: E731
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(act, checkouts, places))
    failed = [f"{at.name}: {words}" for at, words in zip(places, said, strict=True) if words]
    return failed or list(differences(places[0] / name, places[1] / name))


def main() -> int:
    """Print one line per job, and the differences; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS), metavar="NAME")
    parser.add_argument("--keep", type=Path, help="folder in which to keep the runs")
    asked = parser.parse_args()
    checkouts = (asked.old.resolve(), asked.new.resolve())
    for checkout in checkouts:
        if not (checkout / "pipeline" / "__main__.py").is_file():
            parser.error(f"{checkout} is not a checkout of this project")
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="same-tables-") as scratch:
        folder = asked.keep.resolve() if asked.keep else Path(scratch)
        for name in asked.only:
            begun = time.monotonic()
            found = compared(name, checkouts, folder)
            tables = [pl.read_parquet(p) for p in (folder / "new" / name).glob("*.parquet")]
            rows = sum(table.height for table in tables)
            verdict = "DIFFERS" if found else "the same"
            took = time.monotonic() - begun
            n = 0 if found else reworded(folder / "old" / name, folder / "new" / name)
            words = f", {n} sentences reworded" if n else ""
            print(f"{name:10} {len(tables)} tables, {rows} rows: {verdict}{words} ({took:.0f} s)")
            for line in found:
                print(f"  {line}")
            sys.stdout.flush()
            wrong += bool(found)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
