"""The server of a job, at an address or started for the job, and its version."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...model.errors import ConfigError, PipelineError
from ...system import provenance
from ..settings import TargetSettings
from .http import Address, Reply, exchange
from .launch import Launched

_INSTALL = "pip install -c constraints.txt -e '.[server]'"
_ASK = 10.0
"""Time limit for short requests, in seconds."""


@dataclass(frozen=True)
class Default:
    """The server that is started if the settings name none."""

    package: str
    """The distribution that contains it."""
    module: str
    needs: tuple[str, ...]
    """Modules that must be installed."""
    library: str
    """Pattern of the native library's file, below the module's folder."""
    command: tuple[str, ...]
    """Contains places such as {model} and {port}; see `provide`."""
    shared_context: bool = True
    """Whether {context} is shared by all slots."""


@dataclass
class Provided:
    """A server that accepts requests."""

    at: Address | Launched
    version: str
    """Name and version, for the column `server`."""
    sha256: str | None
    """sha256 of the started file; None for a server that ran already."""

    @property
    def address(self) -> Address:
        """Where it listens now: a restart takes another port."""
        return self.at.address if isinstance(self.at, Launched) else self.at

    @property
    def own(self) -> Launched | None:
        """The process, if it was started for the run."""
        return self.at if isinstance(self.at, Launched) else None

    def get(self, path: str) -> Reply:
        """Send a GET request, with the short time limit `_ASK`."""
        return exchange(self.address, "GET", path, timeout=_ASK)

    def post(self, path: str, body: Mapping[str, object]) -> Reply:
        """Send a POST request with a JSON body, with the short time limit `_ASK`."""
        data = json.dumps(body).encode()
        return exchange(self.address, "POST", path, data, timeout=_ASK)

    def close(self) -> None:
        """Stop the server if it was started for the run."""
        if self.own is not None:
            self.own.close()


def check(target: TargetSettings, time_limit: float) -> None:
    """Raise ConfigError for contradictory settings of a server.

    `time_limit` is the longest silence of a worker, in seconds.
    """
    for key in ("timeout", "start_limit"):
        if getattr(target, key) >= time_limit:
            raise ConfigError(
                f"target.{key}={getattr(target, key):g} must be less than "
                f"engine.time_limit={time_limit:g}, after which a silent worker counts as hung."
            )
    if target.url is not None and target.command is not None:
        raise ConfigError(
            "Set target.url (the address of a running server) or target.command (which starts a "
            "server), but not both."
        )
    if target.url is not None:
        Address.of(target.url)
    if target.command is not None and "{port}" not in target.command:
        raise ConfigError(
            "target.command must contain {port}, which is replaced by a free port, as in "
            "target.command='llama-server -m {model} --port {port}'."
        )


def provide(
    target: TargetSettings,
    default: Default,
    model: Path,
    log: Path,
    *,
    ready: str,
    context: int,
    threads: int,
) -> Provided:
    """The server of a job; a started one is ready when the path `ready` answers 200.

    `context` is in tokens, for each slot; `log` is the file for the log of a started server. A
    command's {model}, {slots}, {threads}, {context} and {port} are filled in. Raises PipelineError
    if the server cannot be started.
    """
    if target.url is not None:
        found = Provided(Address.of(target.url), "", None)
        found.version = _described(found) or "unknown"
        return found
    command, version, file = _started(target, default)
    shared = target.command is not None or default.shared_context
    fill = {"model": str(model), "slots": str(target.slots), "threads": str(threads)}
    fill["context"] = str(context * (target.slots if shared else 1))
    launched = Launched(command, fill, log, ready=ready, limit=target.start_limit)
    found = Provided(launched, version, provenance.file_sha256(file) if file else None)
    found.version = version or " ".join(filter(None, (command[0], _described(found))))
    return found


def label(target: TargetSettings, default: Default) -> str:
    """The label of a server's build: from the settings, else the name of its program or package."""
    if target.label:
        return target.label
    if target.url is not None:
        return "server"
    if target.command is not None:
        return Path(shlex.split(target.command)[0]).name
    return default.package


def _started(target: TargetSettings, default: Default) -> tuple[tuple[str, ...], str, Path | None]:
    """(command, version if known beforehand, file that is run)."""
    if target.command is not None:
        command = tuple(shlex.split(target.command))
        program = shutil.which(command[0])
        if program is None:
            raise PipelineError(f"target.command: the program {command[0]} was not found.")
        return command, "", Path(program).resolve()
    if any(importlib.util.find_spec(name) is None for name in default.needs):
        raise PipelineError(
            f"target={target.name} needs the server of {default.package}, which is not installed. "
            f"Install it with `{_INSTALL}`, or choose another server with target.url or "
            "target.command."
        )
    spec = importlib.util.find_spec(default.module)
    folder = Path(next(iter(spec.submodule_search_locations or ()))) if spec else Path()
    library = next(iter(sorted(folder.glob(default.library))), None)
    version = f"{default.package} {importlib.metadata.version(default.package)}"
    return default.command, version, library


def _described(server: Provided) -> str:
    """The server's own description: its build, else the name in its replies."""
    reply = server.get("/props")
    try:
        said: Any = json.loads(reply.body)["build_info"]
    except (KeyError, TypeError, ValueError, RecursionError):
        said = None
    return said if isinstance(said, str) else reply.server
