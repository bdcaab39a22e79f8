"""The row of a cell: which it is, what made it, what came out; one shape for all targets."""

from __future__ import annotations

from ...generation.request import Request
from ...generation.target import TargetRef
from ...grammars.case import Case
from ...model.names import Row
from ...model.verdicts import Cause, End, Verdict
from ...system import provenance
from ..protocol import Job

_OUTCOME = (
    *("verdict", "cause", "output", "n_tokens", "n_forced", "n_non_canonical", "ended"),
    *("lost_at_step", "culprit_step"),
    *("n_legal_bytes", "engine_error", "n_engine_errors", "http_status", "reason", "prompt_ids"),
)
"""The columns that an outcome fills; None before."""

_MADE_BY = (
    *("model_sha256", "vocab_hash", "table_hash", "engine", "llama_cpp", "llama_lib_sha256"),
    *("llguidance_lib_sha256", "server", "prefix_scheme"),
)
"""The columns of what made a row, beside its grammar and its seed."""


def key(job: Job, builder: str, case: Case) -> str:
    """The `cell_key`: the names, by which cells are paired."""
    return "/".join((job.target.name, job.model, job.tokenizer, builder, case.suite, case.id))


def cell_row(
    job: Job,
    request: Request,
    *,
    vocab_type: str,
    device: str,
    tokenize: str | None,
    **made: object,
) -> Row:
    """The columns that say which cell it is and what made it; `made` is of `MADE_BY`, and
    `version`, which counts for the `cell_hash` alone."""
    case = request.case
    version = made.pop("version")
    made_by: Row = {name: made.pop(name, None) for name in _MADE_BY} | {
        "grammar_hash": provenance.digest(*case.grammar.engine_text()),
        "seed": job.seed,
    }
    assert not made, made
    return {
        "target": job.target.name,
        "model": job.model,
        "tokenizer": job.tokenizer,
        "vocab_type": vocab_type,
        "builder": request.builder,
        "suite": case.suite,
        "case": case.id,
        "repeat": request.repeat,
        "cell_key": request.key,
        "case_hash": case.hash,
        "cell_hash": provenance.digest(
            made_by, case.prompt, request.max_tokens, job.on_error, version, *_drawn(job, request)
        ),
        "text_valid": False,
        "tokenize": tokenize,
        "device": device,
        **dict.fromkeys(_OUTCOME),
        **made_by,
    }


def untried(request: Request) -> Row:
    """The outcome of an imported case that cannot be tried."""
    return {
        "verdict": Verdict.GRAMMAR_ERROR.value,
        "cause": Cause.GRAMMAR.value,
        "reason": request.case.refused,
        "ended": End.REFUSED.value,
    }


def _drawn(job: Job, request: Request) -> list[object]:
    """What of sampling decides an outcome; nothing of a greedy one."""
    if job.temperature == 0:
        return []
    return [job.temperature, job.top_p, job.sampling_seed, request.repeat]


def asked_as(target: TargetRef) -> list[str]:
    """What of a remote target decides an outcome, for the `cell_hash`."""
    return [target.name, target.api, target.response_format, target.served or ""]
