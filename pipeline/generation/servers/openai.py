"""OpenAI's HTTP interface, as other servers offer it: completions with a `response_format`.

It accepts only JSON Schemas, and it promises only the schema. Only llguidance knows the layout in
the schema's `x-guidance`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ...grammars.case import Case, Grammar
from ...grammars.checkers import JsonValue
from ...model.verdicts import End
from .answer import Answer
from .http import Reply

_ENDS = {
    **dict.fromkeys((None, "", "stop", "eos", "eos_token", "end_turn"), End.STOP_ID),
    **dict.fromkeys(("length", "max_tokens"), End.TOKEN_LIMIT),
}
"""Values of `finish_reason`, in lower case, as servers write them."""
_MOST_TOKENS = 2**31
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
        """See `answer.Interface`.

        The text may come in parts, of which those of type `text` count. An unknown `finish_reason`
        counts as an end, and is noted.
        """
        choice = said["choices"][0]
        message = choice["message"] if self._chat else {"content": choice["text"]}
        reason = choice.get("finish_reason")
        text = _joined(message.get("content"))
        refusal = message.get("refusal")
        if refusal and not text:
            return Answer(End.DECLINED, 200, text=None, said=f"the model declined: {refusal}")
        end = _ENDS.get(reason.lower() if isinstance(reason, str) else reason)
        return Answer(
            end=end or End.STOP_ID,
            status=200,
            text=text,
            n_tokens=_n_tokens(said.get("usage")),
            aside=_joined(message.get("reasoning_content") or message.get("reasoning")),
            tool=_arguments(message.get("tool_calls")),
            note="" if end else f"the server ended with finish_reason {reason!r}",
        )


def _joined(content: object) -> str:
    """The text of a message: itself, or its parts of type `text`. Raises TypeError."""
    if content is None:
        return ""
    if isinstance(content, list):
        parts = cast("list[dict[str, Any]]", content)
        content = "".join(part["text"] for part in parts if part.get("type", "text") == "text")
    if not isinstance(content, str):
        raise TypeError
    return content


def _arguments(calls: object) -> str:
    """The arguments of the first tool call, as text; empty without one. Raises TypeError."""
    if not calls:
        return ""
    found = cast("list[dict[str, Any]]", calls)[0]["function"]["arguments"]
    return found if isinstance(found, str) else json.dumps(found)


def _n_tokens(usage: Any) -> int | None:
    """Number of tokens of an answer, if a sensible one is reported."""
    try:
        n = int(usage["completion_tokens"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return n if 0 <= n < _MOST_TOKENS else None
