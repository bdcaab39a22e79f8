"""Targets: one short file each, registered by name.

To add one: a file here with a `GeneratingTarget` decorated by `@register`, its
`conf/target/<name>.yaml`, and a test. No other file changes. A file here imports what is heavy or
native inside `opened`, for the parent reads the rest of it.
"""

from __future__ import annotations

from ...model.errors import ConfigError
from ...model.registry import Registry
from ..target import Target

__all__ = ["get", "register"]

_targets: Registry[Target] = Registry(__name__)
register = _targets.register


def get(name: str) -> Target:
    """The target of that name. Raises ConfigError where there is none."""
    try:
        return _targets.get(name)
    except KeyError:
        known = ", ".join(_targets.names())
        raise ConfigError(f"target.name={name} is not known; there is {known}.") from None
