"""`openai`: any server with OpenAI's HTTP API; it accepts JSON Schemas and returns text."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...model.errors import PipelineError
from ..servers.provide import Default, check, label
from ..settings import TargetSettings
from . import register

if TYPE_CHECKING:  # loads native libraries, which the parent must not
    from ..generating import Generation, Inputs
    from ..request import Request

_DEFAULT = Default(
    package="llama-cpp-python",
    module="llama_cpp",
    needs=("uvicorn", "starlette_context"),
    library="**/libllama.*",
    command=(
        *(sys.executable, "-P", "-m", "llama_cpp.server"),
        *("--model", "{model}", "--host", "127.0.0.1"),
        *("--port", "{port}", "--n_ctx", "{context}"),
        *("--n_threads", "{threads}", "--n_threads_batch", "{threads}"),
    ),
    shared_context=False,
)


@register
class OpenAITarget:
    """See `target.Target`."""

    name = "openai"
    shows_tables = False
    exact_bytes = False
    samples = False

    def check(self, settings: TargetSettings, time_limit: float) -> None:
        """See `target.Target`."""
        check(settings, time_limit)

    def carries(self, kind: str) -> bool:
        """See `target.Target`; true for JSON Schemas only."""
        return kind == "json"

    def label(self, settings: TargetSettings) -> str:
        """See `target.Target`."""
        return label(settings, _DEFAULT)

    @contextmanager
    def opened(self, inputs: Inputs, requests: Sequence[Request]) -> Generator[Generation]:
        """See `generating.GeneratingTarget`."""
        from .. import server_cells  # loads native libraries
        from ..servers import openai  # used by workers only

        settings = inputs.target
        with server_cells.provided(inputs, requests, _DEFAULT, ready="/v1/models") as server:
            model = settings.served or openai.first_model(server.get("/v1/models"))
            if model is None:
                raise PipelineError(
                    f"{server.address} does not list its models (GET /v1/models). Set the model's "
                    "name with target.served=…, and check that target.url does not end with /v1."
                )
            interface = openai.OpenAI(
                model, chat=settings.api == "chat", json_schema=settings.sent_as == "json_schema"
            )
            yield server_cells.ServerCells(inputs, server, interface, promised=openai.plain)
