"""The generation stage: every case under every builder, judged cell by cell."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import product

from ...audit import walks
from ...engines import builders
from ...engines.builders import bridge
from ...engines.protocol import Mask
from ...engines.table import TokenTable
from ...generation.cell import Cell, Origin, Transcript
from ...generation.in_process import Decoding, InProcess
from ...generation.judge_transcript import evaluate
from ...generation.request import Request
from ...generation.sampling import Sampling
from ...model.names import Row
from ...model.verdicts import Cause, End
from ...native import llama, llguidance
from ...system import provenance
from ...vocab.token_types import attr_name
from ..protocol import repeats
from . import cell_rows
from .session import Workbench


def run(bench: Workbench) -> None:
    """Send `cells`, `steps` and, as far as masks are judged, `states`."""
    watcher = _Watcher(bench)
    target = InProcess(
        bench.model,
        bench.vocabulary,
        bench.tables,
        bench.engine,
        Decoding(
            device=bench.device,
            n_seq=bench.job.n_seq,
            n_threads=bench.n_threads,
            fast_forward=bench.job.fast_forward,
            drop_on_error=bench.job.on_error == "drop",
            sampling=Sampling(bench.job.temperature, bench.job.top_p, bench.job.sampling_seed),
        ),
        observe=None if bench.judged_masks == "off" else watcher.observe,
        encoder=bench.prompt_encoder,
        clock=bench.clock,
    )
    requests = [request for request in _requests(bench) if request.unit in bench.wanted]
    watcher.requests = {request.identity: request for request in requests}
    able: list[Request] = []
    for request in requests:
        if request.case.refused:
            bench.channel.rows("cells", [_cell_row(bench, request) | cell_rows.untried(request)])
            bench.channel.done(*request.unit)
        elif request.builder in bench.refusals:
            bench.channel.rows("cells", [_refused_row(bench, request)])
            bench.channel.done(*request.unit)
        else:
            able.append(request)
    tokens = dict.fromkeys(Origin, 0)
    for some in [[request] for request in able] if bench.job.apart else [able]:
        for request in some:
            bench.channel.started(*request.unit)
        _generate(bench, target, watcher, some, tokens)
    if able:
        bench.channel.send("timings", timings=_timings(bench, target, tokens))


def _generate(
    bench: Workbench,
    target: InProcess,
    watcher: _Watcher,
    requests: list[Request],
    tokens: dict[Origin, int],
) -> None:
    for request, transcript in target.generate(requests):
        for step in transcript.steps:
            tokens[step.origin] += 1
        table = bench.tables[request.builder]
        with bench.clock.on(request.unit):
            judged = evaluate(
                request.case,
                transcript,
                bench.vocabulary,
                table,
                bench.languages[request.case].grammar,
                bench.oracle,
                partial(_control, bench, request, transcript),
            )
        loss = transcript.loss
        row = _cell_row(bench, request) | {
            "verdict": judged.verdict.value,
            "cause": judged.cause.value,
            "text_valid": judged.text_valid,
            "output": judged.output,
            "n_tokens": len(transcript.steps),
            "n_forced": sum(step.origin is Origin.FORCED for step in transcript.steps),
            "n_non_canonical": _n_non_canonical(bench, transcript),
            "ended": transcript.end.value,
            "lost_at_step": loss.step if loss else None,
            "culprit_step": judged.culprit,
            "n_legal_bytes": judged.n_legal,
            "engine_error": loss.message if loss else None,
            "n_engine_errors": int(loss is not None),
            "reason": judged.reason,
            "prompt_ids": list(transcript.prompt),
        }
        bench.channel.rows("states", watcher.rows.pop(request.identity, []))
        bench.channel.rows("steps", _step_rows(bench, request, transcript, table))
        bench.channel.rows("cells", [row])
        bench.channel.done(*request.unit)


def _n_non_canonical(bench: Workbench, transcript: Transcript) -> int:
    """Tokens that stand where the canonical split of the same text has others."""
    pieces = [bench.vocabulary.rendered[step.token] for step in transcript.steps]
    pieces = [piece for piece in pieces if piece]
    return walks.n_non_canonical(pieces, bench.canonical_pieces(b"".join(pieces)))


class _Watcher:
    """Judges the masks of running cells against the oracle."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self.requests: dict[str, Request] = {}
        self.rows: dict[str, list[Row]] = {}

    def observe(self, cell: Cell, mask: Mask) -> None:
        bench = self._bench
        if cell.steps and bench.judged_masks == "first":
            return
        request = self.requests[cell.key]
        prefix = b"".join(bench.vocabulary.rendered[step.token] for step in cell.steps)
        rng = random.Random(f"{cell.key}/{len(cell.steps)}")
        languages = bench.languages[request.case]
        finding = bench.judge.judge(
            languages.grammar, prefix, cell.matcher, mask, rng, languages.control
        )
        self.rows.setdefault(cell.key, []).append(
            bench.state_row(
                request.builder,
                request.case,
                f"generate/{bench.job.model}" + request.identity.removeprefix(request.key),
                len(cell.steps),
                finding,
            )
        )


def _timings(bench: Workbench, target: InProcess, tokens: dict[Origin, int]) -> Row:
    seconds = {part.value: round(spent, 4) for part, spent in target.stopwatch.seconds.items()}
    return {
        "model": bench.job.model,
        "tokenizer": bench.job.tokenizer,
        "n_seq": target.n_seq,
        "n_threads": bench.n_threads,
        "fast_forward": bench.job.fast_forward,
        "tokens": {origin.value: n for origin, n in tokens.items()},
        "seconds": seconds,
    }


def _control(bench: Workbench, request: Request, transcript: Transcript) -> bool:
    """See `judge_transcript.Control`: the same tokens over true bytes, tokenized greedily."""
    table = bridge.true_table(bench.material)
    with closing(bench.engine.compile(table, *request.case.grammar.engine_text())) as matcher:
        before = transcript.steps[: transcript.loss.step if transcript.loss else 0]
        return all(matcher.consume(s.token) for s in before) and matcher.mask() is not None


def _requests(bench: Workbench) -> Iterator[Request]:
    for case in bench.languages:
        for builder, repeat in product(bench.job.builders, repeats(bench.job.repeats)):
            yield Request(
                key=cell_rows.key(bench.job, builder, case),
                case=case,
                builder=builder,
                max_tokens=bench.job.max_tokens or case.max_tokens,
                repeat=repeat,
            )


def _cell_row(bench: Workbench, request: Request) -> Row:
    """The columns that say which cell it is and what made it; the outcome's are None."""
    table = bench.tables.get(request.builder)
    return cell_rows.cell_row(
        bench.job,
        request,
        vocab_type=bench.vocabulary.type.value,
        device=bench.device,
        tokenize=_tokenize(table) if table else None,
        model_sha256=bench.weights,
        vocab_hash=bench.vocabulary.hash,
        table_hash=table.hash if table else None,
        engine=bench.engine.version,
        llama_cpp=provenance.versions()["llama-cpp-python"],
        llama_lib_sha256=provenance.file_sha256(llama.library_path()),
        llguidance_lib_sha256=provenance.file_sha256(llguidance.library_path()),
        prefix_scheme=bench.scheme,
        version=_version(request.builder, table),
    )


def _version(name: str, table: TokenTable | None) -> object:
    """What made a table, beside its name; a released package by its release too."""
    version = builders.get(name).version
    return [version, table.made_by] if table and table.made_by else version


def _tokenize(table: TokenTable) -> str:
    return table.tokenize_mode if table.tokenize else "greedy"


def _refused_row(bench: Workbench, request: Request) -> Row:
    return _cell_row(bench, request) | {
        "verdict": End.BUILDER_REFUSED.value,
        "cause": Cause.UNKNOWN.value,
        "reason": str(bench.refusals[request.builder]),
        "ended": End.BUILDER_REFUSED.value,
    }


def _step_rows(
    bench: Workbench, request: Request, transcript: Transcript, table: TokenTable
) -> Iterator[Row]:
    vocabulary = bench.vocabulary
    for i, step in enumerate(transcript.steps):
        yield {
            "model": bench.job.model,
            "tokenizer": bench.job.tokenizer,
            "builder": request.builder,
            "suite": request.case.suite,
            "case": request.case.id,
            "repeat": request.repeat,
            "cell_key": request.key,
            "step": i,
            "token": step.token,
            "attribute": attr_name(int(vocabulary.attrs[step.token])),
            "claimed": table.claimed[step.token],
            "true": vocabulary.true_bytes[step.token],
            "rendered": vocabulary.rendered[step.token],
            "n_allowed": step.n_allowed,
            "origin": step.origin.value,
        }
