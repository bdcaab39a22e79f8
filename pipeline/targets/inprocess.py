"""The in-process target: llama.cpp decodes, an engine masks, in this very process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from pipeline import decode, llama
from pipeline.builders import TokenTable
from pipeline.constraint import Engine
from pipeline.decode import Transcript
from pipeline.limits import UNTIMED, Clock
from pipeline.spm import SpmEncoder
from pipeline.targets import Request, prompt_ids
from pipeline.vocabulary import Vocabulary

_MIN_CELLS = 256
"""Cells a sequence has at least when the KV cache is not shared."""


class InProcess:
    """Greedy decoding of all requests in lock-step batches over one context."""

    name = "inprocess"

    def __init__(
        self,
        model: llama.Model,
        vocabulary: Vocabulary,
        tables: Mapping[str, TokenTable],
        engine: Engine,
        *,
        device: str,
        n_seq: int,
        n_threads: int,
        drop_on_error: bool,
        observe: decode.Observer | None = None,
        encoder: SpmEncoder | None = None,
        clock: Clock = UNTIMED,
    ) -> None:
        """`encoder` encodes prompts where a tokenizer's prefix scheme is not llama.cpp's own."""
        self.device = device
        self._model = model
        self._vocabulary = vocabulary
        self._tables = tables
        self._engine = engine
        self._n_seq = n_seq
        self._n_threads = n_threads
        self._drop_on_error = drop_on_error
        self._observe = observe
        self._encoder = encoder
        self._clock = clock

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Transcript]]:
        """See `Target.generate`."""
        by_key = {request.key: request for request in requests}
        cells = [self._cell(request) for request in requests]
        if not cells:
            return
        longest = max(len(cell.prompt) + cell.max_tokens for cell in cells)
        n_seq = min(self._n_seq, len(cells))
        context = llama.Context(
            self._model,
            n_seq=n_seq,
            n_ctx_seq=-(-max(longest, _MIN_CELLS) // _MIN_CELLS) * _MIN_CELLS,
            n_batch=max(512, n_seq),
            n_threads=self._n_threads,
        )
        with closing(context):
            for cell in decode.decode(context, cells, n_seq=n_seq):
                cell.matcher.close()
                yield by_key[cell.key], cell.transcript()

    def _cell(self, request: Request) -> decode.Cell:
        kind, text = request.case.grammar.engine_text()
        with self._clock.on(request.unit):
            matcher = self._engine.compile(self._tables[request.builder], kind, text)
        return decode.Cell(
            key=request.key,
            prompt=prompt_ids(
                self._model.vocab, self._vocabulary, self._encoder, request.case.prompt
            ),
            matcher=matcher,
            max_tokens=request.max_tokens,
            end_ids=self._vocabulary.end_ids,
            drop_on_error=self._drop_on_error,
            first=request.case.tokens,
            observe=self._observe,
            clock=self._clock,
            unit=request.unit,
        )
