"""Registries of builders, engines, layouts, targets and report pages, by name.

Each entry is a class in one of the packages that the registry searches. Its file is imported on
first use. For `xgrammar_auto` the registry tries `xgrammar_auto.py`, then `xgrammar.py`, so that
the classes of one library can share a file.
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
    """Instances of the classes that the files of some packages register, by name."""

    def __init__(self, kind: str, *packages: str) -> None:
        """`kind` names an entry in error messages; `packages` are full names of packages."""
        self._kind = kind
        self._packages = packages
        self._known: dict[str, T] = {}

    def register(self, kind: type[T]) -> type[T]:
        """Class decorator: register an instance of the class under its `name`."""
        made = kind()
        self._known[made.name] = made
        return kind

    def get(self, name: str) -> T:
        """The instance with that name. Imports its file on first use, and no other file.

        Raises ConfigError for an unknown name.
        """
        if name not in self._known:
            files = self._files()
            fitting = [stem for stem in files if f"{name}_".startswith(f"{stem}_")]
            for stem in sorted(fitting, key=len)[-1:]:
                importlib.import_module(files[stem])
        if name not in self._known:
            known = ", ".join(self.names())
            raise ConfigError(f"Unknown {self._kind} {name!r}; choose from {known}.")
        return self._known[name]

    def names(self) -> list[str]:
        """All registered names, sorted; imports every file."""
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
