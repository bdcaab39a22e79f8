"""Token-table builders: the things under test. One short file each, registered by name.

A builder turns a vocabulary into a `TokenTable`: what it *claims* the bytes of each token are,
which tokens are special, which id ends a text, and how bytes become tokens. `unfixed` and `fixed`
follow llama.cpp's `common/llguidance.cpp` before and after the fix; `bytes_fixed` and
`tokenize_fixed` are the two halves of it, so that a failure can be attributed to one of them.
`exact` is the better fix; `special_prefix`, `prefix_strip` and `no_special_prefix` are those that
were thought of and rejected.
Builders from released packages are in `engines/libraries/`, one file per library, and run in a
process of their own.

To add one: a file here with a `Builder` decorated by `@register`, its `conf/builder/<name>.yaml`,
and a test. No other file changes.
"""

from __future__ import annotations

from ...model.registry import Registry
from ..table import Builder

__all__ = ["bridge", "get", "register"]

_LIBRARIES = f"{__name__.rpartition('.')[0]}.libraries"
_builders: Registry[Builder] = Registry("builder", __name__, _LIBRARIES)
register, get = _builders.register, _builders.get
