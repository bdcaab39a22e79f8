"""The settings of a target: where cells are generated."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from ...generation.servers.http import Address
from ...generation.target import TargetRef
from ...model import names
from ...model.errors import ConfigError

_CHOICES = {
    "name": names.TARGETS,
    "api": ("chat", "completions"),
    "response_format": ("auto", "json_schema", "json_object"),
}


@dataclass
class TargetConfig:
    """In process, or a server that runs or is started for the run."""

    name: str = names.IN_PROCESS
    """inprocess, server (llama.cpp's own interface) or openai; set with target=…"""
    label: str | None = None
    """A name for the server's build, for the column `builder`; by default the program's name."""
    url: str | None = None
    """The address of a server that runs already, such as http://127.0.0.1:8080."""
    command: str | None = None
    """What starts a server, with {model}, {port}, {slots} and {context} where they belong; with
    neither url nor command one of the extra `server` is started."""
    slots: int = 4
    """Requests sent at the same time."""
    timeout: float = 60.0
    """Time limit of a request, in seconds."""
    retries: int = 2
    """Retries after 429, 5xx or a broken connection."""
    start_limit: float = 120.0
    """Time limit for a started server to become ready, in seconds."""
    sentinel: str = "sentinel.yaml"
    """Cases that show whether a server enforces a grammar at all; added to the chosen suites."""
    api: str = "chat"
    """openai only: chat or completions."""
    response_format: str = "auto"
    """openai only: json_schema, json_object with a schema, or auto: the first, but the second for
    llama-cpp-python's server, which knows no other."""
    served: str | None = None
    """openai only: the model's name there; null for the first that the server lists."""

    def check(self, time_limit: float) -> None:
        """Raise ConfigError for what cannot be meant; `time_limit` is the worker's, in seconds."""
        for key, allowed in _CHOICES.items():
            if (value := getattr(self, key)) not in allowed:
                raise ConfigError(
                    f"target.{key}={value} is not known; there is {', '.join(allowed)}."
                )
        for key, least in (("slots", 1), ("timeout", 0.1), ("retries", 0), ("start_limit", 1)):
            if (value := getattr(self, key)) < least:
                raise ConfigError(f"target.{key}={value} is too small; the least is {least}.")
        for key in ("timeout", "start_limit"):
            if self.name != names.IN_PROCESS and getattr(self, key) >= time_limit:
                raise ConfigError(
                    f"target.{key}={getattr(self, key):g} must be less than "
                    f"engine.time_limit={time_limit:g}: a worker may not be silent for longer."
                )
        if self.url is not None and self.command is not None:
            raise ConfigError("target.url names a server that runs, target.command starts one.")
        if self.url is not None:
            Address.of(self.url)
        if self.command is not None and "{port}" not in self.command:
            raise ConfigError(
                "target.command must say where the free port goes: "
                "target.command='llama-server -m {model} --port {port}'."
            )

    def ref(self, log: Path) -> TargetRef:
        """What the worker is told; `log` is the file for the log of a started server."""
        if self.name == names.IN_PROCESS:
            return TargetRef()
        return TargetRef(
            name=self.name,
            label=self.label or self._program(),
            url=self.url,
            command=self.command,
            log=None if self.url else str(log.absolute()),
            slots=self.slots,
            timeout=self.timeout,
            retries=self.retries,
            start_limit=self.start_limit,
            api=self.api,
            response_format=self._format(),
            served=self.served,
        )

    def _program(self) -> str:
        if self.url is not None:
            return "server"
        if self.command is not None:
            return Path(shlex.split(self.command)[0]).name
        return "xllamacpp" if self.name == names.SERVER else "llama-cpp-python"

    def _format(self) -> str:
        if self.response_format != "auto":
            return self.response_format
        return "json_schema" if self.url or self.command else "json_object"
