"""The in-process target: llama.cpp decodes and an engine computes masks, in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from ..engines.protocol import Engine
from ..engines.table import TokenTable
from ..model.errors import LoadRefused
from ..native import llama
from ..native.context import Context
from ..system.clock import UNTIMED, Clock
from ..vocab.sentencepiece.encoder import SpmEncoder
from ..vocab.vocabulary import Vocabulary
from . import batch_size
from .cell import Cell, Observer, Transcript
from .request import Request, prompt_ids
from .scheduler import Scheduler, single_row_differs
from .settings import Sampling
from .timings import Stopwatch

_MIN_CELLS = 256
"""The context of a sequence is a multiple of this, in KV cells."""
_BATCH = {"cpu": 512, "gpu": 2048}
"""Largest number of tokens decoded together, by device."""


@dataclass(frozen=True)
class Decoding:
    """How the in-process target decodes."""

    device: str
    """`cpu` or `gpu`."""
    n_seq: int
    """Largest batch, in cells; 0 to choose by speed and memory."""
    n_threads: int
    """Threads of llama.cpp; masks use the other processors, at least one."""
    fast_forward: bool = True
    """Skip decoding for tokens the grammar forces."""
    drop_on_error: bool = True
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def n_mask_threads(self) -> int:
        """Threads that compute masks while llama.cpp decodes."""
        return max(1, (os.cpu_count() or 1) - (self.n_threads if self.device == "cpu" else 1))


class InProcess:
    """Decodes all requests in batches over one context."""

    def __init__(
        self,
        model: llama.Model,
        vocabulary: Vocabulary,
        tables: Mapping[str, TokenTable],
        engine: Engine,
        decoding: Decoding,
        observe: Observer | None = None,
        encoder: SpmEncoder | None = None,
        clock: Clock = UNTIMED,
    ) -> None:
        """`encoder` encodes prompts under another prefix scheme than llama.cpp's; else None."""
        self.stopwatch = Stopwatch()
        """The time spent in `generate`, by part."""
        self.n_seq = 0
        """Number of sequences of the latest context."""
        self._model = model
        self._vocabulary = vocabulary
        self._tables = tables
        self._engine = engine
        self._decoding = decoding
        self._observe = observe
        self._encoder = encoder
        self._clock = clock

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Transcript]]:
        """Yield all requests with their transcripts, each as it ends."""
        if not requests:
            return
        vocab, vocabulary, how = self._model.vocab, self._vocabulary, self._decoding
        prompts = [
            prompt_ids(vocab, vocabulary, self._encoder, request.case.prompt)
            for request in requests
        ]
        longest = max(
            len(prompt) + request.max_tokens
            for prompt, request in zip(prompts, requests, strict=True)
        )
        # Similar prompts are adjacent, so that shared beginnings are decoded once.
        order = sorted(range(len(requests)), key=prompts.__getitem__)
        by_key = {request.identity: request for request in requests}
        self.stopwatch.start()
        with closing(self._context(longest, len(requests))) as context:
            scheduler = Scheduler(
                context,
                n_seq=self.n_seq,
                n_mask_threads=how.n_mask_threads,
                fast_forward=how.fast_forward,
                min_two_rows=single_row_differs(context),
                sampling=how.sampling,
                stopwatch=self.stopwatch,
            )
            for cell in scheduler.run(self._cell(requests[i], prompts[i]) for i in order):
                cell.close()
                yield by_key[cell.key], cell.transcript()

    def _context(self, longest: int, n_cells: int) -> Context:
        """A context for the longest text, with the wanted number of sequences or as many as fit.

        Raises `LoadRefused` if llama.cpp cannot make it. `longest` is in tokens.
        """
        how = self._decoding
        n_ctx_seq = -(-max(longest, _MIN_CELLS) // _MIN_CELLS) * _MIN_CELLS
        self.n_seq = batch_size.n_seq(
            how.n_seq, self._model, n_ctx_seq=n_ctx_seq, n_cells=n_cells, device=how.device
        )
        while True:
            try:
                return Context(
                    self._model,
                    n_seq=max(self.n_seq, 2),
                    n_ctx_seq=n_ctx_seq,
                    n_batch=max(_BATCH[how.device], self.n_seq),
                    n_threads=how.n_threads,
                    flash_attention=how.device == "gpu",
                )
            except LoadRefused:
                if how.n_seq or self.n_seq == 1:
                    raise
                self.n_seq //= 2  # whether memory suffices is known only by trying

    def _cell(self, request: Request, prompt: tuple[int, ...]) -> Cell:
        kind, text = request.case.grammar.engine_text()
        return Cell(
            key=request.identity,
            prompt=prompt,
            compile=partial(self._engine.compile, self._tables[request.builder], kind, text),
            max_tokens=request.max_tokens,
            end_ids=self._vocabulary.end_ids,
            drop_on_error=self._decoding.drop_on_error,
            n_vocab=self._vocabulary.n_tokens,
            first=request.case.tokens,
            observe=self._observe,
            draw=request.draw,
            clock=self._clock,
            unit=request.unit,
        )
