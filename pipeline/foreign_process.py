"""The process in which a released package makes its table.

One JSON object in, one out; then, if the library tokenizes, bytes in and ids out, a line each,
until standard input ends. The interpreter may be of any environment that has the package; of this
one it gets the source of `pipeline`, and nothing that is installed beside it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import IO, Any

from pipeline import builders
from pipeline.builders import Outside
from pipeline.errors import BuilderRefused
from pipeline.foreign import Foreign, Given
from pipeline.supervise import last_words

_BOOT = """
import importlib.util, pathlib, sys
home = pathlib.Path(sys.argv[1])
spec = importlib.util.spec_from_file_location(
    "pipeline", home / "__init__.py", submodule_search_locations=[str(home)]
)
sys.modules["pipeline"] = importlib.util.module_from_spec(spec)
from pipeline.foreign_process import main
main()
"""
"""Imports `pipeline` by its place: on `sys.path` its folder may bring a whole environment."""


class Session:
    """A library at work on one vocabulary; its process ends with this object.

    Raises `BuilderRefused` where no table comes of it: the library's own words, how its process
    died, or the limit that ended it.
    """

    def __init__(self, builder: str, given: Given, outside: Outside) -> None:
        inherited = dict(os.environ)
        if outside.python:
            inherited.pop("PYTHONPATH", None)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        try:
            self._process = subprocess.Popen(
                [outside.python or sys.executable, "-c", _BOOT, os.fspath(Path(__file__).parent)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                encoding="utf-8",
                env=inherited,
            )
        except OSError as error:
            raise BuilderRefused(f"{outside.python} cannot be run: {error.strerror}") from None
        weakref.finalize(self, _end, self._process, self._errors)
        hung = threading.Event()

        def out_of_time() -> None:
            hung.set()
            self._process.kill()

        timer = threading.Timer(outside.time_limit, out_of_time)
        timer.start()
        try:
            said = self._ask(
                json.dumps(
                    {
                        "builder": builder,
                        "given": given.to_json(),
                        "memory_limit": outside.memory_limit,
                    }
                )
            )
        finally:
            timer.cancel()
        if said is None:
            code = self._process.wait()
            if hung.is_set():
                raise BuilderRefused(f"no table within {outside.time_limit:g} s")
            raise BuilderRefused(f"its process ended with code {code}. {last_words(self._errors)}")
        if "refused" in said:
            raise BuilderRefused(said["refused"])
        self.claim = said

    def tokenize(self, data: bytes) -> list[int]:
        """The library's own tokenization; raises RuntimeError with what it raised."""
        said = self._ask(json.dumps(data.decode("latin-1")))
        if said is None or "refused" in said:
            raise RuntimeError(said["refused"] if said else last_words(self._errors))
        return said["ids"]

    def _ask(self, line: str) -> dict[str, Any] | None:
        """Send a line and take the answer; None when the process is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            return json.loads(answer) if answer.endswith("\n") else None
        return None


def _end(process: subprocess.Popen[str], errors: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, errors):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def main() -> None:
    """The child's side; whatever the library prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(**fields: object) -> None:
        out.write(json.dumps(fields) + "\n")
        out.flush()

    asked = json.loads(sys.stdin.readline())
    builder = builders.get(asked["builder"])
    assert isinstance(builder, Foreign)
    try:
        made_by = builder.made_by()
    except importlib.metadata.PackageNotFoundError:
        say(refused=f"{sys.executable} has no {builder.package}: install it there")
        return
    _limit_memory(asked["memory_limit"])
    try:
        claim = builder.claim(Given.from_json(asked["given"]))
    except MemoryError:
        say(refused=f"{made_by} wanted more than {asked['memory_limit']:g} GiB of memory")
        return
    except BaseException as error:  # a panic of a Rust library is no Exception
        say(refused=f"{made_by}: {_words(error)}")
        return
    say(**claim.to_json(), made_by=made_by)
    if claim.tokenize is None:
        return
    for line in sys.stdin:
        try:
            say(ids=list(claim.tokenize(json.loads(line).encode("latin-1"))))
        except BaseException as error:
            say(refused=_words(error))


def _words(error: BaseException) -> str:
    if isinstance(error, BuilderRefused):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def _limit_memory(gib: float) -> None:
    """Bound the memory this process can write to, where the system knows such a limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    limit = int(gib * 2**30)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
