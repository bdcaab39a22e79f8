"""A full disk, a read-only folder, a cache emptied during a run: part of `fault_injection.py`.

Needs root on Linux, because each place is a separate tmpfs.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import polars as pl

from fault_injection import Ground, difference, resumed


@contextlib.contextmanager
def small_disk(folder: Path, kib: int) -> Generator[None]:
    """Mount a tmpfs of `kib` KiB at `folder`."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=755", "none", str(folder)]
    subprocess.run(mount, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def places(here: Ground, wanted: dict[str, pl.DataFrame]) -> Counter[str]:
    """Try every place; returns how often each kind of error occurred."""
    wrong: Counter[str] = Counter()
    for kib in (4, 64, 300, 500, 700, 900):
        wrong += _full(here, kib, wanted)
    wrong += _read_only(here)
    for wait in (0.5, 1.5, 2.5):
        wrong += _emptied(here, wait, wanted)
    return wrong


def _full(here: Ground, kib: int, wanted: dict[str, pl.DataFrame]) -> Counter[str]:
    """The results folder becomes full; with more space, the run can be resumed."""
    disk = here.folder / f"disk-{kib}"
    there = replace(here, results=disk)
    with small_disk(disk, kib):
        code, said = there.start(there.command("run"))
        found = _answer(f"a disk of {kib} KiB", code, said, "cannot be written")
        if code == 2:
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            code, said = resumed(there, "run", code)
            found += _whole(there, "run", code, said, wanted)
    return found


def _read_only(here: Ground) -> Counter[str]:
    """The results folder is read-only."""
    disk = here.folder / "read-only"
    there = replace(here, results=disk)
    with small_disk(disk, 64):
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        code, said = there.start(there.command("run"))
        return _answer("a read-only folder", code, said, "cannot be written")


def _emptied(here: Ground, wait: float, wanted: dict[str, pl.DataFrame]) -> Counter[str]:
    """The cache is emptied while a run uses it: the run makes the forged models again."""
    name = f"emptied-{wait}"

    def empty() -> None:
        time.sleep(wait)
        shutil.rmtree(here.folder / "cache", ignore_errors=True)

    thread = threading.Thread(target=empty)
    thread.start()
    code, said = here.start(here.command(name))
    thread.join()
    first = code
    if code not in (0, 1):
        code, said = resumed(here, name, code)
    found = _whole(here, name, code, said, wanted)
    print(f"cache emptied after {wait} s: exit {first}, {dict(found) or 'complete'}", flush=True)
    return found


def _answer(place: str, code: int, said: str, words: str) -> Counter[str]:
    """Check that the command succeeded or printed one error that contains `words`."""
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    clear = code in (0, 1) or (code == 2 and len(errors) == 1 and words in errors[0])
    clear = clear and "Traceback" not in said
    print(f"{place}: exit {code}, {errors[0][:160] if errors else 'no error'}", flush=True)
    if not clear:
        print(said[-3000:], file=sys.stderr)
    return Counter() if clear else Counter(parent_died=1)


def _whole(
    here: Ground, name: str, code: int, said: str, wanted: dict[str, pl.DataFrame]
) -> Counter[str]:
    if code not in (0, 1):
        print(said[-3000:], file=sys.stderr)
        return Counter(parent_died=1)
    return +Counter[str](vars(difference(here.run(name), wanted)))
