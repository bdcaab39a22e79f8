"""Settings as dataclasses: each field has a default, its allowed values and a description.

Each part of the settings is one frozen dataclass, in the lowest package that reads it. The same
dataclasses make up Hydra's schema (`cli/compose`), a run's `Settings` (`runs/parent/settings`) and
the job that a worker gets (`runs/protocol`), so a new setting is one field and its reader.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

MISSING: Any = "???"
"""OmegaConf's marker for a required value."""

T = TypeVar("T")


def setting(
    default: T,
    *,
    least: float | None = None,
    most: float | None = None,
    one_of: Sequence[str] = (),
) -> T:
    """A dataclass field with bounds, or with a list of allowed words.

    `least` and `most` are inclusive. A field that is a list may hold several of the words.
    """
    limits = {"least": least, "most": most, "one_of": tuple(one_of)}
    return dataclasses.field(default=default, metadata=limits)


def faults(part: object, prefix: str = "") -> Iterator[str]:
    """Yield one sentence for each invalid value of a dataclass and of the dataclasses in it."""
    assert dataclasses.is_dataclass(part)
    for field in dataclasses.fields(part):
        value, key = getattr(part, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from faults(value, f"{key}.")
        elif value is not None:
            yield from _misfits(key, value, field.metadata)


def _misfits(key: str, value: Any, limits: Any) -> Iterator[str]:
    if known := limits.get("one_of"):
        one = not isinstance(value, (list, tuple))
        for word in [value] if one else cast(Iterable[Any], value):
            if word not in known:
                named = f"{key}={word}" if one else f"{key}: {word!r}"
                yield f"{named} is not known; choose from {', '.join(known)}."
    least, most = limits.get("least"), limits.get("most")
    if least is not None and value < least:
        yield f"{key}={value} is too small; the minimum is {least}."
    if most is not None and value > most:
        yield f"{key}={value} is too large; the maximum is {most}."
