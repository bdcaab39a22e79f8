"""A server started for the run: on a free loopback port, watched, and always stopped.

The server runs under `leash`, which stops it when this process ends, in whatever way.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...model.errors import PipelineError
from ...system import processes
from .http import Address, exchange
from .log import EngineLog

_HOST = "127.0.0.1"
_TRIES = 3
"""Number of ports that are tried: another program may take a port before the server does."""
_POLL = 0.02
_STOP_LIMIT = 10.0


class Launched:
    """A server process, started and ready; `close` stops it."""

    def __init__(
        self,
        command: Sequence[str],
        fill: Mapping[str, str],
        log: Path,
        *,
        ready: str,
        limit: float,
    ) -> None:
        """`command` has places such as {port}, which are replaced by `fill` and the free port.
        `ready` is the path that answers 200 once the server is ready, within `limit` seconds."""
        self._command = command
        self._fill = fill
        self._path = log
        self._ready = ready
        self._limit = limit
        self.log = EngineLog(log)
        self.address = Address(_HOST, 0)
        self._leash: subprocess.Popen[bytes] | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        self.restart()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._leash is not None and self._leash.poll() is None

    def restart(self) -> None:
        """Start it, after stopping a running one. Raises PipelineError if it cannot be started."""
        for _ in range(_TRIES):
            self.close()
            self.address = Address(_HOST, free_port())
            self._start()
            if self._until_ready():
                return
            if not _taken(self.address):
                break
        self.close()
        raise PipelineError(
            f"The server could not be started with `{self._filled()}`: it ended, or was not ready "
            f"within {self._limit:g} s (target.start_limit). The end of its log: "
            f"{self.log.last_words()}"
        )

    def close(self) -> None:
        """Stop the server and wait for its end."""
        if self._leash is None:
            return
        assert self._leash.stdin is not None
        with contextlib.suppress(OSError):
            self._leash.stdin.close()
        try:
            self._leash.wait(timeout=_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._leash.terminate()
            self._leash.wait()
        self._leash = None

    def _filled(self) -> str:
        return " ".join(self._arguments())

    def _arguments(self) -> list[str]:
        places = {**self._fill, "port": str(self.address.port)}
        filled = list(self._command)
        for name, value in places.items():
            filled = [part.replace(f"{{{name}}}", value) for part in filled]
        return filled

    def _start(self) -> None:
        with self._path.open("ab") as log:
            self._leash = subprocess.Popen(
                processes.own("generation.servers.leash", *self._arguments()),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    def _until_ready(self) -> bool:
        until = time.monotonic() + self._limit
        while self.alive and (left := until - time.monotonic()) > 0:
            if exchange(self.address, "GET", self._ready, timeout=min(left, 5.0)).status == 200:
                return self.alive  # else another program answered
            time.sleep(_POLL)
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _taken(address: Address) -> bool:
    """Whether another program listens there now."""
    with contextlib.suppress(OSError), socket.create_connection((_HOST, address.port), timeout=1):
        return True
    return False
