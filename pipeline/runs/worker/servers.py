"""The generation stage of a server: every case asked, judged on the text that came back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain

from ...generation import judge_answer
from ...generation.request import Request, prompt_ids
from ...generation.servers import openai
from ...generation.servers.answer import Answer, Interface
from ...generation.servers.client import Remote
from ...generation.servers.llama_cpp import Server
from ...generation.servers.openai import OpenAI
from ...generation.servers.provide import Provided, provide
from ...grammars.languages import ByteGrammar
from ...model.errors import PipelineError
from ...model.names import OPENAI, SENTINEL, Row
from ...vocab.token_types import attr_name
from . import cell_rows
from .session import Workbench

_MIN_CONTEXT = 256
"""Tokens a slot has at least."""
_PROBE = "Hello\n a<s>"
"""A prompt on which vocabularies differ: a prefix, a control byte, a space, a special token."""


def run(bench: Workbench) -> None:
    """Send `cells` and, where the server tells its ids, `steps`; raises PipelineError where there
    is no server to ask."""
    requests = list(_requests(bench))
    longest = max(len(_encode(bench, r.case.prompt)) + r.max_tokens for r in requests)
    context = -(-(longest + 1) // _MIN_CONTEXT) * _MIN_CONTEXT
    target = bench.job.target
    with closing(provide(target, bench.file, context=context, threads=bench.n_threads)) as server:
        remote = Remote(
            server,
            _openai(bench, server) if target.name == OPENAI else _llama_cpp(bench, server),
            partial(_encode, bench),
            target,
            lambda: bench.channel.send("answered"),
        )
        sentinels = [request for request in requests if request.case.suite == SENTINEL]
        others = [request for request in requests if request.case.suite != SENTINEL]
        others = [request for request in others if request.unit in bench.wanted]
        for request in (request for request in others if request.case.refused):
            row = _cell_row(bench, server, request) | cell_rows.untried(request)
            bench.channel.rows("cells", [row])
            bench.channel.done(*request.unit)
        others = [request for request in others if not request.case.refused]
        for request in (*sentinels, *others):
            bench.channel.started(*request.unit)
        shown = list(remote.ask(sentinels))
        enforced = _enforced(shown)
        for request, answer in chain(shown, remote.ask(others)):
            enforces = enforced.get(request.case.grammar.kind, True)
            _send(bench, server, request, answer, enforces)


def _enforced(answers: Sequence[tuple[Request, Answer]]) -> dict[str, bool]:
    """For each kind of grammar whether a sentinel showed that it has a say."""
    found: dict[str, bool] = {}
    for request, answer in answers:
        shown = judge_answer.engaged(request.case, answer)
        if shown is not None:
            kind = request.case.grammar.kind
            found[kind] = found.get(kind, False) or shown
    return found


def _encode(bench: Workbench, prompt: str) -> tuple[int, ...]:
    return prompt_ids(bench.model.vocab, bench.vocabulary, bench.prompt_encoder, prompt)


def _requests(bench: Workbench) -> Iterator[Request]:
    (label,) = bench.job.builders
    for case in bench.languages:
        yield Request(
            key=cell_rows.key(bench.job, label, case),
            case=case,
            builder=label,
            max_tokens=bench.job.max_tokens or case.max_tokens,
        )


def _llama_cpp(bench: Workbench, server: Provided) -> Interface:
    """llama.cpp's interface, once the server is known to have our vocabulary."""
    asked = {"content": _PROBE, "add_special": True, "parse_special": True}
    reply = server.post("/tokenize", asked)
    if reply.status != 200:
        raise PipelineError(
            f"{server.address} is no llama.cpp server: POST /tokenize was answered with "
            f"{reply.said or f'HTTP {reply.status}'}. Give the address of one with target.url=…, "
            "or use target=openai for other servers."
        )
    ours = list(_encode(bench, _PROBE))
    if f'"tokens":{ours}'.replace(" ", "").encode() not in reply.body.replace(b" ", b""):
        raise PipelineError(
            f"The server at {server.address} has another vocabulary than "
            f"model={bench.job.model} tokenizer={bench.job.tokenizer}: it tokenizes {_PROBE!r} "
            f"as {reply.body[:200]!r}, not {ours}. Name the model it serves with model=path "
            "model.path=FILE.gguf."
        )
    return Server()


def _openai(bench: Workbench, server: Provided) -> Interface:
    """OpenAI's interface, with the name of the model that is served."""
    target = bench.job.target
    model = target.served or openai.first_model(server.get("/v1/models"))
    if model is None:
        raise PipelineError(
            f"{server.address} does not say which models it serves (GET /v1/models). Name one "
            "with target.served=…, and see that target.url is the address without /v1."
        )
    return OpenAI(
        model, chat=target.api == "chat", json_schema=target.response_format == "json_schema"
    )


def _send(
    bench: Workbench, server: Provided, request: Request, answer: Answer, enforces: bool
) -> None:
    """Judge one answer and send its rows."""
    exact = bench.job.target.name != OPENAI
    case = request.case if exact else openai.plain(request.case)
    grammar = bench.languages[case].grammar if exact else ByteGrammar(case.grammar.engine_text()[1])
    judged = judge_answer.judge_answer(
        case,
        answer,
        judge_answer.Bench(grammar, bench.oracle, bench.vocabulary.rendered, exact, enforces),
    )
    row = _cell_row(bench, server, request) | {
        "verdict": judged.verdict.value,
        "cause": judged.cause.value,
        "text_valid": judged.text_valid,
        "output": None if answer.text is None else judged.output,
        "n_tokens": answer.n_tokens,
        "ended": answer.end.value,
        "culprit_step": judged.culprit,
        "n_legal_bytes": judged.n_legal,
        "engine_error": answer.errors[0] if answer.errors else None,
        "n_engine_errors": None if answer.errors is None else len(answer.errors),
        "http_status": answer.status,
        "reason": judged.reason,
        "prompt_ids": list(_encode(bench, request.case.prompt)) if exact else None,
    }
    bench.channel.rows("steps", _step_rows(bench, request, answer))
    bench.channel.rows("cells", [row])
    bench.channel.done(*request.unit)


def _cell_row(bench: Workbench, server: Provided, request: Request) -> Row:
    return cell_rows.cell_row(
        bench.job,
        request,
        vocab_type=bench.vocabulary.type.value,
        device="server",
        tokenize=None,
        model_sha256=bench.weights,
        vocab_hash=bench.vocabulary.hash,
        llama_lib_sha256=server.sha256,
        server=server.version,
        prefix_scheme=None if bench.job.target.name == OPENAI else bench.scheme,
        version=cell_rows.asked_as(bench.job.target),
    )


def _step_rows(bench: Workbench, request: Request, answer: Answer) -> Iterator[Row]:
    vocabulary = bench.vocabulary
    for i, token in enumerate(answer.tokens or ()):
        if not 0 <= token < vocabulary.n_tokens:
            return
        yield {
            "model": bench.job.model,
            "tokenizer": bench.job.tokenizer,
            "builder": request.builder,
            "suite": request.case.suite,
            "case": request.case.id,
            "repeat": None,
            "cell_key": request.key,
            "step": i,
            "token": token,
            "attribute": attr_name(int(vocabulary.attrs[token])),
            "claimed": None,
            "true": vocabulary.true_bytes[token],
            "rendered": vocabulary.rendered[token],
            "n_allowed": None,
            "origin": None,
        }
