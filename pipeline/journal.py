"""The journal of a run: what was asked, what has begun, what is done. It is only ever added to.

`parts/` in the folder of a run holds

    command.json    the command, so that it can be asked again
    lock            held by the process that writes the run; the kernel frees it when that dies
    owner           the command that the run belongs to: one command may have several processes
    <group>.jsonl   one (model, tokenizer) group: its job, what a worker said, `closed`
    <group>.log     the log of a server that was started for it

A *unit* is the smallest thing that is done whole or not at all: the audit of a builder, its walks,
a cell. It is journalled when it starts; when it is done, its rows and its `done` are written at
once. What a kill leaves half written is taken back when the journal is opened again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pipeline import tables
from pipeline.errors import ConfigError, ResultsError
from pipeline.recipe import file_name
from pipeline.worker import Job, Row, Unit

INVOCATION = "BYTE_EXACT_INVOCATION"
"""Environment variable that all processes of one command share; a run belongs to one command."""
_SHARDS = "shards-"
"""How the owner of a run begins whose shards are commands of their own."""

_PATIENCE = 100
"""Tenths of a second."""

_held: dict[Path, FileLock] = {}
"""The runs this process writes, locked as long as it lives."""


@dataclass(frozen=True)
class Command:
    """What was asked of the program."""

    name: str
    """`run` or `audit`."""
    arguments: tuple[str, ...]
    """Overrides and flags as Hydra takes them."""
    folder: str
    """The working folder: relative paths among the arguments start there."""
    jobs: tuple[tuple[str, ...], ...] = ()
    """Where it asks for several jobs, the overrides that are each one's own, such as
    `tokenizer=llama_spm` and `shard.index=0`; every one of them makes a group."""


class Group:
    """The journal of one (model, tokenizer) group.

    Every write goes to the operating system at once: only a loss of power can take it back, and
    not even that once the group is closed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: set[Unit] = set()
        """Units whose rows are written."""
        self.closed = False
        self.refused: str | None = None
        """Why its input could not be used, where it was closed for that."""
        self.lost = 0
        """Units that ended without a result of their own."""
        self.name = ""
        """Which of the command's jobs it is: the overrides of its own, with spaces between."""
        self.identity: dict[str, str] = {}
        """What the group's rows depend on, by the names people know it by."""
        self.jobs: list[dict[str, Any]] = []
        self.hellos: list[dict[str, Any]] = []
        """What each of its workers said of itself."""
        self.spent: list[dict[str, Any]] = []
        """And of the processor time its replay took."""
        self.timings: list[dict[str, Any]] = []
        """Where the time of generation went, worker by worker."""
        if path.exists():
            self._read()

    def begin(self, job: Job, identity: Mapping[str, str], name: str = "") -> None:
        """Say what the group is; a group that has begun goes on."""
        if not self.path.exists():
            self.identity, self.name = dict(identity), name
            said = {"type": "job", "name": name, "identity": self.identity, "job": asdict(job)}
            self.write(said)

    def finish(
        self, unit: Unit, rows: Iterable[tuple[str, list[Row]]], *, lost: bool = False
    ) -> None:
        """Write a unit that is done, in one piece: (table, rows) pairs of JSON values."""
        held = [{"type": "rows", "table": table, "rows": some} for table, some in rows]
        self.settle(unit, [json.dumps(message) + "\n" for message in held], lost=lost)

    def settle(self, unit: Unit, lines: list[str], *, lost: bool = False) -> None:
        """The same with the rows as the lines that a worker sent."""
        if unit not in self.done:
            done = {"type": "done", "unit": unit} | ({"lost": True} if lost else {})
            self._append("".join([*lines, json.dumps(done) + "\n"]))
            self.done.add(unit)
            self.lost += lost

    def write(self, message: Mapping[str, object]) -> None:
        """Write one message."""
        self._append(json.dumps(message) + "\n")

    def close(self, refused: str | None = None) -> None:
        """Say that nothing is missing any more, and have it on the disk."""
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
                f"{self.path} cannot be written: {error.strerror}. What was finished is kept: "
                "mend that, then go on with `python -m pipeline run "
                f"resume={self.path.parent.parent}`."
            ) from None

    def _read(self) -> None:
        """Take in what is done, and take back what a kill left half written."""
        good = at = 0
        with self.path.open("rb") as lines:
            for line in lines:
                at += len(line)
                if line.startswith(b'{"type": "rows"'):
                    continue
                message = tables.message(line.decode("utf-8", "replace"))
                if message is None or not line.endswith(b"\n"):
                    continue
                if message["type"] != "rows":
                    good = at
                match message:
                    case {"type": "job", "job": job, "identity": identity}:
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
            self.path.unlink()  # not even its first line was written
        elif good < at:
            os.truncate(self.path, good)


def group_path(folder: Path, job: Job, index: int = 0, count: int = 1) -> Path:
    """Where the journal of a group, or of a shard of it, lies."""
    names = [job.model, job.tokenizer, *([job.target.label] if job.target.remote else [])]
    names += [f"{index}of{count}"] if count > 1 else []
    return folder / "parts" / f"{file_name('--'.join(names))}.jsonl"


def claim(folder: Path, command: Command) -> None:
    """Make the run folder this command's own; another command's is refused."""
    mine = os.environ.setdefault(INVOCATION, os.urandom(8).hex())
    owner = folder / "parts" / "owner"
    try:
        owner.parent.mkdir(parents=True, exist_ok=True)
        if not owner.exists() and _lock(folder) and not owner.exists():
            _put(folder / "parts" / "command.json", json.dumps(asdict(command), indent=1))
            _put(owner, mine)
        for _ in range(_PATIENCE if mine.startswith(_SHARDS) else 0):  # of a sibling's that begins
            if owner.exists():
                break
            time.sleep(0.1)
        if not owner.exists() or owner.read_text("utf-8") != mine:
            raise ResultsError(
                f"{folder} already holds a run. Choose another run.name, remove that folder, or "
                f"go on with the run in it: `python -m pipeline run resume={folder}`."
            )
    except OSError as error:
        raise unwritable(folder, error) from None


def share(command: Command) -> None:
    """Make this process one of many, on any machine, that each do a shard of one run."""
    common = sorted(a for a in command.arguments if not a.startswith("shard.index="))
    said = json.dumps([command.name, common])
    os.environ[INVOCATION] = _SHARDS + hashlib.sha256(said.encode()).hexdigest()[:16]


def reclaim(folder: Path) -> Command:
    """Take over a run whose command has ended; gives that command."""
    with contextlib.suppress(OSError):
        if (folder / "parts" / "owner").read_text("utf-8").startswith(_SHARDS):
            raise ConfigError(
                f"{folder} is made of shards that are commands of their own: to go on with one, "
                "give its command again. `python -m pipeline collect` says which are missing."
            )
    command = asked(folder)
    if command is None:
        raise ConfigError(
            f"{folder} cannot be resumed: it has no command on record "
            f"({folder / 'parts' / 'command.json'}). Run it again."
        )
    try:
        if not _lock(folder):
            raise ResultsError(
                f"{folder} is being written by another process: wait for that, or end it."
            )
        os.environ[INVOCATION] = os.urandom(8).hex()
        _put(folder / "parts" / "owner", os.environ[INVOCATION])
    except OSError as error:
        raise unwritable(folder, error) from None
    return command


def asked(folder: Path) -> Command | None:
    """The command that a run belongs to, as it is on record; None where it is not."""
    try:
        found: dict[str, Any] = json.loads((folder / "parts" / "command.json").read_bytes())
        jobs = tuple(tuple(job) for job in found["jobs"])
        return Command(found["name"], tuple(found["arguments"]), found["folder"], jobs)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def groups(folder: Path) -> tuple[list[Group], list[Path]]:
    """Every group that has begun, closed or not; and the files of those being written."""
    free: list[Group] = []
    busy: list[Path] = []
    for path in sorted((folder / "parts").glob("*.jsonl")):
        with alone(path) as mine:
            if mine:
                free.append(Group(path))
            else:
                busy.append(path)
    return free, busy


def job_name(group: Path) -> str | None:
    """Which of its command's jobs a group is that another process may be writing."""
    with contextlib.suppress(OSError), group.open("rb") as lines:
        match tables.message(lines.readline().decode("utf-8", "replace")):
            case {"type": "job", "name": str(name)}:
                return name
            case _:
                pass
    return None


@contextmanager
def alone(group: Path) -> Generator[bool]:
    """Whether this process has a group to itself for the block; the kernel frees it on death."""
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


def unwritable(folder: Path, error: OSError) -> ResultsError:
    """What is said of a run folder that cannot be written."""
    return ResultsError(
        f"The results folder {folder} cannot be written: {error.strerror or error}. "
        "Choose another with results_dir=…."
    )


def _lock(folder: Path) -> bool:
    """Whether this process now holds the run."""
    if held(folder):
        return True
    lock = FileLock(folder / "parts" / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    _held[folder.absolute()] = lock
    return True


def held(folder: Path) -> bool:
    """Whether this process writes the run."""
    return folder.absolute() in _held


def release(folder: Path) -> None:
    """Let another process have the run."""
    if (lock := _held.pop(folder.absolute(), None)) is not None:
        lock.release()


def _put(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
