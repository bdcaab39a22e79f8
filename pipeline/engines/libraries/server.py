"""The process that runs a released package: the server side of `client`.

It loads the one requested builder or engine, which imports its library.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from ...model.errors import BuilderRefused
from .. import builders
from ..probe import Compile, Probe
from . import engines
from .package import Claim, Foreign, Given, Library


def main() -> None:
    """Answer requests until standard input ends. The library's prints go to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    answer = _open
    for line in sys.stdin:
        said = answer(*json.loads(line))
        if answer is _open:
            answer = said.pop("serve")
        out.write(json.dumps(said) + "\n")
        out.flush()


def _open(kind: str, name: str, given: dict[str, Any], memory_limit: float) -> dict[str, Any]:
    """The answer to the first request: the table, or why there is none.

    `serve` is the function that answers all later requests.
    """
    maker = builders.get(name) if kind == "builder" else engines.get(name)
    assert isinstance(maker, Foreign | Library)
    try:
        made_by = maker.made_by()
    except importlib.metadata.PackageNotFoundError:
        return _refused(f"{sys.executable} has no {maker.package}: install it there", "")
    _limit_memory(memory_limit)
    try:
        made = maker.claim(Given.from_json(given))
    except MemoryError:
        return _refused(f"{made_by} needed more than {memory_limit:g} GiB of memory", made_by)
    except BuilderRefused as refusal:
        return _refused(f"{made_by}: {refusal}", made_by)
    except BaseException as error:  # a Rust panic is not an Exception
        return _refused(f"{made_by}: {_words(error)}", made_by)
    claim, compile_ = made if isinstance(made, tuple) else (made, None)
    return claim.to_json() | {"made_by": made_by, "serve": _Serve(claim, compile_)}


def _refused(why: str, made_by: str) -> dict[str, Any]:
    def still(*_: object) -> dict[str, Any]:
        return {"refused": why}

    return {"refused": why, "made_by": made_by, "serve": still}


class _Serve:
    """Answers the later requests: tokenization, and matchers identified by number."""

    def __init__(self, claim: Claim, compile_: Compile | None) -> None:
        self._claim, self._compile = claim, compile_
        self._probes: dict[int, Probe] = {}
        self._last = 0

    def __call__(self, verb: str, *rest: Any) -> dict[str, Any]:
        answers: dict[str, Callable[..., dict[str, Any]]] = {
            "tokenize": self._tokenize,
            "compile": self._compiled,
            "clone": self._cloned,
            "mask": self._mask,
            "consume": self._consume,
            "accepting": self._accepting,
            "close": self._close,
        }
        try:
            return answers[verb](*rest)
        except BaseException as error:
            return {"refused": _words(error)}

    def _tokenize(self, text: str) -> dict[str, Any]:
        assert self._claim.tokenize is not None
        return {"ids": list(self._claim.tokenize(text.encode("latin-1")))}

    def _compiled(self, kind: str, grammar: str) -> dict[str, Any]:
        assert self._compile is not None
        return self._keep(self._compile(kind, grammar))

    def _keep(self, probe: Probe) -> dict[str, Any]:
        self._last += 1
        self._probes[self._last] = probe
        return {"number": self._last}

    def _cloned(self, number: int) -> dict[str, Any]:
        return self._keep(self._probes[number].clone())

    def _mask(self, number: int) -> dict[str, Any]:
        return {"mask": self._probes[number].mask().decode("latin-1")}

    def _consume(self, number: int, token: int) -> dict[str, Any]:
        return {"yes": self._probes[number].consume(token)}

    def _accepting(self, number: int) -> dict[str, Any]:
        return {"yes": self._probes[number].accepting()}

    def _close(self, number: int) -> dict[str, Any]:
        del self._probes[number]
        return {}


def _words(error: BaseException) -> str:
    """The type and message of an exception, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def _limit_memory(gib: float) -> None:
    """Limit the data memory of this process (`RLIMIT_DATA`), if the system supports it."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    limit = int(gib * 2**30)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    main()
