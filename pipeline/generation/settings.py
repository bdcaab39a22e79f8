"""The settings of the groups `engine`, `sampling` and `target`: how cells are generated."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.names import IN_PROCESS
from ..model.settings import setting


@dataclass(frozen=True)
class EngineSettings:
    """How a constraint is run."""

    on_error: str = setting("drop", one_of=("drop", "stop"))
    """When the constraint is lost: `drop` it and continue, as llama.cpp does, or `stop`."""
    max_tokens: int | None = setting(None, least=1)
    """Token limit of every cell, in place of each case's own."""
    fast_forward: bool = True
    """Skip decoding for tokens the grammar forces. The output does not change."""
    oracle: str = setting("auto", one_of=("auto", "off", "first", "every"))
    """Which masks of generation are judged against the byte oracle: off, first, every, or auto:
    every up to 65,536 tokens, first above."""
    oracle_budget: float = 300.0
    """Time limit for the oracle per job, in seconds; later states are `no_oracle` and say so."""
    time_limit: float = setting(600.0, least=0.1)
    """Longest silence of a worker, in seconds; after it the worker counts as hung."""
    case_limit: float = setting(120.0, least=0)
    """Time limit per cell, in seconds; 0 for none."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen where the grammar leaves a choice."""

    temperature: float = setting(0.0, least=0)
    """0 takes the likeliest; above, tokens are drawn, each cell from its own seed."""
    top_p: float = 1.0
    """Draw from the likeliest allowed tokens that together reach this probability."""
    seed: int = 0
    """Seed of the draws."""


@dataclass(frozen=True)
class TargetSettings:
    """Where cells are generated: in process, or by a server that runs or is started for the run."""

    name: str = IN_PROCESS
    """inprocess, server (llama.cpp's own interface) or openai; set with target=…"""
    label: str | None = None
    """A name for the server's build, for the column `builder`; by default the program's name."""
    url: str | None = None
    """The address of a server that runs already, such as http://127.0.0.1:8080."""
    command: str | None = None
    """Command that starts a server, with {model}, {port}, {slots} and {context} in their places.
    Without url and command a server of the extra `server` is started."""
    slots: int = setting(4, least=1)
    """Requests sent at the same time."""
    timeout: float = setting(60.0, least=0.1)
    """Time limit of a request, in seconds."""
    retries: int = setting(2, least=0)
    """Retries after 429, 5xx or a broken connection."""
    start_limit: float = setting(120.0, least=1)
    """Time limit for a started server to become ready, in seconds."""
    sentinel: str = "sentinel.yaml"
    """Cases that show whether a server enforces a grammar at all; added to the chosen suites."""
    api: str = setting("chat", one_of=("chat", "completions"))
    """openai only: chat or completions."""
    response_format: str = setting("auto", one_of=("auto", "json_schema", "json_object"))
    """openai only: json_schema, json_object with a schema, or auto: the first, but the second for
    llama-cpp-python's server, which knows no other."""
    served: str | None = None
    """openai only: the model's name there; null for the first that the server lists."""

    @property
    def sent_as(self) -> str:
        """How a schema is sent over OpenAI's interface: `json_schema` or `json_object`."""
        if self.response_format != "auto":
            return self.response_format
        return "json_schema" if self.url or self.command else "json_object"

    @property
    def asked_as(self) -> list[str]:
        """Settings of a server that decide an outcome, for the `cell_hash`."""
        return [self.name, self.api, self.sent_as, self.served or ""]
