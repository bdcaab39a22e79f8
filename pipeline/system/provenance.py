"""Provenance of a result: package versions, hashes, git commit. Used by workers and the parent."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import subprocess
from array import array
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_PACKAGES = (
    "byte-exact",
    "gguf",
    "hydra-core",
    "jsonschema",
    "llama-cpp-python",
    "llguidance",
    "mistral-common",
    "numpy",
    "polars",
    "sentencepiece",
)


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of every package that can affect an outcome."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def digest(*parts: object) -> str:
    """sha256 (hex) over JSON-serializable values, in order."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def framed(parts: Sequence[bytes]) -> bytes:
    """Several byte strings as one: their number, their lengths (64-bit), then their bytes."""
    lengths = array("Q", [len(parts), *map(len, parts)])
    return lengths.tobytes() + b"".join(parts)


@cache
def file_sha256(path: Path) -> str:
    """sha256 (hex) of a file; each file is read once per process."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


@cache
def commit() -> str | None:
    """The git commit of this checkout, with `+` if files differ; None outside a checkout."""
    root = Path(__file__).parent.parent.parent
    if not (root / ".git").exists():
        return None
    try:
        head, changed = (
            subprocess.run(
                ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
            ).stdout.strip()
            for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "-uno"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed else "")
