"""Generation of an output for each case, in process or by a server, and its verdict.

Imports `audit` and the packages below it.
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
