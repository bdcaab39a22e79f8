"""Things of one kind by name: builders, engines, layouts, targets, pages of the report.

Each is a class in a file of the packages that its registry searches, and is imported when it is
asked for. `xgrammar_auto` is looked for in `xgrammar_auto.py`, then in `xgrammar.py`: what belongs
to one library may share a file.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Generic, Protocol, TypeVar

from .errors import ConfigError


class _Named(Protocol):
    name: str


T = TypeVar("T", bound=_Named)


class Registry(Generic[T]):
    """The things of one kind that the files of some packages register."""

    def __init__(self, kind: str, *packages: str) -> None:
        """`kind` is what one of them is called; `packages` are full names of packages."""
        self._kind = kind
        self._packages = packages
        self._known: dict[str, T] = {}

    def register(self, kind: type[T]) -> type[T]:
        """Class decorator: make one of these known under its name."""
        made = kind()
        self._known[made.name] = made
        return kind

    def get(self, name: str) -> T:
        """The one of that name; its file is imported on first use, and no other.

        Raises ConfigError where there is none.
        """
        if name not in self._known:
            files = self._files()
            fitting = [stem for stem in files if f"{name}_".startswith(f"{stem}_")]
            for stem in sorted(fitting, key=len)[-1:]:
                importlib.import_module(files[stem])
        if name not in self._known:
            known = ", ".join(self.names())
            raise ConfigError(f"There is no {self._kind} {name!r}; there are {known}.")
        return self._known[name]

    def names(self) -> list[str]:
        """The names of all, sorted; imports every file."""
        for module in self._files().values():
            importlib.import_module(module)
        return sorted(self._known)

    def _files(self) -> dict[str, str]:
        """The full name of each module that may register something, by its file's stem."""
        return {
            module.name: f"{package}.{module.name}"
            for package in self._packages
            for module in pkgutil.iter_modules(importlib.import_module(package).__path__)
        }
