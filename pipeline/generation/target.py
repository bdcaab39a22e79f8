"""Where a job's cells are generated, as its worker is told: in process, or by a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..model.names import IN_PROCESS, OPENAI


@dataclass(frozen=True)
class TargetRef:
    """A target by name, and how its server is reached or started."""

    name: str = IN_PROCESS
    """`inprocess`, `server` (llama.cpp's own interface) or `openai`."""
    label: str = ""
    """What the server's build is called in the column `builder`."""
    url: str | None = None
    """Of a server that runs already."""
    command: str | None = None
    """What starts one, with {model}, {port}, {slots} and {context}; null for that of the extra."""
    log: str | None = None
    """The file that a server started for the run writes its log to."""
    slots: int = 1
    """Requests sent at the same time."""
    timeout: float = 60.0
    """Time limit of a request, in seconds."""
    retries: int = 2
    """Retries after 429, 5xx or a broken connection."""
    start_limit: float = 120.0
    """Time limit for a started server to become ready, in seconds."""
    api: str = "chat"
    """Of `openai`: `chat` or `completions`."""
    response_format: str = "json_schema"
    """Of `openai`: how the schema is sent, `json_schema` or `json_object`."""
    served: str | None = None
    """Of `openai`: the model's name there; null for the first it lists."""

    @staticmethod
    def from_json(data: dict[str, Any]) -> TargetRef:
        """The target a parent has sent."""
        return TargetRef(**data)

    @property
    def remote(self) -> bool:
        """Whether a server generates."""
        return self.name != IN_PROCESS

    def carries(self, kind: str) -> bool:
        """Whether a request can carry a grammar of this kind (`Grammar.kind`)."""
        return self.name != OPENAI or kind == "json"
