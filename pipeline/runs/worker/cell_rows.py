"""The row of a cell: its names, what produced it, and its outcome; the same for all targets."""

from __future__ import annotations

from ...engines import builders
from ...engines.table import TokenTable
from ...generation import targets
from ...generation.generating import Generation
from ...generation.request import Request
from ...grammars.case import Case
from ...model.errors import BuilderRefused
from ...model.names import Row
from ...model.verdicts import Cause, End, TokenizeMode, Verdict
from ...native import llama, llguidance
from ...system import provenance
from ..protocol import Job
from .session import Session

_OUTCOME = (
    *("verdict", "cause", "cause_by", "format_valid", "output", "n_tokens", "n_forced"),
    *("n_non_canonical", "ended", "lost_at_step", "culprit_step", "n_legal_bytes"),
    *("engine_error", "n_engine_errors", "http_status", "enforcement", "reason", "prompt_ids"),
)
"""Columns of the outcome; None until there is one."""

_MADE_BY = (
    *("model_sha256", "vocab_hash", "table_hash", "engine", "llama_cpp", "llama_lib_sha256"),
    *("llguidance_lib_sha256", "server", "prefix_scheme"),
)
"""Columns of what produced a row, besides its grammar and seed."""


def key(job: Job, builder: str, case: Case) -> str:
    """The `cell_key`: the names by which `compare` pairs cells."""
    return "/".join((job.target.name, job.model, job.tokenizer, builder, case.suite, case.id))


def cell_row(
    session: Session, generation: Generation, request: Request, table: TokenTable | None
) -> Row:
    """The columns that identify a cell and what produced it; those of its outcome are empty.

    `table` is the table of its builder, or None.
    """
    job, case = session.job, request.case
    made_by = _made_by(session, generation, table) | {
        "grammar_hash": provenance.digest(*case.grammar.engine_text()),
        "seed": job.model_source.seed,
    }
    version = generation.version
    if version is None:
        version = _version(request.builder, table)
    return {
        "target": job.target.name,
        "model": job.model,
        "tokenizer": job.tokenizer,
        "vocab_type": session.vocabulary.type.value,
        "builder": request.builder,
        "suite": case.suite,
        "case": case.id,
        "repeat": request.repeat,
        "cell_key": request.key,
        "case_hash": case.hash,
        "cell_hash": provenance.digest(
            made_by,
            case.prompt,
            request.max_tokens,
            job.engine.on_error,
            version,
            *_sampling_settings(job, request),
        ),
        "text_valid": False,
        "tokenize": _tokenize(table) if table else None,
        "device": generation.device,
        **dict.fromkeys(_OUTCOME),
        **made_by,
    }


def _made_by(session: Session, generation: Generation, table: TokenTable | None) -> Row:
    """What produced the cells of a target: our libraries and a builder's table, or a server."""
    target = targets.get(session.job.target.name)
    found: Row = {
        **dict.fromkeys(_MADE_BY),
        "model_sha256": session.weights,
        "vocab_hash": session.vocabulary.hash,
        "prefix_scheme": session.prompts.scheme if target.exact_bytes else None,
    }
    if target.shows_tables:
        found |= {
            "table_hash": table.hash if table else None,
            "engine": session.engine.version,
            "llama_cpp": provenance.versions()["llama-cpp-python"],
            "llama_lib_sha256": provenance.file_sha256(llama.library_path()),
            "llguidance_lib_sha256": provenance.file_sha256(llguidance.library_path()),
        }
    return found | generation.made_by


def _version(builder: str, table: TokenTable | None) -> object:
    """The version of a builder; for a released package also its release."""
    version = builders.get(builder).version
    return [version, table.made_by] if table and table.made_by else version


def _tokenize(table: TokenTable) -> str:
    return table.tokenize_mode if table.tokenize else TokenizeMode.GREEDY.value


def not_generated(request: Request) -> Row:
    """The outcome of an imported case that cannot be generated."""
    return {
        "verdict": Verdict.GRAMMAR_ERROR.value,
        "cause": Cause.GRAMMAR.value,
        "reason": request.case.refused,
        "ended": End.REFUSED.value,
    }


def without_table(refusal: BuilderRefused) -> Row:
    """The outcome of a cell whose builder made no table."""
    return {
        "verdict": Verdict.BUILDER_REFUSED.value,
        "cause": Cause.UNKNOWN.value,
        "reason": str(refusal),
        "ended": End.BUILDER_REFUSED.value,
    }


def _sampling_settings(job: Job, request: Request) -> list[object]:
    """The sampling settings that decide an outcome; none for greedy decoding."""
    sampling = job.sampling
    if sampling.temperature == 0:
        return []
    return [sampling.temperature, sampling.top_p, sampling.seed, request.repeat]
