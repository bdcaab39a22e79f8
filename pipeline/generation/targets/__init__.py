"""Targets: one short file each, registered by name.

To add one: a file here with a `GeneratingTarget` decorated by `@register`, its
`conf/target/<name>.yaml`, and a test. No other file changes. A file here imports heavy or native
modules only inside `opened`, because the parent imports the file.
"""

from __future__ import annotations

from ...model.registry import Registry
from ..target import Target

__all__ = ["get", "names", "register"]

_targets: Registry[Target] = Registry("target", __name__)
register, get, names = _targets.register, _targets.get, _targets.names
