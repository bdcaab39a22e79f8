"""`server`: llama.cpp's HTTP server, through its own API."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...model.errors import PipelineError
from ..servers.provide import Default, Provided, check, label
from ..settings import TargetSettings
from . import register

if TYPE_CHECKING:  # loads native libraries, which the parent must not
    from ..generating import Generation, Inputs
    from ..request import Request

_PROBE = "Hello\n a<s>"
"""A prompt that vocabularies tokenize differently: prefix, newline, space, special token."""
_SCRIPT = Path(__file__).parent.parent / "servers" / "xllamacpp.py"
DEFAULT = Default(
    package="xllamacpp",
    module="xllamacpp",
    needs=("xllamacpp",),
    library="xllamacpp*.so",
    command=(
        *(sys.executable, "-P", str(_SCRIPT), "--model", "{model}", "--port", "{port}"),
        *("--slots", "{slots}", "--context", "{context}", "--threads", "{threads}"),
    ),
)


@register
class ServerTarget:
    """See `target.Target`."""

    name = "server"
    shows_tables = False
    exact_bytes = True
    samples = False

    def check(self, settings: TargetSettings, time_limit: float) -> None:
        """See `target.Target`."""
        check(settings, time_limit)

    def carries(self, kind: str) -> bool:
        """See `target.Target`; always true: schemas are sent unchanged, others as `%llguidance`."""
        return True

    def label(self, settings: TargetSettings) -> str:
        """See `target.Target`."""
        return label(settings, DEFAULT)

    @contextmanager
    def opened(self, inputs: Inputs, requests: Sequence[Request]) -> Generator[Generation]:
        """See `generating.GeneratingTarget`."""
        from .. import server_cells  # loads native libraries
        from ..servers import llama_cpp  # used by workers only

        with server_cells.provided(inputs, requests, DEFAULT, ready="/health") as server:
            _check_vocabulary(inputs, server)
            yield server_cells.ServerCells(inputs, server, llama_cpp.Server())


def _check_vocabulary(inputs: Inputs, server: Provided) -> None:
    """Raise PipelineError unless the server is llama.cpp's and has our vocabulary."""
    asked = {"content": _PROBE, "add_special": True, "parse_special": True}
    reply = server.post("/tokenize", asked)
    if reply.status != 200:
        raise PipelineError(
            f"{server.address} is not a llama.cpp server: POST /tokenize returned "
            f"{reply.said or f'HTTP {reply.status}'}. Set target.url to the address of one, "
            "or use target=openai for other servers."
        )
    ours = list(inputs.prompts.ids(_PROBE))
    if f'"tokens":{ours}'.replace(" ", "").encode() not in reply.body.replace(b" ", b""):
        raise PipelineError(
            f"The server at {server.address} has a different vocabulary from "
            f"model={inputs.model_name} tokenizer={inputs.prompts.tokenizer}: it tokenizes "
            f"{_PROBE!r} as {reply.body[:200]!r}, not {ours}. Select the model that the "
            "server runs with model=path model.path=FILE.gguf."
        )
