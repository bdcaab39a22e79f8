"""OpenAI's HTTP interface, as other servers offer it: completions with a `response_format`.

It accepts only JSON Schemas, and it promises only the schema. Only llguidance knows the layout in
the schema's `x-guidance`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...grammars.case import Case, Grammar
from ...grammars.checkers import JsonValue
from ...model.verdicts import End
from .answer import Answer
from .http import Reply

_ENDS = {"stop": End.STOP_ID, "length": End.TOKEN_LIMIT}
_LAYOUT = "x-guidance"


def plain(case: Case) -> Case:
    """The case as this interface can promise it: a value that the schema allows, in any layout."""
    if case.imported:
        return case  # imported schemas and their checkers allow any layout already
    schema = json.loads(case.grammar.text)
    schema.pop(_LAYOUT, None)
    text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
    return replace(case, grammar=Grammar("json", text), check=JsonValue(schema))


def first_model(reply: Reply) -> str | None:
    """The first model in a reply to `GET /v1/models`; None if it lists none."""
    try:
        name = json.loads(reply.body)["data"][0]["id"]
    except (KeyError, TypeError, ValueError, IndexError, RecursionError):
        return None
    return name if isinstance(name, str) else None


class OpenAI:
    """See `answer.Interface`; `/v1/chat/completions` or `/v1/completions`."""

    def __init__(self, model: str, *, chat: bool, json_schema: bool) -> None:
        self.path = "/v1/chat/completions" if chat else "/v1/completions"
        self._model = model
        self._chat = chat
        self._json_schema = json_schema

    def body(self, case: Case, prompt: Sequence[int], max_tokens: int) -> dict[str, object]:
        """See `answer.Interface`. The prompt is sent as text; the server tokenizes it."""
        asked: dict[str, object] = (
            {"messages": [{"role": "user", "content": case.prompt}]}
            if self._chat
            else {"prompt": case.prompt}
        )
        return asked | {
            "model": self._model,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": False,
            "response_format": self._format(json.loads(plain(case).grammar.text)),
        }

    def _format(self, schema: dict[str, object]) -> dict[str, object]:
        if not self._json_schema:
            return {"type": "json_object", "schema": schema}
        named = {"name": "answer", "strict": True, "schema": schema}
        return {"type": "json_schema", "json_schema": named}

    def read(self, said: Mapping[str, Any]) -> Answer:
        """See `answer.Interface`."""
        choice = said["choices"][0]
        message = choice["message"] if self._chat else {"content": choice["text"]}
        text, reason = message["content"], choice["finish_reason"]
        aside = message.get("reasoning_content") or message.get("reasoning") or ""
        if not isinstance(text, str | None) or not isinstance(aside, str):
            raise TypeError
        return Answer(
            end=_ENDS.get(reason, End.GARBLED),
            status=200,
            text=text or "",
            n_tokens=_n_tokens(said.get("usage")),
            aside=aside,
            said="" if reason in _ENDS else f"finish_reason {reason!r}",
        )


def _n_tokens(usage: Any) -> int | None:
    """Number of tokens of an answer, if reported."""
    return int(usage["completion_tokens"]) if usage else None
