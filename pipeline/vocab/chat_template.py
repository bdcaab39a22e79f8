"""Chat templates of GGUF files, rendered as llama.cpp's server renders them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

Messages = Sequence[Mapping[str, str]]

CONVERSATIONS: dict[str, Messages] = {
    "one_turn": [{"role": "user", "content": "Write"}],
    "two_turns": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": " Write"},
    ],
    "system": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Write"},
    ],
}
"""Conversations to test a template with; they have every kind of boundary of text and marker."""


class Unrenderable(Exception):
    """The template cannot render a conversation; the text says why."""


def render(template: str, messages: Messages, *, bos: str, eos: str) -> str:
    """The prompt of a conversation, up to the start of the assistant's answer.

    Raises `Unrenderable` if the template rejects the conversation or is broken.
    """
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    values: dict[str, Any] = {
        "messages": messages,
        "bos_token": bos,
        "eos_token": eos,
        "add_generation_prompt": True,
        "raise_exception": _refuse,
        "strftime_now": _no_time,
    }
    try:
        return environment.from_string(template).render(values)
    except (TemplateError, TypeError, ValueError, LookupError) as error:
        raise Unrenderable(f"{type(error).__name__}: {error}") from None


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _no_time(form: str) -> str:
    """A fixed date, so that the same command gives the same tables."""
    return datetime.datetime(2026, 1, 1).strftime(form)
