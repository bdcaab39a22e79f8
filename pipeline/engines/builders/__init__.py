"""Token-table builders, which are under test. One short file each, registered by name.

A builder makes a `TokenTable` from a vocabulary: the bytes it *claims* for each token, the special
tokens, the id that ends a text, and the tokenization. `unfixed` and `fixed` follow llama.cpp's
`common/llguidance.cpp` before and after the fix. `bytes_fixed` and `tokenize_fixed` are the two
halves of the fix, so that a failure can be attributed to one of them. `exact` is the better fix.
`special_prefix`, `prefix_strip` and `no_special_prefix` are rejected remedies. Builders from
released packages are in `engines/libraries/`, one file per library, and run in their own process.

To add one, add a file here with a `Builder` decorated by `@register`, its
`conf/builder/<name>.yaml`, and a test. No other file changes.
"""

from __future__ import annotations

from ...model.registry import Registry
from ..table import Builder

__all__ = ["bridge", "get", "register"]

_LIBRARIES = f"{__name__.rpartition('.')[0]}.libraries"
_builders: Registry[Builder] = Registry("builder", __name__, _LIBRARIES)
register, get = _builders.register, _builders.get
