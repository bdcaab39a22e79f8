"""A server's answer to one case, the same for every interface."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ...grammars.case import Case
from ...model.verdicts import End
from .http import Fault, Reply


@dataclass(frozen=True)
class Answer:
    """The answer to one case; `text` is None if there is no text to judge."""

    end: End
    status: int | None = None
    """HTTP status; it does not decide the verdict."""
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    """The ids, if the interface reports them."""
    n_tokens: int | None = None
    aside: str = ""
    """Text besides the answer, such as the reasoning of a chat."""
    tool: str = ""
    """The arguments of a tool call, if there is one."""
    note: str = ""
    """What was unusual about the answer."""
    said: str = ""
    """Why there is no text."""
    errors: tuple[str, ...] | None = None
    """Engine errors in the server's log during the request; None if there is no log."""
    unlike: bool = False
    """Whether it differs from the answer to the same request sent together with others."""


class Interface(Protocol):
    """An interface of a server: how to write a request and read its answer."""

    path: str

    def body(self, case: Case, prompt: Sequence[int], max_tokens: int) -> dict[str, object]:
        """The body of the request, as JSON."""
        ...

    def read(self, said: Mapping[str, Any]) -> Answer:
        """Read the answer to a successful request. Raises KeyError, TypeError or ValueError if it
        does not have the form that the interface prescribes."""
        ...


def answer(reply: Reply, interface: Interface) -> Answer:
    """Convert a reply to the answer to a case."""
    if reply.status is None:
        end = End.TIMEOUT if reply.fault is Fault.TIMEOUT else End.CLOSED
        return Answer(end, said=reply.said)
    if reply.status == 429:
        return Answer(End.BUSY, reply.status, said=_words(reply))
    if reply.status >= 500:
        return Answer(End.FAILED, reply.status, said=_words(reply))
    if reply.status >= 400:
        return Answer(End.REFUSED, reply.status, said=_words(reply))
    if reply.status != 200:
        said = f"HTTP {reply.status} is neither success nor error; redirects are not followed"
        return Answer(End.GARBLED, reply.status, said=said)
    if reply.fault is not None:
        return Answer(End.GARBLED, 200, said="the answer is too long")
    try:
        found = interface.read(json.loads(reply.body))
    except RecursionError:
        return Answer(End.GARBLED, 200, said="JSON nested too deeply")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        return Answer(End.GARBLED, 200, said=f"not a valid answer: {_quoted(reply.body)}")
    return found


def _words(reply: Reply) -> str:
    """A server's error message, on one line."""
    text = _quoted(reply.body)
    try:
        error = json.loads(reply.body)["error"]
        text = str(cast("dict[str, Any]", error)["message"] if isinstance(error, dict) else error)
    except (KeyError, TypeError, ValueError, RecursionError):
        pass
    text = text.encode("utf-8", "replace").decode()  # it may have half a character
    return f"HTTP {reply.status}: {' '.join(text.split())[:300]}"


def _quoted(data: bytes) -> str:
    return repr(data[:80].decode("utf-8", "replace"))
