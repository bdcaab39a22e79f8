"""`inprocess`: llama.cpp decodes and the engine computes masks, in the worker itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from ..settings import TargetSettings
from . import register

if TYPE_CHECKING:  # loads native libraries, which the parent must not
    from ..generating import Generation, Inputs
    from ..request import Request


@register
class InProcessTarget:
    """See `target.Target`."""

    name = "inprocess"
    shows_tables = True
    exact_bytes = True
    samples = True

    def check(self, settings: TargetSettings, time_limit: float) -> None:
        """Accept everything: this target uses none of these settings."""

    def carries(self, kind: str) -> bool:
        """See `target.Target`; true for every kind."""
        return True

    def label(self, settings: TargetSettings) -> str:
        """See `target.Target`; empty, because builders fill the column."""
        return ""

    def opened(
        self, inputs: Inputs, requests: Sequence[Request]
    ) -> AbstractContextManager[Generation]:
        """See `generating.GeneratingTarget`."""
        from ..in_process_cells import InProcessCells  # loads native libraries

        return nullcontext(InProcessCells(inputs))
