"""The server of a job: the one at an address, or one started for it; and what it says it is."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...model.errors import PipelineError
from ...model.names import OPENAI
from ...system import provenance
from ..target import TargetRef
from .http import Address, Reply, exchange
from .launch import Launched

_INSTALL = "pip install -c constraints.txt -e '.[server]'"
_ASK = 10.0
"""Seconds a server may take to say what it is."""
_OWN = (
    *(sys.executable, "-P", str(Path(__file__).with_name("xllamacpp.py")), "--model", "{model}"),
    *("--port", "{port}", "--slots", "{slots}", "--context", "{context}"),
    *("--threads", "{threads}"),
)
_OWN_OPENAI = (
    *(sys.executable, "-P", "-m", "llama_cpp.server"),
    *("--model", "{model}", "--host", "127.0.0.1"),
    *("--port", "{port}", "--n_ctx", "{context}"),
    *("--n_threads", "{threads}", "--n_threads_batch", "{threads}"),
)


@dataclass
class Provided:
    """A server that can be asked."""

    at: Address | Launched
    version: str
    """What it is, for the column `server`."""
    sha256: str | None
    """Of the file that was started; None of a server that ran already."""

    @property
    def address(self) -> Address:
        """Where it listens now: a restart takes another port."""
        return self.at.address if isinstance(self.at, Launched) else self.at

    @property
    def own(self) -> Launched | None:
        """The process, where it was started for the run."""
        return self.at if isinstance(self.at, Launched) else None

    def get(self, path: str) -> Reply:
        """Ask it something short."""
        return exchange(self.address, "GET", path, timeout=_ASK)

    def post(self, path: str, body: Mapping[str, object]) -> Reply:
        """Ask it something short, with a body."""
        data = json.dumps(body).encode()
        return exchange(self.address, "POST", path, data, timeout=_ASK)

    def close(self) -> None:
        """Stop what was started."""
        if self.own is not None:
            self.own.close()


def provide(ref: TargetRef, model: Path, *, context: int, threads: int) -> Provided:
    """The server of a job, ready; raises PipelineError. `context` is in tokens, for each slot."""
    if ref.url is not None:
        found = Provided(Address.of(ref.url), "", None)
        found.version = _says(found) or "unknown"
        return found
    command, version, file = _started(ref)
    assert ref.log is not None
    fill = {"model": str(model), "slots": str(ref.slots), "threads": str(threads)}
    fill["context"] = str(context * (ref.slots if command != _OWN_OPENAI else 1))
    ready = "/v1/models" if ref.name == OPENAI else "/health"
    launched = Launched(command, fill, Path(ref.log), ready=ready, limit=ref.start_limit)
    found = Provided(launched, version, provenance.file_sha256(file) if file else None)
    found.version = version or " ".join(filter(None, (command[0], _says(found))))
    return found


def _started(ref: TargetRef) -> tuple[tuple[str, ...], str, Path | None]:
    """(the command, its version where that is known beforehand, the file that is run)."""
    if ref.command is not None:
        command = tuple(shlex.split(ref.command))
        program = shutil.which(command[0])
        if program is None:
            raise PipelineError(f"target.command: there is no program {command[0]} to start.")
        return command, "", Path(program).resolve()
    openai = ref.name == OPENAI
    package, module = ("llama-cpp-python", "llama_cpp") if openai else ("xllamacpp", "xllamacpp")
    needed = ("uvicorn", "starlette_context") if openai else ("xllamacpp",)
    if any(importlib.util.find_spec(name) is None for name in needed):
        raise PipelineError(
            f"target={ref.name} starts the server of {package} unless target.url or "
            f"target.command names another; install it with {_INSTALL}."
        )
    spec = importlib.util.find_spec(module)
    folder = Path(next(iter(spec.submodule_search_locations or ()))) if spec else Path()
    library = next(iter(sorted(folder.glob("**/libllama.*" if openai else "xllamacpp*.so"))), None)
    version = f"{package} {importlib.metadata.version(package)}"
    return (_OWN_OPENAI if openai else _OWN), version, library


def _says(server: Provided) -> str:
    """What a server says it is: its build, else the name in its answers."""
    reply = server.get("/props")
    try:
        said: Any = json.loads(reply.body)["build_info"]
    except (KeyError, TypeError, ValueError, RecursionError):
        said = None
    return said if isinstance(said, str) else reply.server
