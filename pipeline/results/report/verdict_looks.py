"""How a verdict is shown: its group with a colour, a symbol, a meaning and advice.

There are five groups with five shapes, so that nothing depends on colour alone. The colours are in
`templates/report.css`, under the names of the groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ...model.verdicts import BADNESS, Verdict


class Group(StrEnum):
    """Kinds of outcomes, worst first; the values are CSS classes."""

    BROKEN = "broken"
    DIED = "died"
    HELD = "held"
    DOUBT = "doubt"
    OK = "ok"


SYMBOLS = {
    Group.BROKEN: "✕",
    Group.DIED: "▲",
    Group.HELD: "■",
    Group.DOUBT: "◆",
    Group.OK: "✓",
}

GROUP_WORDS = {
    Group.BROKEN: "grammar broken",
    Group.DIED: "process died",
    Group.HELD: "refused or stopped",
    Group.DOUBT: "undecided",
    Group.OK: "right",
}


@dataclass(frozen=True)
class Look:
    """One verdict, as it is shown."""

    verdict: Verdict
    group: Group
    when: str
    advice: str

    @property
    def symbol(self) -> str:
        """The shape of its group."""
        return SYMBOLS[self.group]

    @property
    def badness(self) -> int:
        """Higher is worse; see `verdicts.BADNESS`."""
        return BADNESS[self.verdict]


LOOKS = {
    verdict: Look(verdict, group, when, advice)
    for verdict, group, when, advice in (
        (
            Verdict.SILENT_CORRUPTION,
            Group.BROKEN,
            "The constraint was not lost, but the rendered bytes break the grammar. "
            "No error is raised.",
            "Look at the first token whose claimed bytes differ from its true bytes.",
        ),
        (
            Verdict.UNENFORCED,
            Group.BROKEN,
            "The constraint was lost, and generation went on without it.",
            "Look at the marked token: the constraint was lost there.",
        ),
        (
            Verdict.EARLY_STOP,
            Group.BROKEN,
            "The runtime stopped before the text was complete.",
            "Compare the end ids of the vocabulary with the end id that the builder names.",
        ),
        (
            Verdict.NO_STOP,
            Group.BROKEN,
            "The text is complete, but no id is allowed on which the runtime stops.",
            "The builder names no usable end id: look at the tokenizer's end ids.",
        ),
        (
            Verdict.REFUSED,
            Group.HELD,
            "The model of a server declined to answer.",
            "Read its words in the reason; ask in another way.",
        ),
        (
            Verdict.BUSY,
            Group.DIED,
            "The server asked to wait longer than allowed.",
            "Run again later, or with fewer requests at once (target.slots).",
        ),
        (
            Verdict.CRASHED,
            Group.DIED,
            "The native process died.",
            "Read the reason: it has the signal and the last output.",
        ),
        (
            Verdict.TIMEOUT,
            Group.DIED,
            "The native process sent nothing within the time limit.",
            "Run the cell alone, or raise engine.time_limit.",
        ),
        (
            Verdict.DEAD_END,
            Group.HELD,
            "Nothing is allowed, though legal tokens exist.",
            "Tokens are missing from the token table: look at the token tables.",
        ),
        (
            Verdict.STOPPED,
            Group.HELD,
            "The constraint was lost and generation stopped: a safe failure.",
            "Look at the marked token: the constraint was lost there.",
        ),
        (
            Verdict.GRAMMAR_ERROR,
            Group.HELD,
            "The grammar does not compile, and the runtime refuses it.",
            "Correct the grammar; the reason has the engine's message.",
        ),
        (
            Verdict.BUILDER_REFUSED,
            Group.HELD,
            "The builder cannot make a table of this vocabulary.",
            "Use another builder, and report the reason to the authors of this one.",
        ),
        (
            Verdict.LOAD_REFUSED,
            Group.HELD,
            "llama.cpp refused the file.",
            "Repair the file or fetch it again.",
        ),
        (
            Verdict.CHECKER_DISAGREES,
            Group.DOUBT,
            "The byte-level grammar accepts what the independent checker refuses.",
            "A fault of the engine or of the suite's checker: compare the two on this output.",
        ),
        (
            Verdict.TRUNCATED,
            Group.DOUBT,
            "The token limit was reached before the end.",
            "Raise max_tokens of the case, or engine.max_tokens.",
        ),
        (
            Verdict.IMPOSSIBLE,
            Group.DOUBT,
            "No token of this vocabulary can continue the text.",
            "Change the grammar or the model: no builder can solve this.",
        ),
        (
            Verdict.OK,
            Group.OK,
            "The text is complete, and valid by the byte-level grammar and by the checker.",
            "",
        ),
    )
}


def look(verdict: str) -> Look:
    """The look of a verdict by its name in a table."""
    return LOOKS[Verdict(verdict)]


def catalogue() -> dict[str, list[object]]:
    """Every look for the pages' scripts: name → symbol, group, badness, when, advice."""
    return {
        v.value: [lk.symbol, lk.group.value, lk.badness, lk.when, lk.advice]
        for v, lk in LOOKS.items()
    }


def worst_first(names: list[str]) -> list[str]:
    """Verdict names by badness."""
    return sorted(names, key=lambda name: -look(name).badness)
