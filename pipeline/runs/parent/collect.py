"""The end of a run: its parts are merged into one set of tables.

A run's parts may come from one process, from the jobs of a multirun, or from shards on many
machines. They are merged only if they belong to one run; missing parts are listed.
"""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...generation import targets
from ...model.errors import ResultsError
from ...model.verdicts import RunStatus
from ...results.standing import stored
from ...results.tables import parquet, schemas
from ...system import files, provenance
from . import journal
from .command import recorded, unwritable
from .journal import Group

_OWN = ("model.", "tokenizer.", "target.", "shard.index")
"""Keys that may differ between the parts of one run."""


@dataclass(frozen=True)
class _Found:
    """The parts of a run."""

    groups: list[Group]
    missing: list[str]
    """Sentences about jobs that have not begun, are unfinished, or are being written by another
    process."""


def _find(folder: Path) -> _Found:
    """The parts in a run's folder. Raises `ResultsError` for parts of different runs."""
    groups, busy = journal.groups(folder)
    missing = [f"{path.stem} is being written by another process" for path in busy]
    missing += [f"{g.path.stem} is not finished" for g in groups if not g.closed]
    for group in groups:
        _check_same_run(groups[0], group)
    begun = {group.name for group in groups} | {journal.job_name(path) for path in busy}
    command = recorded(folder)
    wanted = [" ".join(job) for job in command.jobs] if command is not None else []
    missing += [f"{name} has not begun" for name in wanted if name not in begun]
    return _Found(groups, missing)


def _check_same_run(one: Group, other: Group) -> None:
    """Raise ResultsError for parts of different runs; the message names the first difference."""
    for key in sorted({*one.identity} & {*other.identity}):
        here, there = one.identity[key], other.identity[key]
        if here != there and not key.startswith(_OWN):
            raise ResultsError(
                f"{one.path.name} and {other.path.name} in {one.path.parent} do not belong to one "
                f"run: {key} is {here} in the first and {there} in the second. Remove the file "
                "that belongs to another run."
            )


def finish(folder: Path, *, interrupted: bool = False) -> dict[str, Any]:
    """Merge the run's parts into its tables and write the manifest, which closes the run.

    A run is `complete` if nothing is missing and the command was not interrupted. Otherwise it is
    `interrupted`: its tables hold the finished units, and it can be resumed.

    Raises `ResultsError` for a folder without parts (its tables could not be made again), for parts
    of different runs, and for a folder that cannot be written.
    """
    if not (folder / "parts").is_dir():
        raise ResultsError(f"{folder} has no parts/ to merge. Its tables are left unchanged.")
    found = _find(folder)
    parts = [group.path for group in found.groups]
    try:
        (folder / "manifest.json").unlink(missing_ok=True)
        for left in (*folder.glob(".*.parquet.*"), *folder.glob(".manifest.json*")):
            left.unlink()
        counts = parquet.merge(parts, folder)
        write_reproducers(folder)
        return _close(folder, found, counts, interrupted or bool(found.missing))
    except OSError as error:
        raise unwritable(folder, error) from None


def _close(
    folder: Path, found: _Found, counts: dict[str, int], interrupted: bool
) -> dict[str, Any]:
    """Write the manifest and return it."""
    hellos = [hello for group in found.groups for hello in group.hellos]
    begun = [job for group in found.groups for job in group.jobs]
    spent = [said for group in found.groups for said in group.spent]
    timings = [said for group in found.groups for said in group.timings]
    manifest: dict[str, Any] = {
        "schema_version": schemas.SCHEMA_VERSION,
        "status": (RunStatus.INTERRUPTED if interrupted else RunStatus.COMPLETE).value,
        "run": folder.name,
        "stages": begun[0]["plan"]["stages"] if begun else [],
        "rows": counts,
        "lost": sum(group.lost for group in found.groups),
        "refused": [group.refused for group in found.groups if group.refused],
        "versions": provenance.versions(),
        "engine": sorted({hello["engine"] for hello in hellos}),
        "devices": sorted({hello["device"] for hello in hellos}),
        "llama_cpp_build": hellos[0].get("build", "") if hellos else "",
        "libraries": hellos[0]["libraries"] if hellos else None,
        "commit": provenance.commit(),
        "missing": found.missing,
        "settings": {key: _settings(found, key) for key in ("engine", "grammar", "sampling")},
        "sources": _without_duplicates(_without_paths(job) for job in begun),
        "volatile": {
            "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "host": platform.node(),
            "platform": platform.platform(),
            "timings": timings,
            "llama_cpp": hellos[0]["llama_cpp"] if hellos else None,
            "replay_cpu_ns": {key: sum(said[key] for said in spent) for key in ("engine", "all")},
        },
    }
    counts["standings"] = stored.write(folder, manifest)
    files.write_text(folder / "manifest.json", json.dumps(manifest, indent=2) + "\n")
    return manifest


def write_reproducers(folder: Path) -> None:
    """Write each reproducer as a suite file for `run` and as the text of a report.

    Only the last part of a worker's file name is used, so that nothing is written outside the
    folder.
    """
    place = folder / "reproducers"
    for table in ("reproducers", "engine_findings"):
        for row in parquet.read(folder, table).iter_rows(named=True):
            place.mkdir(exist_ok=True)
            path = place / Path(row["file"]).name
            path.write_text(row["suite_file"], encoding="utf-8")
            path.with_suffix(".md").write_text(row["report"], encoding="utf-8")


def _without_paths(job: dict[str, Any]) -> dict[str, Any]:
    """The sources of a job, without their paths."""
    target = targets.get(job["target"]["name"])
    return {
        "model": job["model"],
        "tokenizer": job["tokenizer"],
        "weights_sha256": job["weights"]["sha256"] if job["weights"] else None,
        "tokens_sha256": job["tokens"]["sha256"] if job["tokens"] else None,
        "prefix_scheme": job["tokenizer_source"]["prefix_scheme"],
        "seed": job["model_source"]["seed"],
        "target": target.name,
        "label": "" if target.shows_tables else job["plan"]["builders"][0],
    }


def _without_duplicates(sources: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sources without duplicates; shards of one job have equal sources."""
    return list({json.dumps(source): source for source in sources}.values())


_FASTER = "engine.fast_forward"
"""A setting that changes speed but no outcome."""


def _settings(found: _Found, key: str) -> dict[str, Any]:
    """One group of settings without `_FASTER`, nested, as the first journal records it."""
    nested: dict[str, Any] = {}
    for name, value in found.groups[0].identity.items() if found.groups else ():
        head, *path = name.split(".")
        if head == key and path and name != _FASTER:
            at = nested
            for step in path[:-1]:
                at = at.setdefault(step, {})
            at[path[-1]] = json.loads(value)
    return nested
