"""The command a run belongs to, and which process may write the run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ...model.errors import ConfigError, ResultsError
from ...system import files

INVOCATION = "BYTE_EXACT_INVOCATION"
"""Environment variable that all processes of one command share; a run belongs to one command."""
_SHARDS = "shards-"
"""Prefix of the owner of a run whose shards are separate commands."""

_PATIENCE = 100
"""Tenths of a second that a shard waits for another one to create `owner`."""

_held: dict[Path, FileLock] = {}
"""The runs that this process writes; locked until it ends."""


@dataclass(frozen=True)
class Command:
    """The command line that a run was started with."""

    name: str
    """`run` or `audit`."""
    arguments: tuple[str, ...]
    """Overrides and flags as Hydra takes them."""
    folder: str
    """The working folder: relative paths among the arguments start there."""
    jobs: tuple[tuple[str, ...], ...] = ()
    """The overrides of each job of a multirun, such as `tokenizer=llama_spm` and `shard.index=0`.
    Each job makes a group."""


def claim(folder: Path, command: Command) -> None:
    """Claim the run folder for this command.

    Raises ResultsError if another command owns it or if it cannot be written.
    """
    mine = os.environ.setdefault(INVOCATION, os.urandom(8).hex())
    owner = folder / "parts" / "owner"
    try:
        owner.parent.mkdir(parents=True, exist_ok=True)
        if not owner.exists() and _lock(folder) and not owner.exists():
            files.write_text(
                folder / "parts" / "command.json", json.dumps(asdict(command), indent=1)
            )
            files.write_text(owner, mine)
        tries = _PATIENCE if mine.startswith(_SHARDS) else 0
        for _ in range(tries):  # another shard may be creating it
            if owner.exists():
                break
            time.sleep(0.1)
        if not owner.exists() or owner.read_text("utf-8") != mine:
            raise ResultsError(
                f"{folder} already holds a run. Choose another run.name, remove that folder, or "
                f"resume the run in it: `python -m pipeline run resume={folder}`."
            )
    except OSError as error:
        raise unwritable(folder, error) from None


def share(command: Command) -> None:
    """Register this process as one of several that each do one shard of a run, on any machine."""
    common = sorted(a for a in command.arguments if not a.startswith("shard.index="))
    said = json.dumps([command.name, common])
    os.environ[INVOCATION] = _SHARDS + hashlib.sha256(said.encode()).hexdigest()[:16]


def reclaim(folder: Path) -> Command:
    """Take over a run whose command has ended; returns that command.

    Raises ConfigError if the run cannot be resumed as a whole, ResultsError if another process is
    writing it or the folder cannot be written.
    """
    with contextlib.suppress(OSError):
        if (folder / "parts" / "owner").read_text("utf-8").startswith(_SHARDS):
            raise ConfigError(
                f"the shards of {folder} were started as separate commands. Start those of the "
                "missing shards again; `python -m pipeline collect` lists them."
            )
    command = recorded(folder)
    if command is None:
        raise ConfigError(
            f"{folder} cannot be resumed: its command was not recorded in "
            f"{folder / 'parts' / 'command.json'}. Start a new run."
        )
    try:
        if not _lock(folder):
            raise ResultsError(
                f"{folder} is being written by another process: wait until it ends, or end it."
            )
        os.environ[INVOCATION] = os.urandom(8).hex()
        files.write_text(folder / "parts" / "owner", os.environ[INVOCATION])
    except OSError as error:
        raise unwritable(folder, error) from None
    return command


def recorded(folder: Path) -> Command | None:
    """The recorded command of a run, or None."""
    try:
        found: dict[str, Any] = json.loads((folder / "parts" / "command.json").read_bytes())
        jobs = tuple(tuple(job) for job in found["jobs"])
        return Command(found["name"], tuple(found["arguments"]), found["folder"], jobs)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def unwritable(folder: Path, error: OSError) -> ResultsError:
    """The error for a run folder that cannot be written."""
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
    """Release the run, so that another process can take it."""
    if (lock := _held.pop(folder.absolute(), None)) is not None:
        lock.release()
