"""Cells of the in-process target: judges each transcript and fills its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ..audit import walks
from ..audit.controls import Controls, Found, Shown
from ..engines.builders import bridge
from ..model.names import Row
from ..model.verdicts import Origin
from .cell import Transcript
from .generating import Generated, Inputs, TokenStep
from .in_process import Decoding, InProcess
from .judge_transcript import evaluate
from .request import Request


class InProcessCells:
    """See `generating.Generation`."""

    version = None

    def __init__(self, inputs: Inputs) -> None:
        self.device = inputs.device
        self.made_by: Row = {}
        self._inputs = inputs
        self._tokens = dict.fromkeys(Origin, 0)
        self._controls = Controls(inputs.grammar_engine, bridge.true_table(inputs.material))
        self._target = InProcess(
            inputs.model,
            inputs.vocabulary,
            inputs.tables,
            inputs.grammar_engine,
            Decoding(
                device=inputs.device,
                n_seq=inputs.n_seq,
                n_threads=inputs.n_threads,
                fast_forward=inputs.engine.fast_forward,
                drop_on_error=inputs.engine.on_error == "drop",
                sampling=inputs.sampling,
            ),
            observe=inputs.observe,
            encoder=inputs.prompts.encoder,
            clock=inputs.clock,
        )

    def generate(self, requests: Sequence[Request]) -> Iterator[Generated]:
        """See `generating.Generation`."""
        inputs = self._inputs
        for request, transcript in self._target.generate(requests):
            for step in transcript.steps:
                self._tokens[step.origin] += 1
            with inputs.clock.count(request.unit):
                judged = evaluate(
                    request.case,
                    transcript,
                    inputs.vocabulary,
                    inputs.tables[request.builder],
                    inputs.languages[request.case].grammar,
                    inputs.oracle,
                    partial(self._experiment, request),
                )
            steps = [
                TokenStep(step.token, step.n_allowed, step.origin) for step in transcript.steps
            ]
            yield Generated(request, judged, steps, self._columns(transcript))

    def timings(self) -> Row | None:
        """See `generating.Generation`; None if nothing was decoded."""
        if not self._target.n_seq:
            return None
        seconds = self._target.stopwatch.seconds.items()
        return {
            "n_seq": self._target.n_seq,
            "n_threads": self._inputs.n_threads,
            "fast_forward": self._inputs.engine.fast_forward,
            "tokens": {origin.value: n for origin, n in self._tokens.items()},
            "seconds": {part.value: round(spent, 4) for part, spent in seconds},
        }

    def _columns(self, transcript: Transcript) -> Row:
        loss = transcript.loss
        return {
            "n_tokens": len(transcript.steps),
            "n_forced": sum(step.origin is Origin.FORCED for step in transcript.steps),
            "n_non_canonical": self._n_non_canonical(transcript),
            "ended": transcript.end.value,
            "lost_at_step": loss.step if loss else None,
            "engine_error": loss.message if loss else None,
            "n_engine_errors": int(loss is not None),
            "prompt_ids": list(transcript.prompt),
        }

    def _n_non_canonical(self, transcript: Transcript) -> int:
        """Number of tokens that are not part of the canonical split of the same text."""
        rendered = self._inputs.vocabulary.rendered
        pieces = [rendered[step.token] for step in transcript.steps if rendered[step.token]]
        return walks.n_non_canonical(pieces, self._inputs.canonical.pieces(b"".join(pieces)))

    def _experiment(self, request: Request, shown: Shown) -> Found:
        """See `judge_transcript.Experiment`."""
        table = self._inputs.tables[request.builder]
        return self._controls.cause(request.builder, table, request.case, shown)
