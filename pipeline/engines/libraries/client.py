"""Client of the process that runs a released package: its token table and its masks.

The protocol is one JSON value per line: a request in, an answer out, until standard input ends. The
first request asks for the table. `server` is the other side. The interpreter can be of any
environment that has the package; it gets the source of `pipeline` but no other package from here.
The process is in the process group of its worker, and ends with it (`processes.group`).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import weakref
from pathlib import Path
from typing import IO, Any

from ...model.errors import BuilderRefused
from ...system import processes
from ..settings import BuilderSettings


class SessionEnded(Exception):
    """The process of a library does not answer; the text says why."""


class Session:
    """The process of a library for one vocabulary; it ends with this object.

    `kind` is `builder` or `engine`, `given` is `package.Given` as JSON, and `claim` will hold the
    answer for the table. Raises `BuilderRefused` if the library makes no table: with its message,
    how its process died, or the limit that it exceeded. Raises FileNotFoundError if the GGUF is
    missing, because someone emptied the cache; that is not the library's fault.
    """

    def __init__(
        self, kind: str, name: str, given: dict[str, Any], outside: BuilderSettings
    ) -> None:
        self._outside = outside
        inherited = dict(os.environ)
        if outside.python:
            inherited.pop("PYTHONPATH", None)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        try:
            self._process = subprocess.Popen(
                processes.own("engines.libraries.server", python=outside.python or ""),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                encoding="utf-8",
                env=inherited,
            )
        except OSError as error:
            raise BuilderRefused(f"{outside.python} cannot be run: {error.strerror}") from None
        weakref.finalize(self, _end, self._process, self._errors)
        try:
            said = self.request(kind, name, given, outside.memory_limit)
        except SessionEnded as ended:
            raise BuilderRefused(str(ended)) from None
        if "refused" in said:
            Path(given["file"]).stat()
            raise BuilderRefused(said["refused"], said["made_by"])
        self.claim = said

    def request(self, *asked: object) -> dict[str, Any]:
        """Send a request and return the answer. Raises `SessionEnded`, also on a timeout."""
        hung = threading.Event()

        def out_of_time() -> None:
            hung.set()
            self._process.kill()

        timer = threading.Timer(self._outside.time_limit, out_of_time)
        timer.start()
        try:
            answer = self._exchange(json.dumps(asked) + "\n")
        finally:
            timer.cancel()
        if answer.endswith("\n"):
            return json.loads(answer)
        code = self._process.wait()
        if hung.is_set():
            raise SessionEnded(f"no answer within {self._outside.time_limit:g} s")
        raise SessionEnded(
            f"its process ended with code {code}. {processes.last_error_lines(self._errors)}"
        )

    def tokenize(self, data: bytes) -> list[int]:
        """The library's own tokenization of bytes. Raises RuntimeError with the library's error."""
        said = self.request("tokenize", data.decode("latin-1"))
        if "refused" in said:
            raise RuntimeError(said["refused"])
        return said["ids"]

    def _exchange(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(line)
            self._process.stdin.flush()
            return self._process.stdout.readline()
        return ""


def _end(process: subprocess.Popen[str], errors: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, errors):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
