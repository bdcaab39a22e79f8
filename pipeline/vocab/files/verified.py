"""Verify a file: its format, its sha256, and the recorded sha256 of earlier downloads."""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from ...model.errors import SourceError
from ...system import files
from .source import Format, Resolved, Role, Source, cache_dir

HASH_ONCE_BYTES = 64 * 2**20  # the sha256 of files of at least this size is cached
BLOCK = 4 * 2**20


# --- checking: format and sha256 ----------------------------------------------------------------


def verify(
    source: Source,
    role: Role,
    progress: bool,
    path: Path,
    origin: str,
    record: Path | None = None,
    fetched: bool = False,
) -> Resolved:
    """The facts of the file at `path`, after checking its format and sha256.

    The expected sha256 is the pinned one, else the one in `record`. Raises `SourceError`.
    """
    kind = _format(path, role)
    digest = sha256_of(path, progress=progress)
    recorded = read_record(record).get("sha256") if record else None
    expected = source.sha256 or recorded
    if expected not in (None, digest):
        basis = f"pinned for {role}={source.name}" if source.sha256 else f"recorded in {record}"
        accept = f"set {role}.sha256={digest}"
        if not source.sha256:
            accept += f", or delete {record}"
        where = origin if fetched else f"{path} ({origin})"
        advice = "The download was deleted" if fetched else "Put the right file there"
        advice += "" if fetched or not record else ", or delete it to download it again"
        raise SourceError(
            f"{where} is not the expected file: its sha256 is {digest}, but {expected} "
            f"is {basis}. {advice}; or, to accept this file, {accept}."
        )
    return Resolved(path, digest, origin, kind)


def _format(path: Path, role: Role) -> Format:
    """The format by the first bytes. Raises `SourceError` if neither GGUF nor SentencePiece."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from None
    if head[:4] == b"GGUF":
        return "gguf"
    if role == "tokenizer" and head[:1] == b"\n" and ".model" in path.name:
        return "sentencepiece"
    if not head:
        found = "it is empty"
    elif head.startswith(b"version https://git-lfs"):
        found = "it is a git-lfs pointer, not the file itself: run `git lfs pull` in its folder"
    elif head.lstrip()[:1] == b"<":
        found = "it looks like a web page: the download failed"
    else:
        found = f"it begins with {head[:8]!r}"
    raise SourceError(f"{path} is not a GGUF file (those begin with b'GGUF'): {found}.")


def sha256_of(path: Path, *, progress: bool = False) -> str:
    """The sha256 of a file, lower-case hex. Raises `SourceError`.

    The result for a large file is cached by device, inode, size and modification time.
    """
    try:
        stat = path.stat()
        state = f"{stat.st_dev}-{stat.st_ino}-{stat.st_size}-{stat.st_mtime_ns}"
        record = cache_dir() / "records" / "sha256" / f"{state}.json"
        if stat.st_size < HASH_ONCE_BYTES:
            return _digest(path, stat.st_size, False)
        if known := read_record(record).get("sha256"):
            return str(known)
        digest = _digest(path, stat.st_size, progress)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from None
    with contextlib.suppress(OSError):  # without a writable cache it is only hashed again
        write_record(record, {"sha256": digest})
    return digest


def _digest(path: Path, size: int, progress: bool) -> str:
    from tqdm import tqdm

    digest = hashlib.sha256()
    quiet = not progress or size < 2**30
    with path.open("rb") as file, tqdm(total=size, unit="B", unit_scale=True, disable=quiet) as bar:
        while block := file.read(BLOCK):
            digest.update(block)
            bar.update(len(block))
    return digest.hexdigest()


def read_record(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}


def write_record(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, json.dumps(record, indent=1))
