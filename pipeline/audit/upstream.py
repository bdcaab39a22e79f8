"""Texts for reporting a fault upstream: a suite file, the command that runs it, and a report.

They have the same form for faults of token tables (`reproducers`) and of engines (`engine_masks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..grammars.case import Case
from ..model.verdicts import MaskVerdict
from ..system import rerun
from ..vocab.vocabulary import Vocabulary
from . import small_cases

_SHOWN_IDS = 5
"""Largest number of wrong ids that a report lists."""


@dataclass(frozen=True)
class FaultSource:
    """A token table or an engine whose masks are wrong, over one vocabulary."""

    tokenizer: str
    vocabulary: Vocabulary
    claimed: Sequence[bytes]
    """Claimed bytes of each id."""
    name: str
    """Its name in the suite file."""
    report_name: str
    """Its name in the report."""
    file: tuple[str, ...]
    """Parts of its file names, besides the tokenizer and the fault; empty parts are left out."""
    vocabulary_overrides: Sequence[str]
    """Overrides that select the vocabulary (`Job.named`)."""
    overrides: Sequence[str]
    """Overrides that select the builder or the engine."""
    versions: str
    """The software that was tested, with versions."""


@dataclass(frozen=True)
class Fault:
    """A wrong mask, in the smallest case that shows it."""

    verdict: MaskVerdict
    kind: str
    case: Case
    grammar: tuple[str, str]
    """(kind of grammar, its text) in the words of the report, such as `JSON Schema`."""
    tokens: Sequence[int]
    """Tokens to take before the mask that shows it."""
    ids: Sequence[int]
    """The ids that are wrong in that mask, lowest first."""
    n_allowed: int | None = None
    """Number of tokens that the mask allows, if known; then `ids` may be cut short."""


@dataclass(frozen=True)
class FaultTexts:
    """The texts about a fault."""

    true: bytes | None
    """True bytes of the first of its ids; None if it is not in the vocabulary."""
    claimed: bytes | None
    """Claimed bytes of the first of its ids."""
    file: str
    """Path of the suite file, below the run's folder."""
    command: str
    """The command that shows the fault, once the suite file is there."""
    suite_file: str
    """A suite file that `run` accepts; it takes the tokens first, then the first of the ids."""
    report: str
    """The text block for an upstream report."""


def fault_texts(source: FaultSource, fault: Fault) -> FaultTexts:
    """Make all texts about a fault."""
    name = f"{fault.verdict}-{fault.kind}"
    parts = "-".join(filter(None, (source.tokenizer, *source.file, name)))
    file = f"reproducers/{rerun.file_name(parts)}.yaml"
    command = rerun.reproduce_command(file, source.vocabulary_overrides, source.overrides)
    about = f"{source.tokenizer}, {source.name}: mask {fault.verdict} ({fault.kind})"
    first = [token for token in fault.ids[:1] if token < source.vocabulary.n_tokens]
    return FaultTexts(
        true=source.vocabulary.true_bytes[first[0]] if first else None,
        claimed=source.claimed[first[0]] if first else None,
        file=file,
        command=command,
        suite_file=small_cases.suite_file(fault.case, [*fault.tokens, *first], about, command),
        report=_report(source, fault, command),
    )


_FAULT_WORDS = {
    MaskVerdict.UNSOUND: "allows tokens that leave the grammar or render nothing",
    MaskVerdict.STOP_TOO_EARLY: "allows end ids before the text is complete",
    MaskVerdict.REFUSED_BY_CONSUME: "allows tokens that are refused when they are consumed",
    MaskVerdict.EMPTY: "is empty, though legal tokens exist",
    MaskVerdict.STOP_MISSING: "allows none of the end ids, though the text is complete",
    MaskVerdict.INCOMPLETE: "misses legal tokens",
}
"""The fault of a mask in words; the report lists the ids after it."""


def _report(source: FaultSource, fault: Fault, command: str) -> str:
    vocabulary, (language, text) = source.vocabulary, fault.grammar
    lines = [
        f"{source.report_name} over the vocabulary `{source.tokenizer}` ({vocabulary.type}): "
        f"mask {fault.verdict} ({fault.kind}).",
        "",
        f"{language}: `{text}`",
    ]
    if fault.tokens:
        lines.append(f"After the tokens: {', '.join(_shown(source, t) for t in fault.tokens)}")
    if fault.n_allowed is None:
        lines.append(f"The mask {_FAULT_WORDS[fault.verdict]} ({len(fault.ids)} in all):")
    else:
        lines.append(f"The mask of {fault.n_allowed} tokens {_FAULT_WORDS[fault.verdict]}:")
    lines += [f"- {_wrong(source, token)}" for token in fault.ids[:_SHOWN_IDS]]
    seen = f"{source.versions}, vocabulary sha256 {vocabulary.hash[:16]}"
    return "\n".join([*lines, "", f"Seen with `{command}`", seen]) + "\n"


def _wrong(source: FaultSource, token: int) -> str:
    """One line on a wrong id of a mask: its true bytes, and its claimed bytes if they differ."""
    if token >= source.vocabulary.n_tokens:
        return f"{token}, beyond the vocabulary of {source.vocabulary.n_tokens}"
    claimed = source.claimed[token]
    right = claimed == source.vocabulary.true_bytes[token]
    return _shown(source, token) + ("" if right else f" (the table says {claimed!r})")


def _shown(source: FaultSource, token: int) -> str:
    return f"{token} {source.vocabulary.true_bytes[token]!r}"
