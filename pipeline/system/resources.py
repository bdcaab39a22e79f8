"""Where `conf/` and `datasets/` are: in a clone, or inside an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent.parent


def data_folder(name: str) -> Path:
    """The path of `conf/` or `datasets/`: in the installed wheel, else next to the package."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def options(group: str) -> list[str]:
    """The option names of a group of `conf/`, such as all tokenizers, sorted."""
    return sorted(path.stem for path in (data_folder("conf") / group).glob("*.yaml"))
