"""llama.cpp's own HTTP interface: `/completion` with `grammar` or `json_schema`, ids in and out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...grammars.case import Case
from ...model.verdicts import End
from .answer import Answer

_ENDS = {"eos": End.STOP_ID, "limit": End.TOKEN_LIMIT}


class Server:
    """See `answer.Interface`."""

    path = "/completion"

    def body(self, case: Case, prompt: Sequence[int], max_tokens: int) -> dict[str, object]:
        """See `answer.Interface`. The prompt is sent as ids, so that both ends read the same."""
        return {
            "prompt": list(prompt),
            "n_predict": max_tokens,
            "temperature": 0,
            "cache_prompt": False,
            "return_tokens": True,
            "stream": False,
            **_grammar(case),
        }

    def read(self, said: Mapping[str, Any]) -> Answer:
        """See `answer.Interface`."""
        text, tokens = said["content"], said.get("tokens") or None
        if not isinstance(text, str) or not isinstance(said["stop_type"], str):
            raise TypeError
        return Answer(
            end=_ENDS.get(said["stop_type"], End.GARBLED),
            status=200,
            text=text,
            tokens=None if tokens is None else tuple(map(int, tokens)),
            n_tokens=int(said["tokens_predicted"]),
            said="" if said["stop_type"] in _ENDS else f"stop_type {said['stop_type']!r}",
        )


def _grammar(case: Case) -> dict[str, object]:
    if case.grammar.kind == "json":
        return {"json_schema": json.loads(case.grammar.text)}
    return {"grammar": case.grammar.engine_text()[1]}
