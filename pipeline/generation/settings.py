"""The settings of the groups `engine`, `sampling` and `target`: how cells are generated."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.names import IN_PROCESS
from ..model.settings import setting


@dataclass(frozen=True)
class EngineSettings:
    """How a constraint is applied and judged."""

    on_error: str = setting("drop", one_of=("drop", "stop"))
    """When the constraint is lost: `drop` it and continue, as llama.cpp does, or `stop`."""
    max_tokens: int | None = setting(None, least=1)
    """Token limit of every cell; null uses the limit of each case."""
    fast_forward: bool = True
    """Skip decoding for tokens the grammar forces. The output does not change."""
    oracle: str = setting("auto", one_of=("auto", "off", "first", "every"))
    """Which masks of a cell are judged against the byte oracle: off (none), first, every, or auto.
    auto means every for vocabularies of up to 65,536 tokens, and first for larger ones."""
    oracle_budget: float = 300.0
    """Time limit for the oracle per job, in seconds; masks after it are `over_budget`."""
    time_limit: float = setting(600.0, least=0.1)
    """Longest time without a message from a worker, in seconds; then it counts as hung."""
    case_limit: float = setting(120.0, least=0)
    """Time limit per cell, in seconds; 0 for none."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen where the grammar leaves a choice."""

    temperature: float = setting(0.0, least=0)
    """0 takes the most probable token; above 0, tokens are drawn at random (`seed`)."""
    top_p: float = 1.0
    """Draw only from the most probable allowed tokens that together reach this probability."""
    seed: int = 0
    """Seed of the draws."""


@dataclass(frozen=True)
class TargetSettings:
    """Where cells are generated: in process, by a running server, or by one started for the run."""

    name: str = IN_PROCESS
    """inprocess, server (llama.cpp's own HTTP API) or openai; set with target=…"""
    label: str | None = None
    """Name of the server's build in the column `builder`; null for the name of its program or
    package, or `server` if target.url is set."""
    url: str | None = None
    """Address of a running server, such as http://127.0.0.1:8080."""
    command: str | None = None
    """Command that starts a server; {model}, {port}, {slots}, {threads} and {context} are replaced
    by their values. If url and command are null, a server of the extra `server` is started."""
    slots: int = setting(4, least=1)
    """Requests sent at the same time."""
    timeout: float = setting(60.0, least=0.1)
    """Time limit of a request, in seconds."""
    retries: int = setting(2, least=0)
    """Retries after 429, 5xx or a broken connection."""
    start_limit: float = setting(120.0, least=1)
    """Time limit for a started server to become ready, in seconds."""
    sentinel: str = "sentinel.yaml"
    """Suite file that shows whether a server enforces grammars; added to the chosen suites."""
    api: str = setting("chat", one_of=("chat", "completions"))
    """openai only: which API to use, chat or completions."""
    response_format: str = setting("auto", one_of=("auto", "json_schema", "json_object"))
    """openai only: json_schema, json_object (with a schema), or auto. auto means json_schema if
    url or command is set, else json_object: llama-cpp-python's server supports no other."""
    served: str | None = None
    """openai only: name of the model on the server; null for the first that it lists."""

    @property
    def sent_as(self) -> str:
        """How a schema is sent to an OpenAI-compatible server: `json_schema` or `json_object`."""
        if self.response_format != "auto":
            return self.response_format
        return "json_schema" if self.url or self.command else "json_object"

    @property
    def outcome_settings(self) -> list[str]:
        """Settings of a server that decide an outcome, for the `cell_hash`."""
        return [self.name, self.api, self.sent_as, self.served or ""]
