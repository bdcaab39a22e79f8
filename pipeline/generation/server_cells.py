"""Cells of a server: every case is sent to it, and the text that comes back is judged."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

from ..grammars.case import Case
from ..grammars.languages import ByteGrammar, Languages
from ..model.names import SENTINEL, Row
from ..model.verdicts import Enforcement
from . import judge_answer
from .generating import Generated, Inputs, TokenStep
from .request import Request
from .servers.answer import Answer, Interface
from .servers.client import Remote
from .servers.provide import Default, Provided, provide

_MIN_CONTEXT = 256
"""The context of a slot is a multiple of this, in tokens."""


class ServerCells:
    """See `generating.Generation`."""

    device = "server"

    def __init__(
        self,
        inputs: Inputs,
        server: Provided,
        interface: Interface,
        *,
        promised: Callable[[Case], Case] | None = None,
    ) -> None:
        """`promised` returns the part of a case that the interface can enforce; None if all."""
        self.made_by: Row = {"llama_lib_sha256": server.sha256, "server": server.version}
        self.version: object = inputs.target.outcome_settings
        self._inputs = inputs
        self._promised = promised
        self._remote = Remote(server, interface, inputs.prompts.ids, inputs.target, inputs.alive)

    def generate(self, requests: Sequence[Request]) -> Iterator[Generated]:
        """See `generating.Generation`. The sentinel cases are sent first: they show whether the
        server enforces grammars of each kind."""
        sentinels = [request for request in requests if request.case.suite == SENTINEL]
        others = [request for request in requests if request.case.suite != SENTINEL]
        shown = list(self._remote.ask(sentinels))
        enforced = _enforced(shown, self._inputs.languages)
        for request, answer in chain(shown, self._remote.ask(others)):
            enforces = enforced.get(request.case.grammar.kind)
            yield self._judged(request, answer, enforces)

    def timings(self) -> Row | None:
        """See `generating.Generation`."""
        return None

    def _judged(self, request: Request, answer: Answer, enforces: bool | None) -> Generated:
        inputs, case, exact = self._inputs, request.case, self._promised is None
        grammar = inputs.languages[case].grammar
        if self._promised is not None:
            case = self._promised(case)
            grammar = ByteGrammar(case.grammar.engine_text()[1])
        bench = judge_answer.Bench(
            grammar, inputs.oracle, inputs.vocabulary.rendered, exact, enforces is not False
        )
        columns: Row = {
            "n_tokens": answer.n_tokens,
            "ended": answer.end.value,
            "engine_error": answer.errors[0] if answer.errors else None,
            "n_engine_errors": None if answer.errors is None else len(answer.errors),
            "http_status": answer.status,
            "enforcement": _enforcement(grammar, enforces, exact).value,
            "prompt_ids": list(inputs.prompts.ids(request.case.prompt)) if exact else None,
        }
        if answer.text is None:
            columns["output"] = None
        judged = judge_answer.judge_answer(case, answer, bench)
        return Generated(request, judged, self._steps(answer), columns)

    def _steps(self, answer: Answer) -> list[TokenStep]:
        """The tokens that the server reported, up to the first id outside the vocabulary."""
        steps: list[TokenStep] = []
        for token in answer.tokens or ():
            if not 0 <= token < self._inputs.vocabulary.n_tokens:
                break
            steps.append(TokenStep(token))
        return steps


@contextmanager
def provided(
    inputs: Inputs, requests: Sequence[Request], default: Default, *, ready: str
) -> Generator[Provided]:
    """Open the server, with a context for the longest request; a server started here is stopped.

    `ready` is the path that answers 200 once the server is ready. Raises PipelineError if it
    cannot be started.
    """
    longest = max(len(inputs.prompts.ids(one.case.prompt)) + one.max_tokens for one in requests)
    server = provide(
        inputs.target,
        default,
        inputs.file,
        inputs.log,
        ready=ready,
        context=-(-(longest + 1) // _MIN_CONTEXT) * _MIN_CONTEXT,
        threads=inputs.n_threads,
    )
    try:
        yield server
    finally:
        server.close()


def _enforcement(grammar: ByteGrammar, enforces: bool | None, exact: bool) -> Enforcement:
    if enforces is None or (grammar.error is not None and not exact):
        return Enforcement.UNKNOWN
    return Enforcement.ENFORCED if enforces else Enforcement.IGNORED


def _enforced(
    answers: Sequence[tuple[Request, Answer]], languages: Mapping[Case, Languages]
) -> Mapping[str, bool]:
    """For each kind of grammar with a usable sentinel answer: whether the server enforces it."""
    found: dict[str, bool] = {}
    for request, answer in answers:
        grammar = languages[request.case].grammar
        shown = judge_answer.shows_constant(request.case, answer, grammar)
        if shown is not None:
            kind = request.case.grammar.kind
            found[kind] = found.get(kind, False) or shown
    return found
