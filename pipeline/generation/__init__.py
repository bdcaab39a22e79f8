"""From a case to a transcript or to a server's answer, and from that to a verdict.

Imports `audit` and what is below it.
"""

__all__ = [
    "cell",
    "generating",
    "in_process",
    "judge_answer",
    "judge_transcript",
    "judgement",
    "prompts",
    "request",
    "sampling",
    "servers",
    "settings",
    "target",
    "targets",
]
