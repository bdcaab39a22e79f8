"""Where `conf/` and `datasets/` are: in a clone, or inside an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent.parent


def data_folder(name: str) -> Path:
    """`conf/` or `datasets/`: inside an installed wheel, else beside the package in a clone."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def options(group: str) -> list[str]:
    """What a group of `conf/` offers, such as the tokenizers by name."""
    return sorted(path.stem for path in (data_folder("conf") / group).glob("*.yaml"))
