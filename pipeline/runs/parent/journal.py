"""The journal of a run: its command and its started and finished units. It is append-only.

The folder `parts/` of a run holds

    command.json    the command, so that it can be run again
    lock            held by the process that writes the run; the kernel frees it when it dies
    owner           the command that the run belongs to: one command may have several processes
    <group>.jsonl   one (model, tokenizer) group: its job, messages of its workers, `closed`
    <group>.log     the log of a server that was started for the group

A *unit* is the smallest piece of work: the audit of a builder, its walks, a cell. The journal has
an entry when a unit starts. When it is done, its rows and its `done` are written together. If the
process is killed in between, the incomplete entry is removed when the journal is opened again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ...model.errors import ResultsError
from ...model.names import Row, Unit
from ...results.tables import parquet, schemas
from ...system.rerun import file_name
from ..protocol import VERSION, Job


class Group:
    """The journal of one (model, tokenizer) group.

    Every write goes to the operating system at once, so only a power failure can lose it. Once the
    group is closed, its journal is on the disk.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: set[Unit] = set()
        """Units whose rows are written."""
        self.closed = False
        self.refused: str | None = None
        """Why its input could not be used, or None."""
        self.lost = 0
        """Number of units that ended without a result."""
        self.name = ""
        """Name of the job: its own overrides, separated by spaces."""
        self.identity: dict[str, str] = {}
        """Everything that the group's rows depend on, by display name."""
        self.jobs: list[dict[str, Any]] = []
        self.hellos: list[dict[str, Any]] = []
        """The `hello` of each of its workers."""
        self.spent: list[dict[str, Any]] = []
        """The `spent` of each of its workers."""
        self.timings: list[dict[str, Any]] = []
        """The `timings` of each of its workers."""
        if path.exists():
            self._read()

    def begin(self, job: Job, identity: Mapping[str, str], name: str = "") -> None:
        """Write the first entry (job and identity), unless the journal already has it."""
        if not self.path.exists():
            self.identity, self.name = dict(identity), name
            said = {"type": "job", "schema": schemas.SCHEMA_VERSION, "name": name}
            self.write(said | {"identity": self.identity, "job": asdict(job)})

    def finish(
        self, unit: Unit, rows: Iterable[tuple[str, list[Row]]], *, lost: bool = False
    ) -> None:
        """Write a finished unit in one piece; `rows` are (table, rows) pairs of JSON values."""
        held = [{"type": "rows", "table": table, "rows": some} for table, some in rows]
        self.finish_with_lines(unit, [json.dumps(message) + "\n" for message in held], lost=lost)

    def finish_with_lines(self, unit: Unit, lines: list[str], *, lost: bool = False) -> None:
        """Like `finish`, but the rows are the JSON lines that a worker sent."""
        if unit not in self.done:
            done = {"type": "done", "unit": unit} | ({"lost": True} if lost else {})
            self._append("".join([*lines, json.dumps(done) + "\n"]))
            self.done.add(unit)
            self.lost += lost

    def write(self, message: Mapping[str, object]) -> None:
        """Write one message."""
        self._append(json.dumps(message) + "\n")

    def close(self, refused: str | None = None) -> None:
        """Write that the group is complete, and flush the journal to the disk."""
        self.refused, self.closed = refused, True
        self.write({"type": "closed", "refused": refused})
        with self.path.open("rb") as file:
            os.fsync(file.fileno())

    def _append(self, text: str) -> None:
        rest = memoryview(text.encode())
        try:
            with self.path.open("ab", buffering=0) as file:
                while rest:
                    rest = rest[file.write(rest) :]
        except OSError as error:
            raise ResultsError(
                f"{self.path} cannot be written: {error.strerror}. Finished units are kept. "
                "Solve this, then continue with `python -m pipeline run "
                f"resume={self.path.parent.parent}`."
            ) from None

    def _read(self) -> None:
        """Read the journal, and remove an incomplete entry at its end."""
        good = at = 0
        with self.path.open("rb") as lines:
            for line in lines:
                at += len(line)
                if line.startswith(b'{"type": "rows"'):
                    continue
                message = parquet.message(line.decode("utf-8", "replace"))
                if message is None or not line.endswith(b"\n"):
                    continue
                if message["type"] != "rows":
                    good = at
                match message:
                    case {"type": "job", "job": job, "identity": identity}:
                        _check_release(self.path, message)
                        self.jobs.append(job)
                        self.identity, self.name = identity, message.get("name", "")
                    case {"type": "hello"}:
                        self.hellos.append(message)
                    case {"type": "spent"}:
                        self.spent.append(message)
                    case {"type": "timings"}:
                        self.timings.append(message["timings"])
                    case {"type": "done", "unit": unit}:
                        self.done.add(tuple(unit))
                        self.lost += bool(message.get("lost"))
                    case {"type": "closed", "refused": refused}:
                        self.refused, self.closed = refused, True
                    case _:
                        pass
        if not self.identity:
            self.path.unlink()  # its first line is incomplete or missing
        elif good < at:
            os.truncate(self.path, good)


def _check_release(path: Path, message: dict[str, Any]) -> None:
    """Raise ResultsError for a journal of another version of the protocol or of the tables."""
    if (version := message["job"].get("protocol", 0)) != VERSION:
        raise ResultsError(
            f"{path} was written by another release of byte-exact (its protocol version is "
            f"{version}, this release has {VERSION}). Finish the run with that release, or start it"
            " again under another run.name."
        )
    if objection := parquet.of_another_schema(path, message):
        raise ResultsError(objection)


def group_path(folder: Path, job: Job, index: int = 0, count: int = 1) -> Path:
    """Path of the journal of a group, or of one shard of it."""
    names = [job.model, job.tokenizer, *(job.plan.builders if job.remote else ())]
    names += [f"{index}of{count}"] if count > 1 else []
    return folder / "parts" / f"{file_name('--'.join(names))}.jsonl"


def groups(folder: Path) -> tuple[list[Group], list[Path]]:
    """(the groups of a run, closed or not; files of groups that another process is writing)."""
    free: list[Group] = []
    busy: list[Path] = []
    for path in sorted((folder / "parts").glob("*.jsonl")):
        with locked(path) as mine:
            if mine:
                free.append(Group(path))
            else:
                busy.append(path)
    return free, busy


def job_name(group: Path) -> str | None:
    """Name of the job in a journal, which another process may be writing; None if unknown."""
    with contextlib.suppress(OSError), group.open("rb") as lines:
        match parquet.message(lines.readline().decode("utf-8", "replace")):
            case {"type": "job", "name": str(name)}:
                return name
            case _:
                pass
    return None


@contextmanager
def locked(group: Path) -> Generator[bool]:
    """Lock a group for the block; yields False if another process holds the lock.

    The kernel frees the lock when the process dies.
    """
    lock = FileLock(group.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
