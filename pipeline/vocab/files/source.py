"""The description of a model or tokenizer file, and the facts of one that was found."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Role = Literal["model", "tokenizer"]
Format = Literal["gguf", "sentencepiece"]


@dataclass(frozen=True)
class Source:
    """One model or tokenizer of `conf/`; if `path` is set, it overrides `kind`."""

    name: str
    """The name in tables and in errors."""
    kind: str
    """forge, own, path, package, sdist, wheel or hub."""
    path: str | None = None
    """A file of the user."""
    package: str | None = None
    """package: the import name; sdist, wheel: the distribution's name."""
    version: str | None = None
    """sdist, wheel: the exact version."""
    members: tuple[str, ...] = ()
    """Paths in the package, in the sdist below its top folder, or in the wheel. For wheels several
    members are joined in order, and `distribution:path` names another distribution than
    `package`."""
    sha256: str | None = None
    """sha256 of the whole file, lower-case hex; checked for every kind of source."""
    repo: str | None = None
    """hub: owner/name."""
    file: str | None = None
    """hub: the file's path in the repository."""
    revision: str | None = None
    """hub: branch, tag or commit; `main` if not set."""
    seed: int = 0
    """forge: the seed of the weights."""


@dataclass(frozen=True)
class Resolved:
    """A file that exists and passed the checks of its format and sha256."""

    path: Path
    sha256: str
    origin: str
    """Where the file came from, to display: `llama-cpp-python 0.3.36 sdist: vendor/...`."""
    format: Format


def cache_dir() -> Path:
    """The cache folder: `$BYTE_EXACT_CACHE`, else the user's cache folder for `byte-exact`."""
    if chosen := os.environ.get("BYTE_EXACT_CACHE"):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("byte-exact", appauthor=False)
